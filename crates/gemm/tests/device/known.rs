//! Products of integers with known results, and engines for them.

use persistent_gemm::driver::{Device, DeviceBuffer, Stream};
use persistent_gemm::engine::{Engine, EngineOptions};
use persistent_gemm::{Config, Gemm, HostMatrix, Major, Pointers, Problem, Spec, cpu};

pub const SPECS: [&str; 4] = [
    "bf16-kk-bf16-128x128x64-s5-p2-c1x1",
    "bf16-kk-bf16-64x64x64-s8-w1-c1x1",
    "bf16-kn-bf16-128x256x64-s3-w2-c1x1",
    "bf16-kk-f32-128x64x64-s6-w2-c1x1",
];

/// A product of integers whose result is known.
pub struct Known {
    pub problem: Problem,
    pub a: DeviceBuffer,
    pub b: DeviceBuffer,
    pub d: DeviceBuffer,
    pub expected: Vec<u8>,
}

impl Known {
    pub fn new(
        device: &Device,
        stream: &Stream,
        config: &Config,
        problem: Problem,
        seed: u64,
    ) -> Self {
        let matrix = |layout, seed| {
            let mut matrix = HostMatrix::zeros(layout, config.dtype).unwrap();
            matrix.fill_integers(seed, 3);
            matrix
        };
        let (a, b) = (matrix(problem.a_layout(), seed), matrix(problem.b_layout(), seed + 1));
        let mut d = HostMatrix::zeros(problem.d_layout(), config.output_dtype()).unwrap();
        cpu::run(&problem, &a, &b, None, &mut d).unwrap();
        let upload =
            |bytes: &[u8]| DeviceBuffer::from_host(device, bytes, stream.as_ref()).unwrap();
        let poison = vec![0xff; d.bytes().len()];
        Known {
            problem,
            a: upload(a.bytes()),
            b: upload(b.bytes()),
            d: upload(&poison),
            expected: d.bytes().to_vec(),
        }
    }

    pub fn pointers(&self) -> Pointers {
        Pointers::new(self.a.address(), self.b.address(), 0, self.d.address())
    }

    pub fn poison(&mut self, stream: &Stream) {
        self.d.fill_u8(0, self.expected.len(), 0xff, stream.as_ref()).unwrap();
        stream.synchronize().unwrap();
    }

    pub fn check(&self, stream: &Stream) {
        let mut found = vec![0; self.expected.len()];
        self.d.copy_to_host(0, &mut found, stream.as_ref()).unwrap();
        assert!(found == self.expected, "{:?}", self.problem);
    }
}

pub fn engine(device: &Device, spec: &str) -> (Config, Spec, Engine) {
    let spec: Spec = spec.parse().unwrap();
    let config = Config::for_spec(spec);
    let gemm = Gemm::create(device, config.clone()).unwrap();
    let typical = Problem::new(512, 512, 512, Major::K, b_major(&spec));
    (config, spec, Engine::start(&gemm, &typical, EngineOptions::default()).unwrap())
}

pub fn b_major(spec: &Spec) -> Major {
    match spec.b_major {
        pgemm_ir::OperandMajor::K => Major::K,
        pgemm_ir::OperandMajor::Mn => Major::N,
    }
}

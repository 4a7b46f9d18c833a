//! Jobs with a bias and an activation, within the derived bounds; and a bias that changes from job
//! to job.

use std::time::Duration;

use persistent_gemm::driver::{DeviceBuffer, Stream};
use persistent_gemm::engine::{Engine, EngineOptions, Goal};
use persistent_gemm::{
    Accumulation, BiasAlong, Config, Dtype, ErrorModel, Gemm, HostMatrix, Major, MatrixLayout,
    Pointers, Problem, Reference, cpu,
};

use crate::device::device;

const LONG: Duration = Duration::from_secs(5);

fn random(layout: MatrixLayout, dtype: Dtype, seed: u64) -> HostMatrix {
    let mut matrix = HostMatrix::zeros(layout, dtype).unwrap();
    matrix.fill_normal(seed);
    matrix
}

#[test]
fn epilogues_of_jobs_are_inside_the_bound() {
    let Some(device) = device("epilogues_of_jobs_are_inside_the_bound") else { return };
    let stream = Stream::new(&device).unwrap();
    let upload = |bytes: &[u8]| DeviceBuffer::from_host(&device, bytes, stream.as_ref()).unwrap();
    let configs = [
        Config::new(Dtype::Bf16),
        Config::new(Dtype::F16).with_output(Dtype::F32),
        Config::new(Dtype::Tf32),
        Config::new(Dtype::E4m3),
    ];
    for config in configs {
        for (goal, epilogue) in [
            (Goal::Throughput, "bias_n|gelu"),
            (Goal::Throughput, "bias_m|silu"),
            (Goal::Throughput, "relu"),
            (Goal::Throughput, "bias_n|clamp(-0.5,2)"),
            (Goal::Latency, "bias_n|silu"),
            (Goal::Latency, "bias_m"),
            (Goal::Latency, "gelu"),
        ] {
            let config = config.clone().with_epilogue(epilogue.parse().unwrap());
            let gemm = Gemm::create(&device, config.clone()).unwrap();
            let typical = Problem::new(512, 512, 512, Major::K, Major::K);
            let options = EngineOptions { goal, ..EngineOptions::default() };
            let engine = Engine::start(&gemm, &typical, options).unwrap();
            for (m, n, k, beta) in
                [(512, 512, 512, 0.0), (200, 176, 304, -0.5), (64, 1024, 128, 1.0)]
            {
                let problem =
                    Problem::new(m, n, k, Major::K, Major::K).with_alpha(0.75).with_beta(beta);
                let a = random(problem.a_layout(), config.dtype, 1);
                let b = random(problem.b_layout(), config.dtype, 2);
                let c = random(problem.c_layout(), config.output_dtype(), 3);
                let length = config.epilogue.bias_length(m, n);
                let bias =
                    random(MatrixLayout::row_major(1, length.max(1)), config.bias_dtype(), 4);
                let mut d = HostMatrix::zeros(problem.d_layout(), config.output_dtype()).unwrap();
                let on_device = [&a, &b, &c, &d, &bias].map(|matrix| upload(matrix.bytes()));
                let [a_at, b_at, c_at, d_at, bias_at] =
                    on_device.each_ref().map(|one| one.address());
                let pointers = Pointers::new(a_at, b_at, c_at, d_at).with_bias(bias_at);
                let job = engine.prepare(&problem, &pointers).unwrap();
                // SAFETY: the buffers outlive the work, which is waited for.
                unsafe { engine.submit(&job) }.unwrap().wait_timeout(LONG).unwrap();
                on_device[3].copy_to_host(0, d.bytes_mut(), stream.as_ref()).unwrap();
                let c = Some(&c).filter(|_| beta != 0.0);
                let bias = Some(&bias).filter(|_| length > 0);
                let reference =
                    Reference::with_epilogue(&problem, (&a, &b, c), config.epilogue, bias).unwrap();
                let accumulation = Accumulation::of(engine.spec()).of_random_signs();
                let model = ErrorModel { accumulation, a: config.dtype, b: config.dtype };
                let comparison = reference.compare(&d, &model).unwrap();
                assert!(comparison.passed, "{} {problem:?}: {comparison}", engine.spec());
            }
            println!("{}", engine.spec());
        }
    }
}

/// What an SM has in its L1 of a bias must not outlive the job.
#[test]
fn a_bias_may_change_from_job_to_job() {
    let Some(device) = device("a_bias_may_change_from_job_to_job") else { return };
    let stream = Stream::new(&device).unwrap();
    let config = Config::new(Dtype::Bf16).with_output(Dtype::F32);
    let config = config.with_epilogue("bias_n".parse().unwrap());
    assert_eq!(config.epilogue.bias(), Some(BiasAlong::N));
    let gemm = Gemm::create(&device, config.clone()).unwrap();
    let problem = Problem::new(256, 256, 64, Major::K, Major::K);
    let options = EngineOptions { idle: Duration::from_millis(50), ..EngineOptions::default() };
    let engine = Engine::start(&gemm, &problem, options).unwrap();
    let matrix = |layout, seed| {
        let mut matrix = HostMatrix::zeros(layout, config.dtype).unwrap();
        matrix.fill_integers(seed, 2);
        matrix
    };
    let (a, b) = (matrix(problem.a_layout(), 1), matrix(problem.b_layout(), 2));
    let mut product = HostMatrix::zeros(problem.d_layout(), Dtype::F32).unwrap();
    cpu::run(&problem, &a, &b, None, &mut product).unwrap();
    let upload = |bytes: &[u8]| DeviceBuffer::from_host(&device, bytes, stream.as_ref()).unwrap();
    let (a, b, d) = (upload(a.bytes()), upload(b.bytes()), upload(product.bytes()));
    let mut bias = upload(&[0; 256 * 4]);
    let pointers =
        Pointers::new(a.address(), b.address(), 0, d.address()).with_bias(bias.address());
    let job = engine.prepare(&problem, &pointers).unwrap();
    let mut found = product.clone();
    for round in 0..200 {
        let value = round as f32;
        let bytes: Vec<u8> = std::iter::repeat_n(value.to_le_bytes(), 256).flatten().collect();
        bias.copy_from_host(0, &bytes, stream.as_ref()).unwrap();
        // SAFETY: the buffers outlive the work, which is waited for.
        unsafe { engine.submit(&job) }.unwrap().wait_timeout(LONG).unwrap();
        d.copy_to_host(0, found.bytes_mut(), stream.as_ref()).unwrap();
        let both = found.to_f64_vec().into_iter().zip(product.to_f64_vec());
        let wrong = both.clone().filter(|(found, product)| *found != product + f64::from(value));
        assert_eq!(wrong.count(), 0, "in round {round}");
    }
    println!("{} launches", engine.launches());
    let null = Pointers::new(a.address(), b.address(), 0, d.address());
    let error = engine.prepare(&problem, &null).unwrap_err().to_string();
    assert!(error.contains("the bias"), "{error}");
}

//! A problem's matrices on the device, without C, and what came out.

use persistent_gemm::driver::{DeviceBuffer, Stream, StreamRef};
use persistent_gemm::{
    Accumulation, Comparison, Config, ErrorModel, HostMatrix, MatrixLayout, Pointers, Problem,
    Reference,
};

/// What the matrices hold.
#[derive(Clone, Copy, Debug)]
pub enum Fill {
    /// Rounding depends on the order of the sum.
    Normal,
    /// Small enough that every sum is exact in binary32.
    Integers,
}

/// Matrices that live until they are dropped, which waits for the work on them.
pub struct MatrixSet {
    config: Config,
    problem: Problem,
    fill: Fill,
    a: HostMatrix,
    b: HostMatrix,
    device_a: DeviceBuffer,
    device_b: DeviceBuffer,
    device_d: DeviceBuffer,
}

impl MatrixSet {
    /// Fills A and B from the seed, and D with NaN.
    pub fn new(
        config: &Config,
        problem: &Problem,
        fill: Fill,
        seed: u64,
        stream: &Stream,
    ) -> MatrixSet {
        let matrix = |layout: MatrixLayout, seed| {
            let mut matrix = HostMatrix::zeros(layout, config.dtype).unwrap();
            match fill {
                Fill::Normal => matrix.fill_normal(seed),
                Fill::Integers => matrix.fill_integers(seed, 3),
            }
            matrix
        };
        let (a, b) =
            (matrix(problem.a_layout(), 2 * seed), matrix(problem.b_layout(), 2 * seed + 1));
        let d = HostMatrix::zeros(problem.d_layout(), config.output_dtype()).unwrap();
        let upload = |matrix: &HostMatrix| {
            DeviceBuffer::from_host(stream.device(), matrix.bytes(), stream.as_ref()).unwrap()
        };
        let (device_a, device_b, device_d) = (upload(&a), upload(&b), upload(&d));
        let (config, problem) = (config.clone(), *problem);
        let mut operands = MatrixSet { config, problem, fill, a, b, device_a, device_b, device_d };
        operands.poison(stream.as_ref());
        operands
    }

    /// The addresses.
    pub fn pointers(&self) -> Pointers {
        let (a, b) = (self.device_a.address(), self.device_b.address());
        Pointers::new(a, b, 0, self.device_d.address())
    }

    /// Fills D with NaN, after the work on the stream.
    pub fn poison(&mut self, stream: StreamRef<'_>) {
        let bytes = self.device_d.bytes();
        self.device_d.fill_u8(0, bytes, 0xff, stream).unwrap();
    }

    /// D after the work on the stream.
    pub fn result(&self, stream: StreamRef<'_>) -> HostMatrix {
        let mut d = HostMatrix::zeros(self.problem.d_layout(), self.config.output_dtype()).unwrap();
        self.device_d.copy_to_host(0, d.bytes_mut(), stream).unwrap();
        d
    }

    /// A result beside the reference: the same where sums are exact, else inside the derived bound.
    pub fn compare(&self, d: &HostMatrix) -> Comparison {
        let reference = Reference::new(&self.problem, &self.a, &self.b, None).unwrap();
        match self.fill {
            Fill::Integers => reference.compare_exact(d).unwrap(),
            Fill::Normal => {
                let model = ErrorModel::new(Accumulation::TensorCore, self.config.dtype);
                reference.compare(d, &model).unwrap()
            }
        }
    }

    /// Fails unless D is right after the work on the stream.
    pub fn check(&self, stream: StreamRef<'_>) {
        let comparison = self.compare(&self.result(stream));
        assert!(comparison.passed, "{:?}\n{comparison}", self.problem);
    }
}

//! The first product: host matrices on whatever is there, and where that is a Hopper GPU, matrices
//! on the device too.
//!
//! `cargo run --release -p persistent-gemm --example first_gemm`

use persistent_gemm::host::{BackendKind, Executor, multiply};
use persistent_gemm::{
    Config, DeviceMatrix, Dtype, Error, Gemm, HostMatrix, Major, Operands, Problem, Reference,
};

fn main() -> Result<(), Error> {
    // D = A·B: A is 300×100 and row-major (its k dimension is contiguous), B is 100×200 and
    // row-major too.
    let problem = Problem::new(300, 200, 100, Major::K, Major::N);
    let mut a = HostMatrix::zeros(problem.a_layout(), Dtype::Bf16)?;
    let mut b = HostMatrix::zeros(problem.b_layout(), Dtype::Bf16)?;
    // Small integers, so that sums are exact.
    a.fill_integers(1, 3);
    b.fill_integers(2, 3);
    let config = Config::new(Dtype::Bf16).with_output(Dtype::F32);
    let reference = Reference::new(&problem, &a, &b, None)?;

    // CUDA on a Hopper device, else the CPU.
    let executor = BackendKind::Auto.find(0)?;
    let inputs = Operands::new(&a, &b);
    let product = multiply(&executor, &config, &problem, inputs)?;
    let comparison = reference.compare_exact(&product.d)?;
    println!("{executor}: {comparison}");
    assert!(comparison.passed, "the product is wrong");

    let device = match executor {
        Executor::Cuda(device) => device,
        Executor::Cpu { because: Some(reason) } => {
            println!("no product on a device: {reason}");
            return Ok(());
        }
        _ => return Ok(()),
    };
    // What a program does again and again: matrices stay on the device, and work is enqueued on a
    // stream.
    let gemm = Gemm::create(&device, config)?;
    let stream = gemm.stream();
    let on_device = [&a, &b].map(|matrix| DeviceMatrix::upload(matrix, stream));
    let [a, b] = on_device;
    let (a, b) = (a?, b?);
    let mut d = DeviceMatrix::zeros(problem.d_layout(), Dtype::F32, stream)?;
    gemm.run(&problem, Operands::new(&a, &b), &mut d, &stream)?;
    gemm.sync()?;
    let comparison = reference.compare_exact(&d.download(stream)?)?;
    println!("matrices on the device: {comparison}");
    assert!(comparison.passed, "the product on the device is wrong");
    Ok(())
}

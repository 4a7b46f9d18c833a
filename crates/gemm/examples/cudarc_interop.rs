//! Products in a program that uses cudarc: its context, streams and buffers.
//!
//! `cargo run --release -p persistent-gemm --example cudarc_interop`

use persistent_gemm::driver::Device;
use persistent_gemm::interop::bf16;
use persistent_gemm::interop::cudarc::driver::CudaContext;
use persistent_gemm::{Config, Dtype, Gemm, Major, Operands, Problem};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // cudarc panics where there is no driver; this says why there is none.
    if let Err(error) = Device::new(0) {
        println!("cudarc's buffers are a GPU's, and there is none: {error}");
        return Ok(());
    }
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let gemm = Gemm::create(&Device::from_cudarc(&context)?, Config::new(Dtype::Bf16))?;

    let (m, n, k) = (128, 96, 64);
    let problem = Problem::new(m, n, k, Major::K, Major::N);
    let value = |index: usize| bf16::from_f32((index % 3) as f32 - 1.0);
    let a: Vec<bf16> = (0..m * k).map(value).collect();
    let b: Vec<bf16> = (0..k * n).map(|index| value(index / 7)).collect();
    let (on_a, on_b) = (stream.clone_htod(&a)?, stream.clone_htod(&b)?);
    // The second half of a longer buffer.
    let mut results = stream.alloc_zeros::<bf16>(2 * m * n)?;
    gemm.run(&problem, Operands::new(&on_a, &on_b), &mut results.slice_mut(m * n..), &stream)?;
    // And once more, added to what is there: D = A·B + D.
    let plus = problem.with_beta(1.0);
    gemm.run(&plus, Operands::new(&on_a, &on_b), &mut results.slice_mut(m * n..), &stream)?;

    let found = stream.clone_dtoh(&results)?;
    for row in 0..m {
        for column in 0..n {
            let products =
                (0..k).map(|depth| a[row * k + depth].to_f32() * b[depth * n + column].to_f32());
            let expected = 2.0 * products.sum::<f32>();
            assert_eq!(found[m * n + row * n + column].to_f32(), expected, "({row}, {column})");
        }
    }
    assert!(found[..m * n].iter().all(|&value| value == bf16::ZERO));

    // A buffer that is too short, or of another type, is refused.
    let refused = gemm.run(&problem, Operands::new(&on_a.slice(1..), &on_b), &mut results, &stream);
    println!("right; and a short buffer is refused: {}", refused.expect_err("it is too short"));
    Ok(())
}

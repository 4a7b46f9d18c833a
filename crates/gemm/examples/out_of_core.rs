//! A product of host matrices in less device memory than they take.
//!
//! `cargo run --release -p persistent-gemm --example out_of_core [-- SIZE [MEBIBYTES]]`

use persistent_gemm::driver::Device;
use persistent_gemm::outofcore::Budget;
use persistent_gemm::{Config, Dtype, Error, Gemm, HostMatrix, Major, Operands, Problem, cpu};

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let mut argument = |usual| arguments.next().and_then(Result::ok).unwrap_or(usual);
    let (size, mebibytes) = (argument(2048), argument(16));

    let problem = Problem::new(size, size, size, Major::K, Major::N);
    let integers = |layout, seed| -> Result<HostMatrix, Error> {
        let mut matrix = HostMatrix::zeros(layout, Dtype::F32)?;
        matrix.fill_integers(seed, 1);
        Ok(matrix)
    };
    let (mut a, mut b) = (integers(problem.a_layout(), 1)?, integers(problem.b_layout(), 2)?);
    let mut d = HostMatrix::zeros(problem.d_layout(), Dtype::F32)?;

    let device = match Device::new(0) {
        Ok(device) => device,
        Err(error) => {
            println!("device memory is a GPU's, and there is none: {error}");
            cpu::run(&problem, &a, &b, None, &mut d)?;
            println!("on the CPU: the first element is {:?}", d.get(0, 0));
            return Ok(());
        }
    };
    // Matrices that are used more than once are worth pinning: the device then copies them by
    // itself.
    for matrix in [&mut a, &mut b, &mut d] {
        matrix.pin(&device)?;
    }
    let gemm = Gemm::create(&device, Config::new(Dtype::F32))?;
    let budget = Budget::new((mebibytes as u64) << 20);
    let operands = Operands::new(&a, &b);
    let mut shown = 0;
    let report = gemm.multiply_host(&problem, operands, &mut d, &budget, &mut |progress| {
        let tenths = 10 * progress.done / progress.products;
        if tenths > shown {
            shown = tenths;
            println!("{} of {} products of blocks", progress.done, progress.products);
        }
    })?;
    println!("{report}");

    // Each element is a sum of integers, and exact.
    let value = |matrix: &HostMatrix, row, column| matrix.get(row, column).unwrap_or(f64::NAN);
    for sample in 0..200 {
        let (row, column) = (sample * 6841 % size, sample * 7919 % size);
        let products = (0..size).map(|depth| value(&a, row, depth) * value(&b, depth, column));
        assert_eq!(value(&d, row, column), products.sum::<f64>(), "({row}, {column})");
    }
    println!("200 elements are right");
    Ok(())
}

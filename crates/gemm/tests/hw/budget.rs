//! The device memory that products by blocks take.

use std::cell::Cell;

use persistent_gemm::outofcore::Budget;
use persistent_gemm::{Config, Dtype, Gemm, HostMatrix, Major, Operands, Problem};

use crate::device::device;
use crate::outofcore::integers;

#[test]
fn the_device_gives_no_more_memory_than_the_budget_says() {
    let Some(device) = device("the_device_gives_no_more_memory") else { return };
    let config = Config::new(Dtype::F32);
    let problem = Problem::new(6000, 6000, 3000, Major::K, Major::N);
    let (a, b) =
        (integers(problem.a_layout(), Dtype::F32, 1), integers(problem.b_layout(), Dtype::F32, 2));
    let mut d = HostMatrix::zeros(problem.d_layout(), Dtype::F32).unwrap();
    let gemm = Gemm::create(&device, config).unwrap();
    let operands = Operands::new(&a, &b);
    // Kernels are loaded once.
    let budget = Budget::new(64 << 20);
    gemm.multiply_host(&problem, operands, &mut d, &budget, &mut |_| {}).unwrap();
    let before = device.free_memory_bytes().unwrap();
    let least = Cell::new(before);
    gemm.multiply_host(&problem, operands, &mut d, &budget, &mut |_| {
        least.set(least.get().min(device.free_memory_bytes().unwrap()));
    })
    .unwrap();
    let taken = before - least.get();
    println!(
        "{} MiB of device memory taken, of {} allowed",
        taken >> 20,
        budget.device_bytes >> 20
    );
    // The driver gives memory by pieces of 2 MiB.
    assert!(taken <= budget.device_bytes + (4 << 20), "{taken}");
    assert!(device.free_memory_bytes().unwrap() + (4 << 20) >= before);
}

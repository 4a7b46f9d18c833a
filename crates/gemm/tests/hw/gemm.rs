//! GEMMs on the device against the reference: every kernel of the catalogue, and what random
//! products do not have. Integers as results are compared exactly, whatever the operands hold.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use persistent_gemm::driver::Device;
use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::{
    Config, Dtype, HostMatrix, Major, Operands, Plan, Precision, Problem, Split,
};
use pgemm_ir::OperandMajor;
use pgemm_kernels::{OutputMajor, Spec, catalogue};

use crate::check::{Fill, check};
use crate::device::device;
use crate::shard::shard;

/// Multiply-adds in binary32 in the order of k, bit for bit, whichever kernel computes them, as
/// long as tiles are whole.
#[test]
fn singles_are_added_up_along_k() {
    let Some(device) = device("singles_are_added_up_along_k") else { return };
    let problem = Problem::new(300, 520, 777, Major::M, Major::N);
    let filled = |layout, seed| {
        let mut matrix = HostMatrix::zeros(layout, Dtype::F32).unwrap();
        matrix.fill_normal(seed);
        matrix
    };
    let (a, b) = (filled(problem.a_layout(), 1), filled(problem.b_layout(), 2));
    let single = |matrix: &HostMatrix, row, column| matrix.get(row, column).unwrap() as f32;
    let sum = |row, column| {
        (0..777)
            .fold(0f32, |sum, depth| single(&a, row, depth).mul_add(single(&b, depth, column), sum))
    };
    let expected: Vec<f64> = (0..300)
        .flat_map(|row| (0..520).map(move |column| (row, column)))
        .map(|(row, column)| f64::from(sum(row, column)))
        .collect();
    for plan in Plan::candidates(&problem, &Config::new(Dtype::F32), 132).unwrap() {
        let config = Config::for_choice(plan.choice()).with_split(Split::Whole);
        let executor = Executor::Cuda(device.clone());
        let inputs = Operands::new(&a, &b);
        let product = multiply(&executor, &config, &problem, inputs).unwrap();
        assert!(product.d.to_f64_vec() == expected, "{}", plan.spec);
    }
}

#[test]
fn every_kernel_of_the_catalogue() {
    let Some(device) = device("every_kernel_of_the_catalogue") else { return };
    let count = check_kernels(&device, catalogue::all());
    println!("{count} kernels of the catalogue are correct on the device");
}

#[test]
fn every_kernel_that_is_shipped() {
    let Some(device) = device("every_kernel_that_is_shipped") else { return };
    let specs = pgemm_cubins::list().filter_map(|(name, _)| name.parse().ok());
    let count = check_kernels(&device, specs);
    println!("{count} kernels that are shipped are correct on the device");
}

/// Checks kernels with one problem each, and returns their number.
fn check_kernels(device: &Device, specs: impl Iterator<Item = Spec>) -> usize {
    let specs: Vec<(usize, Spec)> = shard(specs.filter(has_plain_operands).enumerate());
    // Compiling takes most of the time. The driver compiles on several threads at once, but better
    // in several processes.
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(index, spec)) = specs.get(index) else { return };
            let (problem, fill) = ragged_problem(&spec, index);
            let ways = [Split::Whole, Split::StreamK, Split::SplitK(2), Split::SplitK(3)];
            let split = if spec.is_direct() { Split::Whole } else { ways[index % ways.len()] };
            let unordered = index % 11 == 3;
            let config = Config::for_spec(spec).with_split(split).with_unordered(unordered);
            let comparison = check(device, &config, &problem, index as u64, fill);
            assert!(comparison.passed, "{spec} {split}: {problem:?}\n{comparison}");
        }
    };
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(work);
        }
    });
    specs.len()
}

/// Whether a kernel's operands are as matrices lie; `hw_terms` has the others.
fn has_plain_operands(spec: &Spec) -> bool {
    spec.terms().is_none() && !spec.scaled
}

/// A problem of a few ragged tiles; every other one with C and exact.
fn ragged_problem(spec: &Spec, index: usize) -> (Problem, Fill) {
    let (m, n) = (spec.tile.m as usize * 2 + 24, spec.tile.n as usize * 2 + 40);
    // Lines of D that TMA moves.
    let line = 16 / spec.output.bytes() as usize;
    let (m, n) = (m.next_multiple_of(line), n.next_multiple_of(line));
    // A column-major D is that of a problem whose operands are exchanged.
    let (a_major, b_major) = spec.majors();
    let (m, n, of_a, of_b) = match spec.d_major {
        OutputMajor::N => (m, n, a_major, b_major),
        OutputMajor::M => (n, m, b_major, a_major),
    };
    let a_major = if of_a == OperandMajor::K { Major::K } else { Major::M };
    let b_major = if of_b == OperandMajor::K { Major::K } else { Major::N };
    // A few stages and a part of one, and rows of whole 16 bytes: these are of every type. Sums in
    // f16 stay exact.
    let most = if Precision::of(spec) == Precision::F16 { 3 } else { 5 };
    let k = spec.tile.k as usize * (2 + index % most) + 16;
    let problem = Problem::new(m, n, k, a_major, b_major);
    if index.is_multiple_of(2) {
        (problem, Fill::Random)
    } else {
        (problem.with_alpha(2.0).with_beta(-1.0), Fill::Integers)
    }
}

#[test]
fn several_tiles_of_each_cta_in_ragged_raster_groups() {
    let Some(device) = device("several_tiles_of_each_cta") else { return };
    for (sms, raster_rows) in [(device.properties().sm_count, 3), (5, 1), (1, 7), (16, 100)] {
        let problem = Problem::new(2000, 1816, 328, Major::K, Major::N).with_beta(1.0);
        for split in [Split::Whole, Split::StreamK] {
            let (sms, raster_rows) = (Some(sms), Some(raster_rows));
            let config = Config::new(Dtype::Bf16)
                .with_sms(sms)
                .with_raster_rows(raster_rows)
                .with_split(split);
            let comparison = check(&device, &config, &problem, 5, Fill::Integers);
            assert!(comparison.passed, "{config:?}\n{comparison}");
        }
    }
}

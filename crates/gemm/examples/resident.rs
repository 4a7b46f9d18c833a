//! Many small products through a kernel that stays on the device: no launch for each, and they
//! overlap.
//!
//! `cargo run --release -p persistent-gemm --example resident`

use std::time::Instant;

use persistent_gemm::driver::{Device, DeviceBuffer};
use persistent_gemm::engine::{Engine, EngineOptions};
use persistent_gemm::{Config, Dtype, Error, Gemm, HostMatrix, Major, Pointers, Problem, cpu};

const PRODUCTS: usize = 500;

fn main() -> Result<(), Error> {
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(error) => {
            println!("engines are a GPU's, and there is none: {error}");
            return Ok(());
        }
    };
    let gemm = Gemm::create(&device, Config::new(Dtype::Bf16))?;
    let problem = Problem::new(128, 128, 256, Major::K, Major::K);
    let engine = Engine::start(&gemm, &problem, EngineOptions::default())?;

    let matrix = |layout, seed| -> Result<HostMatrix, Error> {
        let mut matrix = HostMatrix::zeros(layout, Dtype::Bf16)?;
        matrix.fill_integers(seed, 2);
        Ok(matrix)
    };
    let (a, b) = (matrix(problem.a_layout(), 1)?, matrix(problem.b_layout(), 2)?);
    let a_there = DeviceBuffer::from_host(&device, a.bytes(), gemm.stream())?;
    let b_there = DeviceBuffer::from_host(&device, b.bytes(), gemm.stream())?;
    let mut d = HostMatrix::zeros(problem.d_layout(), Dtype::Bf16)?;
    let outputs = (0..PRODUCTS).map(|_| DeviceBuffer::new(&device, d.bytes().len()));
    let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
    // A job is prepared once and submitted as often as wanted.
    let jobs = outputs.iter().map(|output| {
        let pointers = Pointers::new(a_there.address(), b_there.address(), 0, output.address());
        engine.prepare(&problem, &pointers)
    });
    let jobs = jobs.collect::<Result<Vec<_>, _>>()?;

    let begin = Instant::now();
    // SAFETY: the buffers hold what the problem describes, nobody else uses them, and they live
    // until all jobs are done.
    let tickets = unsafe { engine.submit_all(&jobs) }?;
    for ticket in &tickets {
        ticket.wait()?;
    }
    println!("{PRODUCTS} products in {:.0} µs", begin.elapsed().as_secs_f64() * 1e6);

    let mut expected = HostMatrix::zeros(problem.d_layout(), Dtype::Bf16)?;
    cpu::run(&problem, &a, &b, None, &mut expected)?;
    for output in &outputs {
        output.copy_to_host(0, d.bytes_mut(), gemm.stream())?;
        assert_eq!(d, expected);
    }
    println!("all right");
    engine.stop()
}

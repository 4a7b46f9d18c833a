//! Two products on two streams, a third that needs both, and how long all of it took: events order
//! streams and measure time.
//!
//! `cargo run --release -p persistent-gemm --example streams_and_events`

use persistent_gemm::driver::{Device, Event, Stream, Timing};
use persistent_gemm::{
    Config, DeviceMatrix, Dtype, Error, Gemm, HostMatrix, Major, Operands, Problem, cpu,
};

const SIZE: usize = 512;

fn main() -> Result<(), Error> {
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(error) => {
            println!("streams are a GPU's, and there is none: {error}");
            return Ok(());
        }
    };
    let problem = Problem::new(SIZE, SIZE, SIZE, Major::K, Major::K);
    let config = Config::new(Dtype::F32);
    let random = |layout, seed| -> Result<HostMatrix, Error> {
        let mut matrix = HostMatrix::zeros(layout, Dtype::F32)?;
        matrix.fill_integers(seed, 1);
        Ok(matrix)
    };
    let a = random(problem.a_layout(), 1)?;
    let bs = [random(problem.b_layout(), 2)?, random(problem.b_layout(), 3)?];

    let gemm = Gemm::create(&device, config)?;
    // Compiled before anything is timed.
    gemm.prepare(&problem)?;
    let streams = [Stream::new(&device)?, Stream::new(&device)?];
    let [first, second] = &streams;
    let on_device = DeviceMatrix::upload(&a, first.as_ref())?;
    let zeros =
        |stream: &Stream| DeviceMatrix::zeros(problem.d_layout(), Dtype::F32, stream.as_ref());
    let (mut x, mut y, mut sum) = (zeros(first)?, zeros(second)?, zeros(first)?);
    let b = [
        DeviceMatrix::upload(&bs[0], first.as_ref())?,
        DeviceMatrix::upload(&bs[1], second.as_ref())?,
    ];

    let (start, end) =
        (Event::new(&device, Timing::Enabled)?, Event::new(&device, Timing::Enabled)?);
    let halfway = Event::new(&device, Timing::Disabled)?;
    start.record(first.as_ref())?;
    // X = A·B₀ and Y = A·B₁ at the same time,
    gemm.run(&problem, Operands::new(&on_device, &b[0]), &mut x, first)?;
    gemm.run(&problem, Operands::new(&on_device, &b[1]), &mut y, second)?;
    // and A·B₀ + Y once both are there.
    halfway.record(second.as_ref())?;
    first.as_ref().wait(&halfway)?;
    let plus = problem.with_beta(1.0);
    gemm.run(&plus, Operands::new(&on_device, &b[0]).c(&y), &mut sum, first)?;
    end.record(first.as_ref())?;
    end.synchronize()?;
    println!("three products of {SIZE}³ on two streams: {:.3} ms", end.elapsed_ms(&start)?);

    let expected = |b: &HostMatrix| -> Result<Vec<f64>, Error> {
        let mut d = HostMatrix::zeros(problem.d_layout(), Dtype::F32)?;
        cpu::run(&problem, &a, b, None, &mut d)?;
        Ok(d.to_f64_vec())
    };
    let (of_x, of_y) = (expected(&bs[0])?, expected(&bs[1])?);
    let of_sum: Vec<f64> = of_x.iter().zip(&of_y).map(|(x, y)| x + y).collect();
    for (name, matrix, expected) in [("X", &x, of_x), ("Y", &y, of_y), ("X + Y", &sum, of_sum)] {
        assert_eq!(matrix.download(first.as_ref())?.to_f64_vec(), expected, "{name}");
        println!("{name} is right");
    }
    Ok(())
}

//! A chain of products, captured once and launched again and again, with other data each time.
//!
//! `cargo run --release -p persistent-gemm --example graph_capture`

use persistent_gemm::driver::{Device, DeviceBuffer, Graph};
use persistent_gemm::{Config, Dtype, Error, Gemm, HostMatrix, Major, Pointers, Problem, cpu};

/// Y = (X·W)·W, of 64 rows.
const ROWS: usize = 64;
const WIDTH: usize = 256;

fn main() -> Result<(), Error> {
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(error) => {
            println!("graphs are a GPU's, and there is none: {error}");
            return Ok(());
        }
    };
    let problem = Problem::new(ROWS, WIDTH, WIDTH, Major::K, Major::N);
    let config = Config::new(Dtype::F32);
    let gemm = Gemm::create(&device, config)?;
    // Nothing can be compiled while a stream is captured.
    gemm.prepare(&problem)?;

    let stream = gemm.stream();
    let mut w = HostMatrix::zeros(problem.b_layout(), Dtype::F32)?;
    w.fill_integers(1, 1);
    let weights = DeviceBuffer::from_host(&device, w.bytes(), stream)?;
    let bytes = ROWS * WIDTH * 4;
    let mut x = DeviceBuffer::new(&device, bytes)?;
    let (hidden, y) = (DeviceBuffer::new(&device, bytes)?, DeviceBuffer::new(&device, bytes)?);
    let layers = [
        Pointers::new(x.address(), weights.address(), 0, hidden.address()),
        Pointers::new(hidden.address(), weights.address(), 0, y.address()),
    ];
    // SAFETY: the buffers hold what the problem describes, and live, as the `Gemm` does, until the
    // last launch was waited for.
    let mut graph = unsafe {
        Graph::capture(&device, stream, |stream| {
            layers.iter().try_for_each(|pointers| gemm.run_at(&problem, pointers, stream))
        })
    }?;

    for seed in 10..13 {
        let mut input = HostMatrix::zeros(problem.a_layout(), Dtype::F32)?;
        input.fill_integers(seed, 1);
        x.copy_from_host(0, input.bytes(), stream)?;
        graph.launch(stream)?;
        let mut output = HostMatrix::zeros(problem.d_layout(), Dtype::F32)?;
        y.copy_to_host(0, output.bytes_mut(), stream)?;

        let mut expected = HostMatrix::zeros(problem.d_layout(), Dtype::F32)?;
        cpu::run(&problem, &input, &w, None, &mut expected)?;
        let hidden = expected.clone();
        cpu::run(&problem, &hidden, &w, None, &mut expected)?;
        assert_eq!(output, expected, "seed {seed}");
        println!("launch with the data of seed {seed}: right");
    }
    Ok(())
}

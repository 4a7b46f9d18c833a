//! Times what the library does before the driver or `ptxas` compiles a kernel, for the kernels of
//! `docs/languages.md`:
//!
//! ```sh
//! cargo run --release -p pgemm-examples --example compile_times -- FOLDER
//! ```
//!
//! `FOLDER` gets the PTX of each kernel, for `ptxas -arch=sm_90a`.

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use persistent_gemm::Result;
use persistent_gemm::program::Program;
use pgemm_examples::attention::Attention;
use pgemm_examples::dual_gemm::DualGemm;
use pgemm_examples::{gemm, softmax};

const RUNS: usize = 5;

/// A kernel by its name, and how it is described (`saxpy` is read from a file) and checked.
type Build = (&'static str, fn() -> Result<Program>);

const KERNELS: [Build; 6] = [
    ("saxpy", || Program::load_file(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/saxpy.kernel"))),
    ("softmax", || softmax::softmax(4096)),
    ("gemm", gemm::gemm),
    ("ping_pong", gemm::ping_pong),
    ("dual_gemm", || DualGemm::new().map(|kernel| kernel.program)),
    ("attention", || Attention::new(128, true).program()),
];

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let folder: PathBuf = std::env::args_os().nth(1).ok_or("name a folder for the PTX")?.into();
    std::fs::create_dir_all(&folder)?;
    println!("the least of {RUNS} runs, in ms; lines are those of the PTX");
    println!("{:10} {:>18} {:>8} {:>8}", "kernel", "describe and check", "PTX", "lines");
    for (name, build) in KERNELS {
        let (mut described, mut written, mut lines) = (f64::INFINITY, f64::INFINITY, 0);
        for _ in 0..RUNS {
            let start = Instant::now();
            let program = build()?;
            described = described.min(start.elapsed().as_secs_f64() * 1e3);
            let start = Instant::now();
            let ptx = program.ptx()?;
            written = written.min(start.elapsed().as_secs_f64() * 1e3);
            lines = ptx.lines().count();
            std::fs::write(folder.join(name).with_extension("ptx"), ptx)?;
        }
        println!("{name:10} {described:18.1} {written:8.1} {lines:8}");
    }
    Ok(())
}

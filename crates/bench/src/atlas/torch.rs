//! torch as a [`Library`]: a Python program that multiplies in a process of its own. It gets the
//! data of the pool, so its operands are the same values in sets of the same size, and what it
//! computes is held against the same reference.

use std::cell::RefCell;
use std::env;
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use persistent_gemm::driver::Device;
use persistent_gemm::measure::Elements;
use pgemm_ir::Element;
use pgemm_plan::{Major, Problem};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::grid::{Grid, Sample};
use super::library::{Candidate, Library, Remote, Runner};
use super::peer::TORCH;
use crate::cublaslt_facts::CublasLtVersion;
use crate::error::{BenchError, Result};
use crate::names::{named_problem, problem_name};
use crate::pool::Sets;
use crate::pooled::Operands;
use crate::worker::{Worker, WorkerError};

/// The environment variable that names the Python interpreter.
pub const INTERPRETER: &str = "PGEMM_PYTHON";

const PROGRAM: &str = include_str!("torch/program.py");

/// Processes that are started, one after another, if they end by themselves.
const STARTS: u32 = 4;

/// How long importing torch and allocating memory may take, and anything else. A slice takes less
/// than a second, if it is not asked for longer ones.
const LIMIT: Duration = Duration::from_secs(180);

/// torch of one Python installation on one device.
#[derive(Debug)]
pub(super) struct Torch {
    launcher: Launcher,
    facts: Facts,
    process: RefCell<Process>,
}

/// How the program is started.
#[derive(Debug)]
struct Launcher {
    interpreter: OsString,
    program: String,
    /// The device's UUID.
    device: String,
    /// How long an answer may take.
    limit: Duration,
}

/// What the program says about itself.
#[derive(Debug, Deserialize)]
struct Facts {
    torch: String,
    cuda: Option<String>,
    cublaslt: Option<CublasLtVersion>,
    python: String,
}

/// The running program.
#[derive(Debug)]
struct Process {
    worker: Worker,
    /// Types of A and B, and bytes of everything, of the pool whose data it has.
    pool: Option<([Element; 2], [usize; 3])>,
    starts: u32,
}

impl Torch {
    /// Starts Python and imports torch.
    ///
    /// # Errors
    /// [`BenchError::NoTorch`].
    pub(super) fn open(device: &Device) -> Result<Torch> {
        Torch::start(Launcher {
            interpreter: env::var_os(INTERPRETER).unwrap_or_else(|| "python3".into()),
            program: PROGRAM.to_owned(),
            device: device.properties().uuid_text(),
            limit: LIMIT,
        })
    }

    fn start(launcher: Launcher) -> Result<Torch> {
        let no_torch = |cause| BenchError::NoTorch { cause: Box::new(cause) };
        let (worker, facts) = launcher.start().map_err(no_torch)?;
        let process = RefCell::new(Process { worker, pool: None, starts: 1 });
        Ok(Torch { launcher, facts, process })
    }

    fn ask<A: DeserializeOwned>(&self, request: &Value) -> Result<A, WorkerError> {
        self.process.borrow_mut().worker.ask(request, &[], self.launcher.limit)
    }

    /// Starts the program again if it has ended, and gives it the data of a pool if it lacks them:
    /// what A's and B's repeat, and bytes of A, of B and of D.
    fn prepare(
        &self,
        elements: Elements,
        data: [&[u8]; 2],
        bytes: [usize; 3],
    ) -> Result<(), WorkerError> {
        let mut process = self.process.borrow_mut();
        if process.worker.is_over() {
            if process.starts >= STARTS {
                let why = format!("its process ended {STARTS} times and is not started again");
                return Err(WorkerError::Failed(why));
            }
            process.starts += 1;
            process.pool = None;
            process.worker = self.launcher.start()?.0;
        }
        let pool = Some(([elements.a, elements.b], bytes));
        if process.pool != pool {
            let ([a, b, d], periods) = (bytes, data.map(<[u8]>::len));
            let request =
                json!({ "do": "pool", "a": [periods[0], a], "b": [periods[1], b], "d": d });
            process.pool = None;
            process.worker.ask::<Done>(&request, &data, self.launcher.limit)?;
            process.pool = pool;
        }
        Ok(())
    }

    /// Takes up a problem. Returns the name of torch's function.
    fn take_up(
        &self,
        problem: &Problem,
        elements: Elements,
        sets: &Sets,
    ) -> Result<String, WorkerError> {
        #[derive(Deserialize)]
        struct Prepared {
            operation: String,
        }

        let matrix = |element: Element, [rows, columns]: [usize; 2], transposed, bytes: usize| {
            json!({
                "type": element.name(),
                "rows": rows,
                "columns": columns,
                "transposed": transposed,
                "set_bytes": bytes,
            })
        };
        let Problem { m, n, k, .. } = *problem;
        let Prepared { operation } = self.ask(&json!({
            "do": "prepare",
            "a": matrix(elements.a, [m, k], problem.a.major == Major::M, sets.a),
            "b": matrix(elements.b, [k, n], problem.b.major == Major::K, sets.b),
            "d": matrix(elements.d, [m, n], problem.d_major == Major::M, sets.d),
            "batch": problem.batch.count,
            "precision": elements.precision.name(),
            "sets": sets.count,
        }))?;
        Ok(operation)
    }
}

impl Launcher {
    /// Starts the program and asks it who it is.
    fn start(&self) -> Result<(Worker, Facts), WorkerError> {
        let mut command = Command::new(&self.interpreter);
        command.arg("-c").arg(&self.program).env("CUDA_VISIBLE_DEVICES", &self.device);
        // Modules are not looked for in the folder that the user happens to be in.
        command.env("PYTHONSAFEPATH", "1");
        let mut worker = Worker::start(command)?;
        let facts = worker.ask(&json!({ "do": "hello" }), &[], self.limit)?;
        Ok((worker, facts))
    }
}

/// An answer that says no more than that it is done.
#[derive(Deserialize)]
struct Done {}

impl Library for Torch {
    fn name(&self) -> &'static str {
        TORCH
    }

    fn version(&self) -> String {
        let Facts { torch, cuda, cublaslt, python } = &self.facts;
        let cuda = cuda.as_ref().map_or_else(String::new, |cuda| format!(", CUDA {cuda}"));
        let cublaslt = cublaslt.map_or_else(String::new, |of| format!(", cuBLASLt {of}"));
        format!("torch {torch}{cuda}{cublaslt}, Python {python}")
    }

    fn cublaslt(&self) -> Option<CublasLtVersion> {
        self.facts.cublaslt
    }

    fn place(&self) -> String {
        self.launcher.interpreter.to_string_lossy().into_owned()
    }

    fn candidates<'o>(&'o self, operands: &'o Operands<'o>) -> Result<Vec<Candidate<'o>>> {
        let Operands { pool, sets, problem } = operands;
        let elements = pool.elements();
        if named_problem(&problem_name(problem, elements), elements).is_none() {
            let why = "torch gets matrices without gaps only, and neither a C nor scalars";
            return Err(WorkerError::Refused(why.to_owned()).into());
        }
        self.prepare(elements, pool.periods(), pool.bytes())?;
        let operation = self.take_up(problem, elements, sets)?;
        let runner = Runner::Elsewhere(Box::new(Product { torch: self }));
        Ok(vec![Candidate { rank: None, algorithm: Some(operation), details: None, runner }])
    }
}

/// The product that the program has taken up.
struct Product<'a> {
    torch: &'a Torch,
}

impl Remote for Product<'_> {
    fn sample(&mut self, grid: &Grid) -> Result<Sample> {
        #[derive(Deserialize)]
        struct Checked {
            unwritten: usize,
            products: Vec<String>,
        }

        let [rows, columns] = grid.places();
        let products = grid.products();
        let request =
            json!({ "do": "check", "rows": rows, "columns": columns, "products": products });
        let Checked { unwritten, products } = self.torch.ask(&request)?;
        let products = products.iter().map(|digits| bytes_of(digits)).collect::<Option<_>>();
        let products = products.ok_or_else(|| {
            let why = "its answer holds elements of D that are not hexadecimal digits";
            WorkerError::Failed(why.to_owned())
        })?;
        Ok(Sample { unwritten, products })
    }

    fn use_graph(&mut self, gemms: u64) -> Result<()> {
        let Done {} = self.torch.ask(&json!({ "do": "graph", "gemms": gemms }))?;
        Ok(())
    }

    fn slice(&mut self, gemms: u64) -> Result<f64> {
        #[derive(Deserialize)]
        struct Slice {
            seconds: f64,
        }

        let Slice { seconds } = self.torch.ask(&json!({ "do": "slice", "gemms": gemms }))?;
        if seconds > 0.0 {
            return Ok(seconds);
        }
        let why = format!("{gemms} products took {seconds} s by its own clock");
        Err(WorkerError::Failed(why).into())
    }
}

/// The bytes of hexadecimal digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|&[high, low]| u8::try_from(value(high)? * 16 + value(low)?).ok()).collect()
}

#[cfg(test)]
mod tests;

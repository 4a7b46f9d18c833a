//! Rows of `benchmarks/results`: lines of JSON, each run's line followed by a line for each
//! problem. `benchmarks/README.md` describes the format.

use std::collections::HashMap;

use persistent_gemm::error::FileDamage;
use pgemm_ir::Element;
use serde::Deserialize;

use super::{
    ComparisonRow, ErrorRow, ErrorsOf, MethodRow, PeerRow, ProblemRow, Reader, Run, Spread,
    StreamRow, TunedRow, types_of,
};
use crate::atlas::{FASTEST, FIRST_PICK, Fault, Population, TORCH};
use crate::names::parsed_name;
use crate::roofline::Medians;
use crate::stream::Method;

/// The version of the format.
const FORMAT: u32 = 1;

/// The line of a run.
#[derive(Deserialize)]
struct RunLine {
    format: u32,
    run: String,
    date: String,
    #[serde(default)]
    command: String,
    device: Option<String>,
    driver: Option<String>,
    cuda: Option<String>,
    cublaslt: Option<String>,
    version: Option<String>,
    power_limit_watts: Option<f64>,
    note: Option<String>,
}

/// A line of results. Which fields it has depends on what was measured.
#[derive(Deserialize)]
struct Line {
    run: String,
    problem: Option<String>,
    launch: Option<String>,
    contestants: Option<Vec<Contestant>>,
    population: Option<Population>,
    label: Option<String>,
    kernel: Option<String>,
    us: Option<Value>,
    ratio: Option<Value>,
    peer_us: Option<f64>,
    algorithm: Option<String>,
    best: Option<Spread>,
    best_us: Option<f64>,
    best_algorithm: Option<String>,
    torch: Option<Spread>,
    torch_us: Option<f64>,
    torch_algorithm: Option<String>,
    #[serde(default)]
    faults: Vec<FaultLine>,
    count: Option<usize>,
    ways: Option<Vec<Way>>,
    values: Option<String>,
    results: Option<Vec<ErrorsLine>>,
    heuristic: Option<String>,
    chosen: Option<String>,
    #[serde(default)]
    trials: serde_json::Value,
    ceiling: Option<String>,
    gb_per_s: Option<Value>,
    tflops: Option<Value>,
}

/// A number, or several.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Value {
    One(f64),
    Two([f64; 2]),
    Three(Spread),
}

impl Value {
    fn spread(self) -> Spread {
        match self {
            Value::One(value) => [value; 3],
            Value::Two([low, high]) => [low, low.midpoint(high), high],
            Value::Three(spread) => spread,
        }
    }
}

#[derive(Deserialize)]
struct Contestant {
    name: Option<String>,
    kernel: Option<String>,
    picked_by: Option<String>,
    algorithm: Option<String>,
    ratio: Option<Value>,
    us: Option<f64>,
    joules: Option<Value>,
    mhz: Option<f64>,
}

#[derive(Deserialize)]
struct FaultLine {
    who: String,
    algorithm: Option<String>,
    #[serde(default)]
    wrong: bool,
    #[serde(default)]
    refused: bool,
    why: String,
}

#[derive(Deserialize)]
struct Way {
    name: String,
    way: Method,
    us: Option<Spread>,
}

#[derive(Deserialize)]
struct ErrorsLine {
    name: String,
    normwise: f64,
    elementwise: f64,
    bias: f64,
    of_bound: Option<f64>,
}

/// Whether a file that begins with this line has the compact format.
pub(super) fn begins(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Format {
        #[serde(rename = "format")]
        _format: u32,
    }
    serde_json::from_slice::<Format>(line).is_ok()
}

impl Reader {
    pub(super) fn add_compact(
        &mut self,
        text: &[u8],
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<(), FileDamage> {
        // The index of each run, or `None` if it is not wanted.
        let mut runs: HashMap<String, Option<usize>> = HashMap::new();
        for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            if begins(line) {
                let line: RunLine = serde_json::from_slice(line)?;
                if line.format != FORMAT {
                    return Err(FileDamage::Schema { found: line.format, needed: FORMAT });
                }
                let name = line.run.clone();
                let index = wanted(&name).then(|| self.add_run(line.into()));
                runs.insert(name, index);
                continue;
            }
            let line: Line = serde_json::from_slice(line)?;
            match runs.get(&line.run) {
                Some(&Some(run)) => self.add_line(run, line),
                Some(None) => {}
                None => return Err(FileDamage::NoRun { run: line.run }),
            }
        }
        Ok(())
    }

    /// Adds a line. Lines of other kinds, such as counters and surveys, have no rows.
    fn add_line(&mut self, run: usize, line: Line) {
        if let Some(ceiling) = &line.ceiling {
            self.add_ceiling(run, ceiling, &line);
            return;
        }
        let Some(name) = line.problem.clone() else { return };
        let collection = &mut self.collection;
        if let (Some(values), Some(results)) = (&line.values, &line.results) {
            collection.errors.push(ErrorRow {
                run,
                types: types_of(&name).to_owned(),
                problem: name,
                values: values.clone(),
                results: results.iter().map(ErrorsLine::row).collect(),
            });
            return;
        }
        if let (Some(Value::Two(us)), Some(ratio)) = (line.us, line.ratio) {
            collection.comparisons.push(ComparisonRow::new(run, &name, us, ratio.spread()));
            return;
        }
        let Some((problem, elements)) = parsed_name(&name) else { return };
        if let (Some(count), Some(ways)) = (line.count, &line.ways) {
            let operations = problem.operations().unwrap_or(0);
            let methods = ways.iter().filter_map(Way::row).collect();
            collection.streams.push(StreamRow { run, problem: name, count, operations, methods });
            return;
        }
        if let (Some(picked), Some(chosen)) = (&line.heuristic, &line.chosen) {
            collection.tuned.push(TunedRow {
                run,
                types: types_of(&name).to_owned(),
                problem: name,
                m: problem.m,
                n: problem.n,
                k: problem.k,
                picked: picked.clone(),
                chosen: chosen.clone(),
                ratio: line.ratio.map(Value::spread),
                trials: line.trials.as_array().map_or(0, Vec::len),
            });
            return;
        }
        let row = self.row(run, &name, &problem, elements);
        let row = match (&line.contestants, line.population) {
            (Some(contestants), _) => pair(row, &line, contestants),
            (None, Some(population)) => Some(of_atlas(row, line, population)),
            (None, None) => None,
        };
        self.collection.problems.extend(row);
    }

    /// Adds a ceiling: of memory, of a type of operands, or one that bounds no problem here.
    fn add_ceiling(&mut self, run: usize, ceiling: &str, line: &Line) {
        if self.ceilings_run != Some(run) {
            (self.ceilings, self.ceilings_run) = (Medians::default(), Some(run));
        }
        let median = |rate: Option<Value>| rate.map(|rate| rate.spread()[1]);
        match (ceiling.parse::<Element>(), median(line.gb_per_s), median(line.tflops)) {
            (Ok(element), _, Some(rate)) => drop(self.ceilings.arithmetic.insert(element, rate)),
            (Err(_), Some(rate), _) if ceiling == "memory" => self.ceilings.add_memory(rate),
            _ => {}
        }
    }
}

/// The row of a pair: of the planner's or the tuner's pick, or else of the first kernel.
fn pair(row: ProblemRow, line: &Line, contestants: &[Contestant]) -> Option<ProblemRow> {
    let kernels = || contestants.iter().filter(|contestant| contestant.kernel.is_some());
    let ours = kernels().find(|one| one.picked_by.is_some()).or_else(|| kernels().next())?;
    let peer = contestants.iter().find(|contestant| contestant.kernel.is_none());
    let peer = peer.zip(ours.ratio).and_then(|(peer, ratio)| {
        Some(PeerRow {
            name: peer.name.clone()?,
            us: peer.us?,
            ratio: ratio.spread(),
            joules: peer.joules.map(|joules| joules.spread()[1]),
            algorithm: peer.algorithm.clone(),
        })
    });
    Some(ProblemRow {
        launch: line.launch.clone(),
        kernel: ours.kernel.clone(),
        us: ours.us,
        joules: ours.joules.map(|joules| joules.spread()[1]),
        mhz: ours.mhz,
        peers: peer.into_iter().collect(),
        ..row
    })
}

fn of_atlas(row: ProblemRow, line: Line, population: Population) -> ProblemRow {
    let peers = [
        (FIRST_PICK, line.ratio.map(Value::spread), line.peer_us, line.algorithm),
        (FASTEST, line.best, line.best_us, line.best_algorithm),
        (TORCH, line.torch, line.torch_us, line.torch_algorithm),
    ];
    let peers = peers.into_iter().filter_map(|(name, ratio, us, algorithm)| {
        Some(PeerRow { name: name.to_owned(), us: us?, ratio: ratio?, joules: None, algorithm })
    });
    ProblemRow {
        group: population.name().to_owned(),
        launch: line.launch,
        kernel: line.kernel,
        label: line.label,
        us: line.us.map(|us| us.spread()[1]),
        peers: peers.collect(),
        faults: line.faults.into_iter().map(FaultLine::fault).collect(),
        ..row
    }
}

impl From<RunLine> for Run {
    fn from(line: RunLine) -> Run {
        Run {
            name: line.run,
            kind: None,
            date: line.date,
            command: line.command,
            device: line.device,
            driver: line.driver,
            cuda: line.cuda,
            cublaslt: line.cublaslt,
            version: line.version,
            power_limit_watts: line.power_limit_watts,
            note: line.note,
        }
    }
}

impl Way {
    fn row(&self) -> Option<MethodRow> {
        let (contestant, method) = (self.name.clone(), self.way);
        Some(MethodRow { contestant, method, us: self.us? })
    }
}

impl ErrorsLine {
    fn row(&self) -> ErrorsOf {
        ErrorsOf {
            name: self.name.clone(),
            normwise: self.normwise,
            elementwise: self.elementwise,
            bias: self.bias,
            of_bound: self.of_bound,
            within_bound: None,
            not_finite: None,
        }
    }
}

impl FaultLine {
    fn fault(self) -> Fault {
        let (who, rank) = match self.who.split_once(" #") {
            Some((who, rank)) => (who.to_owned(), rank.parse().ok()),
            None => (self.who, None),
        };
        let FaultLine { algorithm, wrong, refused, why, .. } = self;
        Fault { who, rank, algorithm, wrong, refused, why }
    }
}

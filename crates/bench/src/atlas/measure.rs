//! [`Atlas`]: measures problems quickly, one after the other: verifies each contestant on a grid of
//! D's elements, then times all of them together.

use std::sync::Arc;

use persistent_gemm::driver::StreamRef;
use persistent_gemm::measure::{
    Contestant, Elements, LaunchMode, MeasureError, Measurement, Protocol, SliceTimer, error_model,
    matrix_bytes, measure,
};
use persistent_gemm::stats::Summary;
use persistent_gemm::tune::Picks;
use persistent_gemm::{Gemm, HostMatrix, Pointers, Prepared, Reference};
use pgemm_plan::{Config, Major, MatrixLayout, Problem};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::population::{AtlasProblem, Population};
use super::regime::Regime;
use crate::bench::Bench;
use crate::cublaslt::{CublasLt, CublasLtPlan};
use crate::error::Result;
use crate::names::{choice_name, problem_name};
use crate::pool::{OperandPool, Sets};

/// One row in so many, and one column in so many, belong to the grid of verified elements.
const GRID_STEP: usize = 32;

/// Most multiplications that the reference of a grid takes.
const GRID_PRODUCTS: usize = 1 << 27;

/// The name of cuBLASLt's first pick as a contestant, and of its fastest candidate.
pub const FIRST_PICK: &str = "cuBLASLt";
/// See [`FIRST_PICK`].
pub const FASTEST: &str = "cuBLASLt best";

/// The contestant of a row that is this library.
const OURS: &str = "persistent-gemm";

/// How the problems of an atlas are measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtlasOptions {
    /// Seconds of launches of each problem, warm-up included.
    pub seconds: f64,
    /// Whether all of cuBLASLt's candidates take part, to find the fastest.
    pub best: bool,
}

/// The measurement of one problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtlasRow {
    /// The population and the index in it.
    pub population: Population,
    /// See [`AtlasProblem::index`].
    pub index: usize,
    /// What the problem is part of. `None` if it was drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The name that [`problem_name`](crate::problem_name) returns.
    pub problem: String,
    /// What bounds its time on an ideal device.
    pub regime: Regime,
    /// How launches reached the GPU. `None` if nothing was timed.
    pub launch: Option<LaunchMode>,
    /// Our kernel, as `--also` of `pgemm bench` takes it. `None` if there was none.
    pub kernel: Option<String>,
    /// Microseconds of our product. `None` if it was not timed.
    pub us: Option<f64>,
    /// The peer's contestants that computed right results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<AtlasPeer>,
    /// Contestants that did not run or computed wrong results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

/// A contestant that a row compares our kernel with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtlasPeer {
    /// [`FIRST_PICK`] or [`FASTEST`].
    pub name: String,
    /// The candidate's place in the order of cuBLASLt's heuristic. The first pick is not 0 if
    /// candidates before it computed wrong results.
    pub rank: usize,
    /// Microseconds of its product.
    pub us: f64,
    /// Its time over ours, smallest, median and largest of all rounds: above 1 ours is faster.
    pub ratio: [f64; 3],
}

/// A contestant that did not run, or computed a wrong result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// `persistent-gemm`, or `cuBLASLt #` and the candidate's place.
    pub who: String,
    /// Whether it ran, and computed a wrong result.
    pub wrong: bool,
    /// The error, or the worst element.
    pub why: String,
}

impl AtlasRow {
    /// The peer's time over ours, if both were timed.
    pub fn ratio(&self, peer: &str) -> Option<f64> {
        self.peers.iter().find(|contestant| contestant.name == peer).map(|peer| peer.ratio[1])
    }

    /// Whether our result is wrong.
    pub fn is_wrong(&self) -> bool {
        self.faults.iter().any(|fault| fault.wrong && fault.who == OURS)
    }

    /// How many of the peer's candidates computed wrong results.
    pub fn wrong_peers(&self) -> usize {
        self.faults.iter().filter(|fault| fault.wrong && fault.who != OURS).count()
    }
}

/// Measures the problems of one set of element types on one device.
pub struct Atlas<'a> {
    bench: &'a Bench,
    peer: Option<&'a CublasLt>,
    gemm: Gemm,
    options: AtlasOptions,
    pool: OperandPool,
}

impl<'a> Atlas<'a> {
    /// Allocates operands for these problems. Tuned choices are not used.
    ///
    /// # Errors
    /// A knob of the config is impossible; driver errors.
    pub fn new(
        bench: &'a Bench,
        peer: Option<&'a CublasLt>,
        (config, elements): (Config, Elements),
        options: AtlasOptions,
        problems: &[AtlasProblem],
    ) -> Result<Atlas<'a>> {
        let device = bench.device();
        let mut bytes = [0; 3];
        for AtlasProblem { problem, .. } in problems {
            let sets = Sets::of(problem, elements, device.properties().l2_bytes)?;
            for (all, of_problem) in bytes.iter_mut().zip(sets.bytes()) {
                *all = of_problem.max(*all);
            }
        }
        let pool = OperandPool::new(device, elements, bytes, bench.stream())?;
        let gemm = Gemm::with_picks(device, config, Arc::new(Picks::default()))?;
        Ok(Atlas { bench, peer, gemm, options, pool })
    }

    /// Measures a problem.
    ///
    /// # Errors
    /// Errors of the device, after which nothing can be measured. A contestant that cannot run is
    /// not an error: the row says why.
    pub fn measure(&self, population: Population, at: &AtlasProblem) -> Result<AtlasRow> {
        let problem = &at.problem;
        let elements = self.pool.elements();
        let l2_bytes = self.bench.device().properties().l2_bytes;
        let operands =
            Operands { pool: &self.pool, sets: Sets::of(problem, elements, l2_bytes)?, problem };
        let mut row = AtlasRow {
            population,
            index: at.index,
            label: at.label.clone(),
            problem: problem_name(problem, elements),
            regime: Regime::of(problem, elements)?,
            launch: None,
            kernel: None,
            us: None,
            peers: Vec::new(),
            faults: Vec::new(),
        };
        let grid = Grid::new(&operands)?;
        let mut ours = match self.gemm.prepare(problem) {
            Ok(prepared) => {
                row.kernel = Some(choice_name(prepared.plan()));
                let ours = Ours { gemm: &self.gemm, prepared, operands: &operands };
                self.verified(ours, &grid, &operands, &mut row.faults)?
            }
            Err(error) => {
                self.survived()?;
                row.faults.push(Fault { who: OURS.into(), wrong: false, why: error.to_string() });
                None
            }
        };
        let mut theirs = self.theirs(&grid, &operands, &mut row.faults)?;

        let ranks: Vec<usize> = theirs.iter().map(|candidate| candidate.rank).collect();
        let mut everybody: Vec<&mut dyn Contestant> = Vec::new();
        everybody.extend(ours.as_mut().map(|ours| ours as &mut dyn Contestant));
        let own = everybody.len();
        everybody.extend(theirs.iter_mut().map(|candidate| candidate as &mut dyn Contestant));
        if everybody.is_empty() {
            return Ok(row);
        }
        let protocol = Protocol::quick(self.options.seconds, everybody.len());
        let mut timer = SliceTimer::new(self.bench, &mut everybody, operands.sets.count)?;
        let measurement = measure(&mut timer, &protocol)?;
        row.launch = Some(measurement.launch);
        if own > 0 {
            row.us = microseconds(&measurement, 0);
            row.peers = peers(&measurement, &ranks, self.options.best);
        }
        drop(timer);
        // The workspace of this problem is not needed again.
        self.gemm.trim()?;
        Ok(row)
    }

    /// cuBLASLt's candidates that compute right results: its first, or all of them if the fastest
    /// is wanted.
    fn theirs<'o>(
        &self,
        grid: &Grid,
        operands: &'o Operands<'o>,
        faults: &mut Vec<Fault>,
    ) -> Result<Vec<Theirs<'o>>> {
        let Some(library) = self.peer else { return Ok(Vec::new()) };
        let plan = match library.plan(operands.problem, operands.pool.elements(), 0) {
            Ok(plan) => Arc::new(plan),
            Err(error) => {
                let who = FIRST_PICK.to_owned();
                faults.push(Fault { who, wrong: false, why: error.to_string() });
                return Ok(Vec::new());
            }
        };
        let mut right = Vec::new();
        for rank in 0..plan.candidates().len() {
            let name = format!("{FIRST_PICK} #{rank}");
            let candidate = Theirs { plan: Arc::clone(&plan), rank, name, operands };
            right.extend(self.verified(candidate, grid, operands, faults)?);
            if !right.is_empty() && !self.options.best {
                break;
            }
        }
        Ok(right)
    }

    /// The contestant, if it computes a right result. Otherwise the fault is noted.
    fn verified<C: Contestant>(
        &self,
        mut contestant: C,
        grid: &Grid,
        operands: &Operands<'_>,
        faults: &mut Vec<Fault>,
    ) -> Result<Option<C>> {
        let stream = self.bench.stream();
        let set = operands.sets.count - 1;
        operands.pool.poison(&operands.sets, set, stream)?;
        let (wrong, why) = match contestant.enqueue(set, stream) {
            Ok(()) => match grid.finding(operands, stream)? {
                Some(finding) => (true, finding),
                None => return Ok(Some(contestant)),
            },
            Err(error) => {
                self.survived()?;
                (false, error.to_string())
            }
        };
        faults.push(Fault { who: contestant.name().to_owned(), wrong, why });
        Ok(None)
    }

    /// An error if the device no longer works. A kernel that has broken the context has broken it
    /// for all.
    fn survived(&self) -> Result<()> {
        Ok(self.bench.stream().synchronize()?)
    }
}

/// Median microseconds of a contestant's product.
fn microseconds(measurement: &Measurement, contestant: usize) -> Option<f64> {
    let seconds = Summary::of(&measurement.seconds_per_gemm(contestant))?;
    Some(rounded(seconds.median * 1e6))
}

/// Five significant digits: more than a measurement of this kind has.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

/// The first of the peer's candidates and, if it is wanted, the fastest. Ours is contestant 0, and
/// the candidates of these ranks follow.
fn peers(measurement: &Measurement, ranks: &[usize], best: bool) -> Vec<AtlasPeer> {
    let all: Vec<AtlasPeer> = ranks
        .iter()
        .enumerate()
        .filter_map(|(index, &rank)| {
            let ratio = Summary::of(&measurement.ratios(0, index + 1))?;
            Some(AtlasPeer {
                name: FIRST_PICK.to_owned(),
                rank,
                us: microseconds(measurement, index + 1)?,
                ratio: [ratio.min, ratio.median, ratio.max].map(rounded),
            })
        })
        .collect();
    let fastest = all.iter().min_by(|a, b| a.us.total_cmp(&b.us)).filter(|_| best);
    let fastest = fastest.map(|peer| AtlasPeer { name: FASTEST.to_owned(), ..peer.clone() });
    all.first().cloned().into_iter().chain(fastest).collect()
}

/// The operands of one problem.
struct Operands<'a> {
    pool: &'a OperandPool,
    sets: Sets,
    problem: &'a Problem,
}

/// Our kernel.
struct Ours<'a> {
    gemm: &'a Gemm,
    prepared: Arc<Prepared>,
    operands: &'a Operands<'a>,
}

impl Contestant for Ours<'_> {
    fn name(&self) -> &str {
        OURS
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        let at = self.operands.pool.addresses(&self.operands.sets, set);
        let pointers = Pointers::new(at.a, at.b, at.c, at.d);
        // SAFETY: the pool, on this device, holds the matrices of every set and outlives the atlas's
        // work, which is waited for.
        Ok(unsafe { self.gemm.run_at(&self.prepared, &pointers, stream) }?)
    }
}

/// One of cuBLASLt's candidates.
struct Theirs<'a> {
    plan: Arc<CublasLtPlan>,
    rank: usize,
    name: String,
    operands: &'a Operands<'a>,
}

impl Contestant for Theirs<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        let addresses = self.operands.pool.addresses(&self.operands.sets, set);
        // SAFETY: the addresses are those of matrices of the plan's problem, which outlive the
        // atlas's work; all of it is on this stream, and is waited for.
        Ok(unsafe { self.plan.enqueue(self.rank, &addresses, stream) }?)
    }
}

/// The elements of D that are compared with a reference: those of some rows and some columns, in
/// the first and the last product of the last operand set. Every 32 rows and columns have one of
/// each, in a random place, so a tile that is missing or lacks a part of k is found. All of D is
/// looked through for elements that were not written.
struct Grid {
    rows: Vec<usize>,
    columns: Vec<usize>,
    /// The reference of each product, with the product's number.
    references: Vec<(usize, Reference)>,
}

impl Grid {
    fn new(operands: &Operands<'_>) -> Result<Grid> {
        let Operands { pool, sets, problem } = operands;
        let one = problem.one();
        let [rows, columns] = grid([one.m, one.n], one.k);
        let last = problem.batch.count.saturating_sub(1);
        let products = if last == 0 { vec![0] } else { vec![0, last] };
        let elements = pool.elements();
        let part = Problem::new(rows.len(), columns.len(), one.k, Major::K, Major::N);
        let reference = |product: usize| -> Result<_> {
            let set = sets.count - 1;
            let start = |set_bytes: usize, stride: usize, element: pgemm_ir::Element| {
                set * set_bytes + product * stride * element.bytes() as usize
            };
            let batch = problem.batch;
            let starts = [start(sets.a, batch.a, elements.a), start(sets.b, batch.b, elements.b)];
            let [a, b] = pool.gather(&one, starts, &rows, &columns)?;
            Ok((product, Reference::new(&part, &a, &b, None)?))
        };
        let references = products.into_iter().map(reference).collect::<Result<_>>()?;
        Ok(Grid { rows, columns, references })
    }

    /// What is wrong with the last set's D on the device, if anything is.
    fn finding(&self, operands: &Operands<'_>, stream: StreamRef<'_>) -> Result<Option<String>> {
        let Operands { pool, sets, problem } = operands;
        let elements = pool.elements();
        let [.., d_bytes] = matrix_bytes(problem, elements)?;
        let mut bytes = vec![0; d_bytes];
        pool.read(sets, sets.count - 1, &mut bytes, stream)?;
        self.finding_in(&bytes, problem, elements)
    }

    /// The same for a D of all products whose elements are these.
    fn finding_in(
        &self,
        bytes: &[u8],
        problem: &Problem,
        elements: Elements,
    ) -> Result<Option<String>> {
        let (layout, batch) = (problem.d_layout(), problem.batch);
        let size = elements.d.bytes() as usize;
        let unwritten = if elements.d.is_float() {
            let poison = |element: &&[u8]| element.iter().all(|&byte| byte == u8::MAX);
            bytes.par_chunks_exact(size).filter(poison).count()
        } else {
            0
        };
        if unwritten > 0 {
            return Ok(Some(format!("{unwritten} elements were not written")));
        }
        let model = error_model(elements);
        for (product, reference) in &self.references {
            let at = MatrixLayout::row_major(self.rows.len(), self.columns.len());
            let mut d = HostMatrix::zeros(at, elements.d)?;
            let places = self
                .rows
                .iter()
                .flat_map(|&row| self.columns.iter().map(move |&column| (row, column)));
            for (place, (row, column)) in d.bytes_mut().chunks_exact_mut(size).zip(places) {
                let offset = product * batch.d + layout.offset(row, column).unwrap_or(0);
                place.copy_from_slice(&bytes[offset * size..][..size]);
            }
            let comparison = reference.compare(&d, &model)?;
            if comparison.passed {
                continue;
            }
            let worst = comparison.worst.map_or_else(String::new, |worst| {
                let (row, column) = (self.rows[worst.row], self.columns[worst.column]);
                format!(
                    "; element ({row}, {column}) of product {product} is {} instead of {}",
                    worst.computed, worst.reference
                )
            });
            let (failed, elements) = (comparison.failed, comparison.elements);
            return Ok(Some(format!("{failed} of {elements} elements are wrong{worst}")));
        }
        Ok(None)
    }
}

/// The rows and columns of a grid over D.
fn grid(extents: [usize; 2], k: usize) -> [Vec<usize>; 2] {
    let mut strips = extents.map(|extent| extent.div_ceil(GRID_STEP));
    // The longer side gets sparser first.
    while strips[0] * strips[1] * k.max(1) > GRID_PRODUCTS && strips[0].max(strips[1]) > 1 {
        let longer = usize::from(strips[1] > strips[0]);
        strips[longer] = strips[longer].div_ceil(2);
    }
    [0, 1].map(|side| {
        let (extent, strips) = (extents[side], strips[side]);
        // A multiplicative hash (Knuth): the places only have to be spread.
        let spread = |strip: usize| (strip + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let place = |strip: usize| {
            let (from, to) = (strip * extent / strips, (strip + 1) * extent / strips);
            from + spread(2 * strip + side) % (to - from).max(1)
        };
        let mut places: Vec<usize> = (0..strips).map(place).collect();
        // Both ends of a side are where tiles are cut.
        places.extend([0, extent - 1]);
        places.sort_unstable();
        places.dedup();
        places
    })
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;

    use super::*;

    #[test]
    fn every_tile_has_an_element_of_the_grid_and_so_have_both_ends() {
        for (extents, k) in [([100, 7000], 64), ([1, 33], 5000), ([20_000, 20_000], 750)] {
            let sides = grid(extents, k);
            for (side, extent) in sides.iter().zip(extents) {
                assert_eq!((side[0], side[side.len() - 1]), (0, extent - 1));
                assert!(side.windows(2).all(|pair| pair[0] < pair[1] && pair[1] < extent));
                let apart = side.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
                assert!(apart < 2 * GRID_STEP || extents[0] == 20_000, "{apart}");
            }
            let products = sides[0].len() * sides[1].len() * k;
            assert!(products < 2 * GRID_PRODUCTS, "{products}");
        }
    }

    /// A batch of three products of bf16, right, as bytes, with its grid.
    fn products() -> (Grid, Vec<u8>, Problem, Elements) {
        let problem = Problem::new(200, 160, 48, Major::K, Major::K).with_batch(3);
        let elements = Elements::new(Element::Bf16, Element::Bf16);
        let one = problem.one();
        let [rows, columns] = grid([one.m, one.n], one.k);
        let (mut bytes, mut references) = (Vec::new(), Vec::new());
        for product in 0..3 {
            let random = |layout, seed| {
                let mut matrix = HostMatrix::zeros(layout, Element::Bf16).unwrap();
                matrix.fill_random(seed);
                matrix
            };
            let (a, b) = (random(one.a_layout(), product), random(one.b_layout(), 7 + product));
            let exact = Reference::new(&one, &a, &b, None).unwrap();
            let d = HostMatrix::from_f64(one.d_layout(), Element::Bf16, exact.values()).unwrap();
            bytes.extend_from_slice(d.bytes());
            let value = |matrix: &HostMatrix, row, column| matrix.get(row, column).unwrap();
            let part = Problem::new(rows.len(), columns.len(), one.k, Major::K, Major::N);
            let mut of_rows = HostMatrix::zeros(part.a_layout(), Element::Bf16).unwrap();
            of_rows.fill_with(|row, column| value(&a, rows[row], column));
            let mut of_columns = HostMatrix::zeros(part.b_layout(), Element::Bf16).unwrap();
            of_columns.fill_with(|row, column| value(&b, row, columns[column]));
            let reference = Reference::new(&part, &of_rows, &of_columns, None).unwrap();
            references.push((product as usize, reference));
        }
        references.remove(1);
        (Grid { rows, columns, references }, bytes, problem, elements)
    }

    #[test]
    fn wrong_tiles_and_unwritten_elements_are_found() {
        let (grid, right, problem, elements) = products();
        let finding = |bytes: &[u8]| grid.finding_in(bytes, &problem, elements).unwrap();
        assert_eq!(finding(&right), None);

        // A tile of 64 × 64 elements of the last product that is left at zero.
        let mut zeros = right.clone();
        for row in 128..192 {
            let from = 2 * (2 * 200 * 160 + row * 160 + 64);
            zeros[from..from + 128].fill(0);
        }
        let text = finding(&zeros).unwrap();
        assert!(
            text.contains("elements are wrong; element (") && text.contains("product 2"),
            "{text}"
        );

        let mut unwritten = right;
        unwritten[2 * (200 * 160 + 77)..][..2].fill(u8::MAX);
        assert_eq!(finding(&unwritten).unwrap(), "1 elements were not written");
    }

    #[test]
    fn the_first_right_candidate_is_the_peer_and_the_fastest_its_best() {
        let slice = |contestant, seconds| persistent_gemm::measure::Slice {
            contestant,
            gemms: 10,
            seconds,
            state: Default::default(),
        };
        let measurement = Measurement {
            launch: LaunchMode::Graph,
            gemms_per_slice: vec![10; 3],
            warm_up_seconds: 0.0,
            settled: None,
            rounds: vec![vec![slice(0, 2e-4), slice(1, 3e-4), slice(2, 1e-4)]],
            energy_blocks: vec![],
        };
        let peers = peers(&measurement, &[1, 4], true);
        let [first, fastest] = &peers[..] else { panic!("{peers:?}") };
        assert_eq!((first.name.as_str(), first.rank, first.us), (FIRST_PICK, 1, 30.0));
        assert_eq!((fastest.name.as_str(), fastest.rank, fastest.us), (FASTEST, 4, 10.0));
        assert_eq!((first.ratio, fastest.ratio), ([1.5; 3], [0.5; 3]));
        assert_eq!(microseconds(&measurement, 0), Some(20.0));
    }
}

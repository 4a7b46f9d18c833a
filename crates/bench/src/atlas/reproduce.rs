//! Reproductions of peers' wrong results: [`WrongKind`]s in the rows of a file, and the
//! [`Reproducer`], which looks for a small problem of a kind on a device.

use persistent_gemm::measure::{Elements, matrix_bytes, padded};
use pgemm_plan::{Major, Problem};

use super::finding::Finding;
use super::grid::{Density, Grid};
use super::judge::{Judge, Verdict};
use super::peers::Peers;
use super::report::AtlasFile;
use super::row::{AtlasRow, Fault};
use super::shrink::shrink;
use crate::bench::Bench;
use crate::error::{BenchError, Result};
use crate::names::named_problem;

/// Times that a peer computes a product of a kind: to see that it is wrong, and to shrink it.
const RUNS: usize = 40;

/// Wrong results that have all in common which a library chooses a kernel by: types, majors, and
/// the algorithm if it is known.
#[derive(Clone, Debug, PartialEq)]
pub struct WrongKind {
    /// The library, as faults name it.
    pub library: String,
    /// What ran, in the library's own terms.
    pub algorithm: Option<String>,
    /// Majors of A, of B and of D.
    pub majors: [Major; 3],
    /// The problems, the least work first. There is one at least.
    pub problems: Vec<WrongProblem>,
}

/// A problem that a peer computed wrongly.
#[derive(Clone, Debug, PartialEq)]
pub struct WrongProblem {
    /// The problem.
    pub problem: Problem,
    /// The candidate's place in the order of the library's heuristic, if it has one.
    pub rank: Option<usize>,
}

/// A small problem that a peer computes wrongly.
#[derive(Clone, Debug, PartialEq)]
pub struct Reproduction {
    /// The problem that it was found from.
    pub from: Problem,
    /// The small problem.
    pub problem: Problem,
    /// The candidate's place in the order of the library's heuristic, if it has one.
    pub rank: Option<usize>,
    /// What runs for the small problem, in the library's own terms, if it says so.
    pub algorithm: Option<String>,
    /// All that the library says about it.
    pub details: Option<String>,
    /// What is wrong with D.
    pub finding: Finding,
    /// How often the peer ran.
    pub runs: usize,
}

impl WrongKind {
    /// The kinds of a file, in the order in which they occur.
    ///
    /// # Errors
    /// [`BenchError::ProblemName`] if the name of a problem cannot be read.
    pub fn all(file: &AtlasFile) -> Result<Vec<WrongKind>> {
        let mut kinds: Vec<WrongKind> = Vec::new();
        let wrong = |fault: &&Fault| fault.wrong && !fault.is_ours();
        for (row, fault) in file
            .rows
            .iter()
            .flat_map(|row| row.faults.iter().filter(wrong).map(move |of| (row, of)))
        {
            let problem = problem_of(row, file.head.elements)?;
            let wrong = WrongProblem { problem, rank: fault.rank };
            let majors = [problem.a.major, problem.b.major, problem.d_major];
            let known = kinds.iter_mut().find(|kind| {
                (&kind.library, &kind.algorithm, kind.majors)
                    == (&fault.who, &fault.algorithm, majors)
            });
            match known {
                Some(kind) => kind.problems.push(wrong),
                None => kinds.push(WrongKind {
                    library: fault.who.clone(),
                    algorithm: fault.algorithm.clone(),
                    majors,
                    problems: vec![wrong],
                }),
            }
        }
        for kind in &mut kinds {
            kind.problems.sort_by_key(|wrong| wrong.problem.operations().unwrap_or(u64::MAX));
        }
        Ok(kinds)
    }
}

fn problem_of(row: &AtlasRow, elements: Elements) -> Result<Problem> {
    named_problem(&row.problem, elements)
        .ok_or_else(|| BenchError::ProblemName { name: row.problem.clone() })
}

/// Computes problems of one set of element types with peers until they are small.
pub struct Reproducer<'a> {
    judge: Judge<'a>,
}

impl<'a> Reproducer<'a> {
    /// Allocates operands for these kinds and all smaller problems.
    ///
    /// # Errors
    /// Driver errors.
    pub fn new(
        bench: &'a Bench,
        peers: &'a Peers,
        elements: Elements,
        kinds: &[WrongKind],
    ) -> Result<Reproducer<'a>> {
        let mut bytes = [0; 3];
        for WrongProblem { problem, .. } in kinds.iter().flat_map(|kind| &kind.problems) {
            let [a, b, _, d] = matrix_bytes(problem, elements)?.map(padded);
            for (all, of_problem) in bytes.iter_mut().zip([a, b, d]) {
                *all = of_problem.max(*all);
            }
        }
        // All sets of a problem have up to twice the L2 and one set more, whichever matrix is the
        // largest of a set, and two sets at least.
        let l2_bytes = usize::try_from(bench.device().properties().l2_bytes).unwrap_or(usize::MAX);
        let bytes = bytes
            .map(|of_set: usize| of_set.saturating_add(l2_bytes.saturating_mul(2).max(of_set)));
        Ok(Reproducer { judge: Judge::new(bench, peers, elements, bytes)? })
    }

    /// Looks for a small problem of a kind. `None` if none of its problems is wrong on this device
    /// with these libraries.
    ///
    /// # Errors
    /// [`BenchError::NoSuchLibrary`] if the kind's library is not among the peers, and errors of
    /// the device.
    pub fn reproduce(&self, kind: &WrongKind) -> Result<Option<Reproduction>> {
        for (before, WrongProblem { problem, rank }) in kind.problems.iter().take(RUNS).enumerate()
        {
            let mut smallest = match self.attempt(kind, problem, *rank, Density::Usual)? {
                Attempt::Wrong(wrong) => wrong,
                Attempt::Right => continue,
                Attempt::NotRun(error) => {
                    tracing::warn!(%error, library = %kind.library, "a wrong result is not seen");
                    continue;
                }
            };
            let mut broken = None;
            // One run was for this problem, and one counts the wrong elements.
            let runs = RUNS.saturating_sub(before + 2);
            let (small, shrinking) = shrink(problem, runs, |candidate| {
                if broken.is_some() {
                    return false;
                }
                match self.attempt(kind, candidate, *rank, Density::Usual) {
                    Ok(Attempt::Wrong(wrong)) => {
                        smallest = wrong;
                        return true;
                    }
                    Ok(Attempt::Right | Attempt::NotRun(_)) => {}
                    Err(error) => broken = Some(error),
                }
                false
            });
            if let Some(error) = broken {
                return Err(error);
            }
            if let Attempt::Wrong(wrong) = self.attempt(kind, &small, *rank, Density::Whole)? {
                smallest = wrong;
            }
            let runs = before + 2 + shrinking;
            return Ok(Some(Reproduction { from: *problem, runs, ..*smallest }));
        }
        Ok(None)
    }

    /// Computes a problem with the candidate at this place of the library's order.
    fn attempt(
        &self,
        kind: &WrongKind,
        problem: &Problem,
        rank: Option<usize>,
        density: Density,
    ) -> Result<Attempt> {
        let Some(library) = self.judge.peers.library(&kind.library) else {
            return Err(BenchError::NoSuchLibrary { name: kind.library.clone() });
        };
        let operands = self.judge.operands(problem)?;
        let candidates = match library.candidates(&operands) {
            Ok(candidates) => candidates,
            Err(error) => return Ok(Attempt::NotRun(error)),
        };
        let count = candidates.len();
        let Some(mut candidate) = candidates.into_iter().find(|of| of.rank == rank) else {
            let requested = rank.unwrap_or(0);
            return Ok(Attempt::NotRun(BenchError::NoSuchCandidate { requested, count }));
        };
        let grid = Grid::new(&operands, density)?;
        Ok(match self.judge.verdict(&mut candidate.runner, &grid, &operands)? {
            Verdict::Wrong(finding) => Attempt::Wrong(Box::new(Reproduction {
                from: *problem,
                problem: *problem,
                rank,
                algorithm: candidate.algorithm,
                details: candidate.details,
                finding,
                runs: 1,
            })),
            Verdict::Right => Attempt::Right,
            Verdict::NotRun(error) => Attempt::NotRun(error),
        })
    }
}

/// What became of a run of a peer.
enum Attempt {
    Wrong(Box<Reproduction>),
    Right,
    NotRun(BenchError),
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;

    use super::super::measure::AtlasOptions;
    use super::super::peer::{FIRST_PICK, TORCH};
    use super::super::population::Population;
    use super::super::regime::Regime;
    use super::super::report::AtlasHead;
    use super::super::row::OURS;
    use super::*;
    use crate::machine::Machine;

    fn file(rows: &[(&str, &str, Option<usize>, Option<&str>)]) -> AtlasFile {
        let head = AtlasHead::new(
            Machine::example(),
            Elements::new(Element::Bf16, Element::Bf16),
            (1, vec![]),
            vec![],
            AtlasOptions { seconds: 0.5 },
        );
        let mut file = AtlasFile::new(None, head);
        for (index, &(problem, who, rank, algorithm)) in rows.iter().enumerate() {
            let fault = Fault {
                who: who.into(),
                rank,
                algorithm: algorithm.map(str::to_owned),
                wrong: true,
                refused: false,
                why: "1 of 9 elements are wrong".into(),
            };
            let row = AtlasRow {
                population: Population::Any,
                index,
                label: None,
                problem: problem.into(),
                regime: Regime::Compute,
                launch: None,
                kernel: None,
                us: None,
                peers: vec![],
                faults: vec![Fault { wrong: false, ..fault.clone() }, fault],
            };
            file.push(row).unwrap();
        }
        file
    }

    #[test]
    fn wrong_results_are_grouped_and_the_least_work_comes_first() {
        let kernel = Some("66/20/36/3/1");
        let kinds = WrongKind::all(&file(&[
            ("bf16 mn 4553x167x509", FIRST_PICK, Some(0), kernel),
            ("bf16 kk 64x64x64", FIRST_PICK, Some(0), kernel),
            ("bf16 mn 45x16x9*3", FIRST_PICK, Some(2), kernel),
            ("bf16 mn 45x16x9", TORCH, None, None),
            ("bf16 mn 8x8x8", FIRST_PICK, Some(0), Some("67/20/36/3/1")),
            ("bf16 mn 8x8x8", OURS, None, None),
        ]))
        .unwrap();
        let counts: Vec<_> =
            kinds.iter().map(|kind| (kind.library.as_str(), kind.problems.len())).collect();
        assert_eq!(counts, [(FIRST_PICK, 2), (FIRST_PICK, 1), (TORCH, 1), (FIRST_PICK, 1)]);
        let least = &kinds[0].problems[0];
        assert_eq!((least.problem.m, least.problem.batch.count, least.rank), (45, 3, Some(2)));
        assert_eq!(kinds[0].majors, [Major::M, Major::N, Major::N]);
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        let error = WrongKind::all(&file(&[("bf16 mn", TORCH, None, None)])).unwrap_err();
        assert!(error.to_string().contains("'bf16 mn'"), "{error}");
        assert_eq!(WrongKind::all(&file(&[])).unwrap(), []);
    }
}

//! [`shrink`]: from a problem that something computes wrongly to a small one.

use pgemm_plan::Problem;

/// Extents are first halved to multiples of their largest power of two up to this, because what
/// runs often depends on how an extent is aligned.
const LARGEST_STEP: usize = 64;

/// One of the extents of a problem, or its number of products.
#[derive(Clone, Copy)]
struct Side {
    /// The smallest that is known to be wrong.
    wrong: usize,
    /// The largest below that was found to be right, or 0.
    right: usize,
    /// What others that are tried are multiples of.
    step: usize,
}

impl Side {
    fn new(extent: usize) -> Side {
        let lowest_bit = 1 << extent.trailing_zeros().min(LARGEST_STEP.ilog2());
        Side { wrong: extent, right: 0, step: lowest_bit }
    }

    /// The next one to try, about halfway. `None` if the next smaller one is right.
    fn next(&mut self) -> Option<usize> {
        loop {
            let middle = self.right.midpoint(self.wrong) / self.step * self.step;
            if middle > self.right {
                return Some(middle);
            }
            if self.step == 1 {
                return None;
            }
            self.step /= 2;
        }
    }

    /// By what factor it may still shrink, at most.
    fn promise(&self) -> f64 {
        self.wrong as f64 / (self.right + 1) as f64
    }
}

/// Makes a problem for which `is_wrong` holds smaller as long as it holds, and calls it at most
/// `runs` times. Returns the smallest problem found, and the number of calls.
///
/// Each extent, and the number of products of a batch, is halved, and then searched between what was
/// wrong and what was right. What a smaller extent does may depend on the others, so the result need
/// not be the smallest that there is. Majors stay, and the result has no gaps between its lines.
pub(super) fn shrink(
    problem: &Problem,
    runs: usize,
    mut is_wrong: impl FnMut(&Problem) -> bool,
) -> (Problem, usize) {
    let Problem { m, n, k, batch, .. } = *problem;
    let mut sides = [m, n, k, batch.count].map(Side::new);
    let with = |[m, n, k, count]: [usize; 4]| {
        let one = Problem::new(m, n, k, problem.a.major, problem.b.major);
        let one = one.with_d_major(problem.d_major);
        if count == 1 { one } else { one.with_batch(count) }
    };
    let mut smallest = *problem;
    for used in 0..runs {
        let open = sides.iter_mut().enumerate().filter_map(|(place, side)| {
            let next = side.next()?;
            Some((place, next, side.promise()))
        });
        let Some((place, next, _)) = open.max_by(|a, b| a.2.total_cmp(&b.2)) else {
            return (smallest, used);
        };
        let mut extents = sides.map(|side| side.wrong);
        extents[place] = next;
        let candidate = with(extents);
        if is_wrong(&candidate) {
            sides[place].wrong = next;
            smallest = candidate;
        } else {
            sides[place].right = next;
        }
    }
    (smallest, runs)
}

#[cfg(test)]
mod tests {
    use pgemm_plan::Major;

    use super::*;

    fn problem([m, n, k, count]: [usize; 4]) -> Problem {
        let one = Problem::new(m, n, k, Major::M, Major::N);
        if count == 1 { one } else { one.with_batch(count) }
    }

    fn extents(problem: &Problem) -> [usize; 4] {
        [problem.m, problem.n, problem.k, problem.batch.count]
    }

    #[test]
    fn the_smallest_wrong_problem_is_found_if_each_extent_has_a_threshold() {
        for (start, least) in [
            ([4553, 167, 509, 1], [1, 1, 100, 1]),
            ([4553, 167, 509, 1], [3, 7, 509, 1]),
            ([128, 96, 64, 250], [65, 1, 33, 3]),
            ([17, 1, 1, 1], [17, 1, 1, 1]),
            ([1, 1, 1, 1], [1, 1, 1, 1]),
        ] {
            let mut calls = 0;
            let (found, runs) = shrink(&problem(start), 60, |candidate| {
                calls += 1;
                extents(candidate).iter().zip(least).all(|(extent, least)| *extent >= least)
            });
            assert_eq!((found, runs), (problem(least), calls), "{start:?}");
            assert!(runs <= 45, "{start:?}: {runs}");
        }
    }

    #[test]
    fn alignment_is_kept_as_long_as_it_can_be() {
        let start = [1400, 720, 1808, 12];
        let (found, runs) = shrink(&problem(start), 40, |candidate| {
            let [m, n, k, _] = extents(candidate);
            [m, n, k].iter().all(|extent| extent.is_multiple_of(8)) && k >= 64
        });
        assert_eq!((extents(&found), runs <= 40), ([8, 8, 64, 1], true));
    }

    #[test]
    fn the_result_was_seen_to_be_wrong_within_the_runs() {
        // A rule without order, as heuristics of libraries are.
        let is_wrong = |candidate: &Problem| {
            let [m, n, k, count] = extents(candidate);
            (m * 31 + n * 17 + k * 7 + count) % 3 != 0
        };
        for runs in [0, 1, 5, 40] {
            for m in 1..60 {
                let start = problem([m * 41 % 977 + 1, m * 13 % 331 + 1, m * 97 % 4001 + 1, m]);
                let mut seen = vec![start];
                let (found, used) = shrink(&start, runs, |candidate| {
                    assert!(candidate.validate().is_ok() && !seen.contains(candidate));
                    let wrong = is_wrong(candidate);
                    if wrong {
                        seen.push(*candidate);
                    }
                    wrong
                });
                assert!(used <= runs && seen.last() == Some(&found));
                let smaller = extents(&found).into_iter().zip(extents(&start));
                assert!(smaller.into_iter().all(|(found, start)| (1..=start).contains(&found)));
            }
        }
    }

    #[test]
    fn what_is_always_wrong_ends_as_a_single_multiplication() {
        let (found, _) = shrink(&problem([20_000, 3, 12_816, 256]), 60, |_| true);
        assert_eq!((found, found.d_major), (Problem::new(1, 1, 1, Major::M, Major::N), Major::N));
    }
}

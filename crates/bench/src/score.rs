//! A family of problems in one line: the geometric mean of the ratios, and the worst of them.

use persistent_gemm::stats::geometric_mean;

use crate::outcome::Row;
use crate::report::Report;

/// The score of a family in a report.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilyScore {
    /// The number of its problems that are in the report.
    pub measured: usize,
    /// Geometric mean of the median ratios, peer's time over ours, or `None` if nothing was
    /// measured.
    pub ratio: Option<f64>,
    /// Name and median ratio of the problem with the smallest.
    pub worst: Option<(String, f64)>,
}

impl Report {
    /// The score of the problems of these names. If several kernels ran, the first counts, which is
    /// the planner's pick.
    pub fn score<S: AsRef<str>>(&self, problems: &[S]) -> FamilyScore {
        let ours = self.outcomes.iter().filter_map(|outcome| outcome.rows().into_iter().next());
        let rows: Vec<Row> =
            ours.filter(|row| problems.iter().any(|name| name.as_ref() == row.problem)).collect();
        let worst = rows.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio));
        FamilyScore {
            measured: rows.len(),
            ratio: geometric_mean(rows.iter().map(|row| row.ratio)),
            worst: worst.map(|row| (row.problem.clone(), row.ratio)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    /// The fake report with one problem for each ratio, named `p0`, `p1`, …
    fn with_ratios(ratios: &[f64]) -> Report {
        let mut report = report();
        let outcome = report.outcomes.remove(0);
        for (index, &ratio) in ratios.iter().enumerate() {
            let mut outcome = outcome.clone();
            outcome.name = format!("p{index}");
            outcome.contestants[0].ratio.median = ratio;
            report.outcomes.push(outcome);
        }
        report
    }

    #[test]
    fn means_and_worst_are_those_of_the_family() {
        let report = with_ratios(&[2.0, 0.5, 8.0, 1.0]);
        let score = report.score(&["p0", "p2", "p7"]);
        assert_eq!(score.measured, 2);
        assert!((score.ratio.unwrap() - 4.0).abs() < 1e-12);
        assert_eq!(score.worst, Some(("p0".to_owned(), 2.0)));
        assert_eq!(report.score(&["p3", "p1"]).worst, Some(("p1".to_owned(), 0.5)));
    }

    #[test]
    fn nothing_measured_has_no_mean() {
        let score = with_ratios(&[2.0]).score(&["p5"]);
        assert_eq!(score, FamilyScore { measured: 0, ratio: None, worst: None });
    }

    #[test]
    fn kernels_beside_the_planners_pick_do_not_count() {
        let mut report = with_ratios(&[2.0]);
        let mut also = report.outcomes[0].contestants[0].clone();
        also.ratio.median = 0.25;
        report.outcomes[0].contestants.push(also);
        assert_eq!(report.score(&["p0"]).ratio, geometric_mean([2.0]));
    }
}

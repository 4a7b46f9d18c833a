//! Work lists of `pgemm bench` and `pgemm autotune`: the given problems, or families of the suite.
//! Errors that a suite continues after, and scores of families, are handled here too.

use persistent_gemm::measure::Elements;
use persistent_gemm::{Config, Dtype, Plan, PlanError, Problem, USUAL_SMS};
use pgemm_bench::{NotMeasured, Report, Suite, problem_name};
use pgemm_kernels::SpecError;

use crate::failure::Failure;
use crate::output;

/// Why no part of a suite is measured.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// Every problem was left out.
    #[error(
        "nothing of the suite can be measured in {dtype}. {}. Choose other families or another \
         --dtype",
        join(skipped)
    )]
    NothingLeft {
        /// Element type of A and B.
        dtype: Dtype,
        /// The problems that are left out, with the reasons.
        skipped: Vec<UnmeasuredProblem>,
    },
}

fn join(skipped: &[UnmeasuredProblem]) -> String {
    skipped.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Requested problems that are not measured.
#[derive(Clone, Debug, PartialEq)]
pub struct UnmeasuredProblem {
    /// A family with its number of problems, or one problem.
    pub what: String,
    /// The reason.
    pub why: String,
}

impl std::fmt::Display for UnmeasuredProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// A problem and its name in reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The name that [`problem_name`] returns.
    pub name: String,
    /// Extents and majors.
    pub problem: Problem,
}

impl Task {
    fn new(problem: Problem, elements: Elements) -> Task {
        Task { name: problem_name(&problem, elements), problem }
    }
}

/// A family of the suite with the names of its problems.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The family.
    pub family: String,
    /// The names of its problems that are to be measured.
    pub problems: Vec<String>,
}

/// Everything that is to be measured, each problem once even where families share it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Worklist {
    /// Tasks in the order of measurement.
    pub tasks: Vec<Task>,
    /// Tasks that run many times in a row, with the number of runs.
    pub streams: Vec<(Task, usize)>,
    /// The families that they belong to; empty without a suite.
    pub families: Vec<Chosen>,
    /// Problems that are not measured.
    pub left_out: Vec<UnmeasuredProblem>,
}

impl Worklist {
    /// Just these problems.
    pub fn of_problems(problems: impl Iterator<Item = Problem>, elements: Elements) -> Worklist {
        let mut list = Worklist::default();
        problems.for_each(|problem| list.add(Task::new(problem, elements)));
        list
    }

    /// A list of these problems, each `count` times in a row.
    pub fn of_streams(
        problems: impl Iterator<Item = Problem>,
        elements: Elements,
        count: usize,
    ) -> Worklist {
        let streams = problems.map(|problem| (Task::new(problem, elements), count));
        Worklist { streams: streams.collect(), ..Worklist::default() }
    }

    /// Puts another number of jobs in a row in place of the suite's.
    pub fn set_count(&mut self, count: usize) {
        self.streams.iter_mut().for_each(|stream| stream.1 = count);
    }

    /// The families of these names, or all. Problems that no kernel can compute are left out with
    /// the planner's reason.
    ///
    /// # Errors
    /// A family does not exist, or nothing is left to measure.
    pub fn of_suite(
        names: &[String],
        elements: Elements,
        config: &Config,
    ) -> Result<Worklist, Failure> {
        let suite = Suite::standard()?;
        let mut list = Worklist::default();
        for family in suite.select(names)? {
            if let Ok(Some((problems, count))) = family.stream(elements.a) {
                list.streams.extend(
                    problems.into_iter().map(|problem| (Task::new(problem, elements), count)),
                );
                continue;
            }
            let problems = match family.problems(elements.a) {
                Ok(problems) => problems,
                Err(why) => {
                    let what = format!("{} ({} problems)", family.name, family.count());
                    list.left_out.push(UnmeasuredProblem { what, why: why.to_string() });
                    continue;
                }
            };
            let mut chosen = Chosen { family: family.name.clone(), problems: Vec::new() };
            let mut refused: Vec<UnmeasuredProblem> = Vec::new();
            for problem in problems {
                let task = Task::new(problem, elements);
                match Plan::best(&problem, config, USUAL_SMS) {
                    Ok(_) => {
                        chosen.problems.push(task.name.clone());
                        list.add(task);
                    }
                    Err(error) => {
                        refused.push(UnmeasuredProblem { what: task.name, why: refusal(&error) })
                    }
                }
            }
            list.left_out.extend(in_one_line(&family.name, refused));
            if !chosen.problems.is_empty() {
                list.families.push(chosen);
            }
        }
        list.or_nothing_left(elements.a)
    }

    /// Leaves out problems that run many times in a row, for commands that measure single products.
    ///
    /// # Errors
    /// Nothing else is left.
    pub fn without_streams(mut self, dtype: Dtype) -> Result<Worklist, Failure> {
        let why = NotMeasured::InARow.to_string();
        let streams = self.streams.drain(..);
        let skipped =
            streams.map(|(task, _)| UnmeasuredProblem { what: task.name, why: why.clone() });
        self.left_out.extend(skipped);
        self.or_nothing_left(dtype)
    }

    /// Leaves out problems for which there is a reason.
    ///
    /// # Errors
    /// Nothing else is left.
    pub fn without(
        mut self,
        why: impl Fn(&Problem) -> Option<String>,
        dtype: Dtype,
    ) -> Result<Worklist, Failure> {
        let (tasks, left_out) = (&mut self.tasks, &mut self.left_out);
        tasks.retain(|task| match why(&task.problem) {
            None => true,
            Some(why) => {
                left_out.push(UnmeasuredProblem { what: task.name.clone(), why });
                false
            }
        });
        for chosen in &mut self.families {
            chosen.problems.retain(|name| tasks.iter().any(|task| task.name == *name));
        }
        self.or_nothing_left(dtype)
    }

    fn or_nothing_left(self, dtype: Dtype) -> Result<Worklist, Failure> {
        match self.tasks.is_empty() && self.streams.is_empty() {
            true => Err(SuiteError::NothingLeft { dtype, skipped: self.left_out }.into()),
            false => Ok(self),
        }
    }

    fn add(&mut self, task: Task) {
        if !self.tasks.contains(&task) {
            self.tasks.push(task);
        }
    }

    /// Removes the problems that the report contains, and returns their number.
    pub fn skip_measured(&mut self, report: &Report) -> usize {
        let left = |list: &Worklist| list.tasks.len() + list.streams.len();
        let before = left(self);
        self.tasks.retain(|task| !report.holds(&task.name));
        self.streams.retain(|(task, count)| !report.holds_stream(&task.name, *count));
        before - left(self)
    }

    /// Prints a line for each family, and the problems that were left out.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print_scores(&self, report: &Report) -> Result<(), Failure> {
        if !self.families.is_empty() {
            let mut table = output::table(
                ["family", "problems", "measured", "geometric mean", "worst", "where"],
                &["problems", "measured", "geometric mean", "worst"],
            );
            for Chosen { family, problems } in &self.families {
                let score = report.score(problems);
                let number = |ratio: Option<f64>| {
                    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.4}"))
                };
                table.add_row([
                    family.clone(),
                    problems.len().to_string(),
                    score.measured.to_string(),
                    number(score.ratio),
                    number(score.worst.as_ref().map(|worst| worst.1)),
                    score.worst.map_or_else(|| "–".to_owned(), |worst| worst.0),
                ]);
            }
            output::text("\n")?;
            output::print(&table)?;
        }
        for left_out in &self.left_out {
            output::text(&format!("not measured: {left_out}\n"))?;
        }
        Ok(())
    }
}

/// The planner's reason, with the note that missing types may be supported later.
fn refusal(error: &PlanError) -> String {
    match error {
        PlanError::Spec(SpecError::Types { .. }) => format!("not yet: {error}"),
        _ => error.to_string(),
    }
}

/// The problems of a family that are not measured. Usually all have the same reason, the element
/// type, so they share one line.
fn in_one_line(family: &str, refused: Vec<UnmeasuredProblem>) -> Vec<UnmeasuredProblem> {
    match refused.first() {
        Some(UnmeasuredProblem { why, .. })
            if refused.len() > 1 && refused.iter().all(|other| other.why == *why) =>
        {
            let what = format!("{family} ({} problems)", refused.len());
            vec![UnmeasuredProblem { what, why: why.clone() }]
        }
        _ => refused,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use persistent_gemm::Major;

    use super::*;

    fn elements(dtype: Dtype) -> Elements {
        Elements::new(dtype, Config::new(dtype).output_dtype())
    }

    fn of_suite(names: &[&str], dtype: Dtype) -> Result<Worklist, String> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        Worklist::of_suite(&names, elements(dtype), &Config::new(dtype))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_whole_suite_is_measured_or_left_out_with_a_reason() {
        let list = of_suite(&[], Dtype::Bf16).unwrap();
        let planned: usize = list.families.iter().map(|chosen| chosen.problems.len()).sum();
        assert_eq!(planned, 209);
        // Families share problems: 8192³ is in three.
        assert!(list.tasks.len() < planned);
        let cube = "bf16 kk 8192x8192x8192";
        assert_eq!(list.tasks.iter().filter(|task| task.name == cube).count(), 1);
        let holders =
            list.families.iter().filter(|chosen| chosen.problems.iter().any(|name| name == cube));
        let holders: Vec<&str> = holders.map(|chosen| chosen.family.as_str()).collect();
        assert_eq!(holders, ["square", "headline", "llama3_70b"]);
        let left_out: Vec<String> = list.left_out.iter().map(ToString::to_string).collect();
        assert_eq!(left_out.len(), 1, "{left_out:?}");
        assert!(left_out[0].starts_with("grouped (5 problems): not yet"), "{left_out:?}");
        let streams: Vec<_> =
            list.streams.iter().map(|(task, count)| (task.name.as_str(), *count)).collect();
        assert_eq!((streams.len(), streams[0]), (5, ("bf16 kk 128x128x128", 1000)));
    }

    #[test]
    fn problems_with_one_reason_share_a_line() {
        let lines = |reasons: &[&str]| {
            let refused = reasons.iter().zip(1..).map(|(why, number)| UnmeasuredProblem {
                what: format!("problem {number}"),
                why: (*why).to_owned(),
            });
            let lines = in_one_line("waves", refused.collect());
            lines.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(lines(&[]), [""; 0]);
        assert_eq!(lines(&["no kernel"]), ["problem 1: no kernel"]);
        assert_eq!(lines(&["no kernel"; 2]), ["waves (2 problems): no kernel"]);
        assert_eq!(lines(&["no kernel", "empty"]), ["problem 1: no kernel", "problem 2: empty"]);
    }

    #[test]
    fn problems_that_are_measured_are_not_measured_again() {
        let mut list = of_suite(&["waves", "large_k"], Dtype::F16).unwrap();
        assert_eq!(list.tasks.len(), 10);
        let missing = Report { outcomes: Vec::new(), ..example_report() };
        assert_eq!(list.skip_measured(&missing), 0);
        let mut report = example_report();
        report.outcomes[0].name = "f16 kk 128x128x65536".into();
        assert_eq!(list.skip_measured(&report), 1);
        assert_eq!(list.tasks.len(), 9);
        // The family's score still counts it.
        assert_eq!(report.score(&list.families[1].problems).measured, 1);
    }

    /// A run of two problems on an H200.
    fn example_report() -> Report {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pairs.json");
        Report::read(path.as_ref()).unwrap()
    }

    #[test]
    fn who_measures_single_products_leaves_streams_out() {
        let list = of_suite(&["waves", "stream"], Dtype::Bf16).unwrap();
        let list = list.without_streams(Dtype::Bf16).unwrap();
        assert_eq!((list.tasks.len(), list.streams.len(), list.left_out.len()), (6, 0, 5));
        assert!(list.left_out[0].why.contains("--stream"), "{}", list.left_out[0]);
        let only = of_suite(&["stream"], Dtype::Bf16).unwrap();
        let message = only.without_streams(Dtype::Bf16).unwrap_err().to_string();
        assert!(message.contains("bf16 kk 128x128x128"), "{message}");
    }

    #[test]
    fn streams_that_are_measured_are_not_measured_again() {
        let mut list = of_suite(&["stream"], Dtype::Bf16).unwrap();
        assert!(list.tasks.is_empty());
        let mut report = example_report();
        report.streams = vec![stream_outcome()];
        assert_eq!(report.streams[0].name, "bf16 kk 256x256x256");
        assert_eq!((list.skip_measured(&report), list.streams.len()), (1, 4));
        // Streams with another number of jobs are separate measurements.
        let mut list = of_suite(&["stream"], Dtype::Bf16).unwrap();
        list.set_count(10);
        assert_eq!(list.skip_measured(&report), 0);
        assert!(list.streams.iter().all(|(_, count)| *count == 10));
    }

    fn stream_outcome() -> pgemm_bench::StreamOutcome {
        crate::stream::tests::report().streams.swap_remove(1)
    }

    #[test]
    fn problems_given_twice_are_measured_once() {
        let problem = Problem::new(64, 32, 16, Major::K, Major::K);
        let list = Worklist::of_problems([problem, problem].into_iter(), elements(Dtype::F16));
        assert_eq!(list.tasks.len(), 1);
        assert_eq!(list.tasks[0].name, "f16 kk 64x32x16");
    }

    #[test]
    fn what_leaves_nothing_says_why() {
        let message = of_suite(&["grouped"], Dtype::Bf16).unwrap_err();
        assert!(message.contains("grouped (5 problems): not yet"), "{message}");
        let message = of_suite(&["llama3_8b"], Dtype::F16).unwrap_err();
        assert!(message.contains("defined for bf16, e4m3"), "{message}");
        let message = of_suite(&["grouped", "llama3_8b"], Dtype::F32).unwrap_err();
        assert!(message.contains("llama3_8b (60 problems): the family is defined"), "{message}");
        let message = of_suite(&["square", "lama"], Dtype::Bf16).unwrap_err();
        assert!(message.contains("'lama'") && message.contains("llama3_8b"), "{message}");
    }

    #[test]
    fn types_that_are_read_along_k_only_are_planned_in_all_majors() {
        for (dtype, families) in [
            (Dtype::Tf32, ["square", "headline"].as_slice()),
            (Dtype::E4m3, &["square", "llama3_8b", "deepseek_v3"]),
            (Dtype::S8, &["square", "waves", "skinny"]),
        ] {
            let list = of_suite(families, dtype).unwrap();
            assert!(list.left_out.is_empty(), "{dtype}");
            assert_eq!(list.families.len(), families.len());
            // The cubes in both majors of B.
            assert_eq!(list.families[0].problems.len(), 22);
        }
    }

    /// A kernel for K-major operands cannot compute the other half of the cubes.
    #[test]
    fn knobs_that_do_not_fit_are_a_reason() {
        let config = Config::new(Dtype::Bf16)
            .with_spec("bf16-kk-bf16-64x64x64-s10-w1-c1x1".parse().unwrap());
        let list =
            Worklist::of_suite(&["square".to_owned()], elements(Dtype::Bf16), &config).unwrap();
        assert_eq!((list.tasks.len(), list.left_out.len()), (11, 1));
        let left_out = list.left_out[0].to_string();
        assert!(
            left_out.starts_with("square (11 problems): ") && !left_out.contains("not yet"),
            "{left_out}"
        );
    }

    #[test]
    fn arguments_that_contradict_each_other_are_refused() {
        let parse = |line: &str| {
            let words = ["pgemm", "bench"].into_iter().chain(line.split_whitespace());
            crate::Cli::try_parse_from(words).map(|_| ()).map_err(|error| error.to_string())
        };
        for fine in [
            "--suite --against cublaslt",
            "--suite square,waves --against cublaslt-best --l2 warm --launch graph",
            "--suite waves --against cublaslt --json f.json --resume",
            "--size 64 --json f.json --resume",
            "--size 64 --d-major m --a-major m --against cublaslt",
            "--size 64 --dtype f16 --precision f16 --against cublaslt",
            "--bandwidth --launch eager --json f.json",
            "--stream",
            "--stream --size 64 --problem 64x4096x4096 --count 100 --dtype f16 --against cublaslt",
            "--stream --also bf16-kk-bf16-64x64x64-s8-w1-c1x1-resident --json f.json --resume",
            "--suite stream --count 100 --against cublaslt",
            "--size 64 --also bf16-kkm-bf16-64x16x64-s16-w1-c1x1:stream-k --bandwidth",
        ] {
            assert_eq!(parse(fine), Ok(()), "{fine}");
        }
        for (line, part) in [
            ("--suite --size 64 --against cublaslt", "cannot be used with"),
            ("--suite --problem 1x2x3 --against cublaslt", "cannot be used with"),
            ("--suite --b-major n --against cublaslt", "cannot be used with"),
            ("--suite --d-major m --against cublaslt", "cannot be used with"),
            ("--size 64 --d-major k", "not a major of D"),
            ("--suite", "--against"),
            ("--size 64 --resume", "--json"),
            ("--size 64 --l2 tepid", "cold"),
            ("--stream --suite --against cublaslt", "cannot be used with"),
            ("--stream --l2 warm", "cannot be used with"),
            ("--stream --launch graph", "cannot be used with"),
            ("--stream --count 0", "1"),
            ("--size 64 --launch fast", "graph"),
            ("--size 64 --also bf16-kkm-bf16-64x16x64-s16-w1-c1x1:half", "is no split"),
        ] {
            let message = parse(line).unwrap_err();
            assert!(message.contains(part), "{line}: {message}");
        }
    }
}

//! `pgemm compare`: what has become slower between two files of results.

use std::path::PathBuf;

use comfy_table::Table;
use pgemm_bench::{Change, ChangeJudgement, Collection, Comparison, Tolerance};

use crate::output;
use crate::parse;
use crate::usage::UsageError;
use crate::{Failure, Verdict};

/// Arguments of `pgemm compare`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm compare old.json new.json
  pgemm compare atlas-0.1.jsonl atlas-0.2.jsonl --tolerance 0.03 --all

Where both files have the same peer, ratios to the peer are compared, which hardly depend on the
card's temperature and power. The interval of a problem's change is from the smallest round of one
to the largest of the other. With n rounds the median lies between them with a probability of
1 - 2^(1-n). A problem is slower if its whole interval is below 1 - TOLERANCE. The interval of a
group's geometric mean has a confidence of 95 %, from resampled problems; a group of at least six
problems is slower if its whole interval is below 1 - MEAN_TOLERANCE.

Exit status: 0 nothing is slower; 1 a problem or a group is slower, or a result is wrong that was
right before; 2 wrong usage, or files without a problem in common.")]
pub struct Args {
    /// The older results.
    old: PathBuf,
    /// The newer results.
    new: PathBuf,
    /// By how much a problem may become slower.
    #[arg(long, value_name = "PART", default_value_t = 0.02, value_parser = parse::part)]
    tolerance: f64,
    /// By how much the geometric mean of a group may become slower.
    #[arg(long, value_name = "PART", default_value_t = 0.005, value_parser = parse::part)]
    mean_tolerance: f64,
    /// Also list the problems that are as fast as before.
    #[arg(long)]
    all: bool,
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let read = |path: &PathBuf| Collection::read([path], |_| true);
    let comparison = Comparison::of(&read(&args.old)?, &read(&args.new)?);
    if comparison.changes.is_empty() {
        return Err(UsageError::NothingInCommon.into());
    }
    let tolerance = Tolerance { problem: args.tolerance, mean: args.mean_tolerance };
    print(&comparison, tolerance, args.all)?;
    Ok(if comparison.is_fine(tolerance) { Verdict::Fine } else { Verdict::Wrong })
}

fn print(comparison: &Comparison, tolerance: Tolerance, all: bool) -> Result<(), Failure> {
    output::print(&groups(comparison, tolerance))?;
    let judged = |change: &&Change| all || change.judgement(tolerance) != ChangeJudgement::Same;
    let mut shown: Vec<&Change> = comparison.changes.iter().filter(judged).collect();
    shown.sort_by(|x, y| x.change.total_cmp(&y.change));
    if !shown.is_empty() {
        output::text("\n")?;
        output::print(&problems(&shown, tolerance))?;
    }
    for problem in &comparison.newly_wrong {
        output::text(&format!("wrong now, and right before: {problem}\n"))?;
    }
    let Comparison { only_old, only_new, .. } = comparison;
    if only_old + only_new > 0 {
        output::note(format_args!(
            "not compared: {only_old} problems of the older file, {only_new} of the newer one"
        ));
    }
    Ok(())
}

fn word(judgement: ChangeJudgement) -> &'static str {
    match judgement {
        ChangeJudgement::Slower => "SLOWER",
        ChangeJudgement::Faster => "faster",
        ChangeJudgement::Same => "",
    }
}

fn interval([low, high]: [f64; 2]) -> String {
    format!("{low:.4}–{high:.4}")
}

fn groups(comparison: &Comparison, tolerance: Tolerance) -> Table {
    let header = ["group", "problems", "new / old", "95 % interval", "smallest", ""];
    let mut table = output::table(header, &header[1..5]);
    for group in &comparison.groups {
        table.add_row([
            group.group.clone().unwrap_or_else(|| "all".to_owned()),
            group.problems.to_string(),
            format!("{:.4}", group.mean),
            group.interval.map_or_else(|| "–".to_owned(), interval),
            format!("{:.4}", group.worst),
            word(group.judgement(tolerance)).to_owned(),
        ]);
    }
    table
}

fn problems(changes: &[&Change], tolerance: Tolerance) -> Table {
    let header = ["problem", "compared", "old", "new", "new / old", "interval", ""];
    let mut table = output::table(header, &header[2..6]);
    for change in changes {
        let compared = match &change.peer {
            Some(peer) => format!("ratio to {peer}"),
            None => "microseconds".to_owned(),
        };
        table.add_row([
            change.problem.clone(),
            compared,
            format!("{:.4}", change.old),
            format!("{:.4}", change.new),
            format!("{:.4}", change.change),
            change.interval.map_or_else(|| "–".to_owned(), interval),
            word(change.judgement(tolerance)).to_owned(),
        ]);
    }
    table
}

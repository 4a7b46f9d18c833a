//! `pgemm bench --stream`: measures many jobs of a problem in a row, with all methods by which they
//! can reach the device.

use std::path::Path;

use comfy_table::Table;
use persistent_gemm::measure::Elements;
use persistent_gemm::{Gemm, Problem};
use pgemm_bench::{
    Bench, Clock, MethodTimes, Report, StreamOutcome, StreamPeer, StreamRequest, Suite,
};
use pgemm_kernels::Spec;

use crate::failure::Failure;
use crate::failure::{concerns_one_problem, is_wrong_result};
use crate::output;
use crate::parse::KernelChoice;
use crate::suite::{UnmeasuredProblem, Worklist};
use crate::usage::UsageError;

/// Jobs in a row of problems that are given as sizes.
const COUNT: usize = 1000;
/// The suite's family for this.
const FAMILY: &str = "stream";

/// Settings that are common to all problems.
pub struct Setting<'a> {
    pub elements: Elements,
    pub gemm: &'a Gemm,
    pub peer: Option<&'a StreamPeer>,
    pub also: &'a [Spec],
}

/// The problems given, or those of the suite's family.
pub fn worklist(
    given: impl ExactSizeIterator<Item = Problem>,
    elements: Elements,
) -> Result<Worklist, Failure> {
    if given.len() > 0 {
        return Ok(Worklist::of_streams(given, elements, COUNT));
    }
    let suite = Suite::standard()?;
    let mut list = Worklist::default();
    for family in suite.select(&[FAMILY])? {
        if let Some((problems, count)) = family.stream(elements.a).map_err(|why| why.to_string())? {
            list = Worklist::of_streams(problems.into_iter(), elements, count);
        }
    }
    Ok(list)
}

/// The kernel, if it is a resident one.
pub fn resident(choice: &KernelChoice) -> Option<Spec> {
    Some(choice.spec).filter(Spec::is_resident)
}

/// The resident kernels among the given ones. Checks that every kernel is used: launched kernels in
/// pairs, resident kernels in streams.
pub fn residents(
    also: &[KernelChoice],
    pairs: bool,
    streams: bool,
) -> Result<Vec<Spec>, UsageError> {
    for choice in also {
        let used = if resident(choice).is_some() { streams } else { pairs };
        if !used {
            return Err(UsageError::OtherKindOfKernel { spec: Box::new(choice.spec) });
        }
    }
    Ok(also.iter().filter_map(resident).collect())
}

/// Measures all streams of a work list, and returns whether all results were correct.
pub fn measure(
    bench: &Bench,
    work: &mut Worklist,
    setting: &Setting<'_>,
    json: Option<&Path>,
    report: &mut Report,
) -> Result<bool, Failure> {
    let Setting { elements, gemm, peer, also } = *setting;
    let mut right = true;
    let progress = output::progress(work.streams.len());
    for (task, count) in &work.streams {
        progress.set_message(task.name.clone());
        let (problem, count) = (task.problem, *count);
        let request = StreamRequest { problem, elements, count, gemm, peer, also };
        match bench.stream_of_jobs(&request) {
            Ok(outcome) => {
                right &= !outcome.is_wrong();
                report.streams.push(outcome);
                if let Some(path) = json {
                    report.write(path)?;
                }
            }
            Err(error) if !work.families.is_empty() && concerns_one_problem(&error) => {
                right &= !is_wrong_result(&error);
                work.left_out
                    .push(UnmeasuredProblem { what: task.name.clone(), why: error.to_string() });
            }
            Err(error) => return Err(error.into()),
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(right)
}

/// Prints the measurements, if there are any.
pub fn print(report: &Report) -> Result<(), Failure> {
    if report.streams.is_empty() {
        return Ok(());
    }
    if !report.outcomes.is_empty() || !report.read_bandwidth.is_empty() {
        output::text("\n")?;
    }
    output::print(&methods_table(&report.streams))?;
    output::text("\n")?;
    output::print(&alone_table(&report.streams))?;
    for stream in &report.streams {
        for left_out in &stream.left_out {
            let wrong = if left_out.wrong { "WRONG, " } else { "" };
            output::text(&format!(
                "{wrong}not measured: {}, {}: {}\n",
                stream.name, left_out.what, left_out.why
            ))?;
        }
    }
    Ok(())
}

fn methods_table(streams: &[StreamOutcome]) -> Table {
    let mut table = output::table(
        [
            "problem",
            "jobs",
            "order",
            "contestant",
            "way",
            "clock",
            "µs per job",
            "spread",
            "host µs",
            "TFLOP/s",
            "fastest peer's time / its own",
        ],
        &["jobs", "µs per job", "host µs", "TFLOP/s", "fastest peer's time / its own"],
    );
    for stream in streams {
        for times in &stream.methods {
            table.add_row(row(stream, times));
        }
    }
    table
}

fn row(stream: &StreamOutcome, times: &MethodTimes) -> [String; 11] {
    let ratio = match stream.fastest_peer(times.method) {
        // The peer's fastest method overall, and its fastest one that keeps the order, are the
        // baselines of the ratios.
        Some(peer) if peer == times => "peer".to_owned(),
        _ => stream.ratio(times).map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.3}")),
    };
    let (micros, host) = (&times.microseconds, &times.host_microseconds);
    [
        stream.name.clone(),
        times.jobs.to_string(),
        if times.method.keeps_order() { "kept" } else { "any" }.to_owned(),
        times.contestant.clone(),
        times.method.name().to_owned(),
        match times.clock {
            Clock::Host => "host",
            Clock::Device => "device",
        }
        .to_owned(),
        format!("{:.3}", micros.median),
        format!("{:.3}–{:.3}", micros.min, micros.max),
        host.as_ref().map_or_else(|| "–".to_owned(), |host| format!("{:.3}", host.median)),
        format!("{:.1}", times.teraflops),
        ratio,
    ]
}

fn alone_table(streams: &[StreamOutcome]) -> Table {
    let mut table = output::table(
        ["problem", "one job, from host to host", "median µs", "p90", "p99", "shortest", "samples"],
        &["median µs", "p90", "p99", "shortest", "samples"],
    );
    for stream in streams {
        for alone in &stream.alone {
            table.add_row([
                stream.name.clone(),
                alone.contestant.clone(),
                format!("{:.2}", alone.median),
                format!("{:.2}", alone.p90),
                format!("{:.2}", alone.p99),
                format!("{:.2}", alone.min),
                alone.samples.to_string(),
            ]);
        }
    }
    table
}

#[cfg(test)]
pub mod tests {
    use persistent_gemm::{Dtype, Major};

    use super::*;

    /// A report with jobs of three cubes and of another problem, as a file has it; the times are
    /// made up.
    pub fn report() -> Report {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/stream.json");
        Report::read(path.as_ref()).unwrap()
    }

    fn elements() -> Elements {
        Elements::new(Dtype::Bf16, Dtype::Bf16)
    }

    #[test]
    fn the_suites_problems_are_measured_where_none_is_given() {
        let none =
            worklist(std::iter::empty::<Problem>().collect::<Vec<_>>().into_iter(), elements());
        let none = none.unwrap();
        let names: Vec<_> = none.streams.iter().map(|(task, _)| task.name.as_str()).collect();
        assert_eq!(names[0], "bf16 kk 128x128x128");
        assert_eq!(names[4], "bf16 kk 64x4096x4096");
        assert!(none.tasks.is_empty() && none.streams.iter().all(|(_, count)| *count == 1000));
        let given = vec![Problem::new(64, 32, 16, Major::K, Major::N)];
        let one = worklist(given.into_iter(), elements()).unwrap();
        assert_eq!((one.streams.len(), one.streams[0].1), (1, 1000));
        assert_eq!(one.streams[0].0.name, "bf16 kn 64x32x16");
    }

    #[test]
    fn kernels_go_where_they_are_of_use() {
        let choice = |name: &str| name.parse::<KernelChoice>().unwrap();
        let stays = choice("bf16-kk-bf16-64x64x64-s8-w1-c1x1-resident");
        let launched = choice("bf16-kk-bf16-64x64x64-s8-w1-c1x1");
        let both = [stays, launched];
        let found = residents(&both, true, true).unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].is_resident());
        assert!(residents(&both[..1], false, true).is_ok());
        assert!(residents(&both[1..], true, false).is_ok());
        let message = residents(&both, false, true).unwrap_err().to_string();
        assert!(message.contains("--also bf16-kk-bf16-64x64x64-s8-w1-c1x1:"), "{message}");
        let message = residents(&both, true, false).unwrap_err().to_string();
        assert!(message.contains("w1-c1x1-resident:"), "{message}");
    }

    #[test]
    fn tables_hold_each_way_against_the_fastest_peer_of_its_kind() {
        let report = report();
        let stream = &report.streams[1];
        assert_eq!(stream.name, "bf16 kk 256x256x256");
        let rows: Vec<_> = stream.methods.iter().map(|times| row(stream, times)).collect();
        let of = |contestant: &str, method: &str| {
            let found = rows.iter().find(|row| row[3] == contestant && row[4] == method).unwrap();
            (found[2].as_str(), found[6].as_str(), found[10].as_str())
        };
        assert_eq!(of("cuBLASLt", "eager"), ("kept", "4.000", "–"));
        assert_eq!(of("cuBLASLt", "graph"), ("kept", "2.000", "peer"));
        assert_eq!(of("cuBLASLt", "graph, 8 branches"), ("any", "1.000", "peer"));
        assert_eq!(of("resident", "together"), ("any", "0.500", "2.000"));
        assert_eq!(of("resident", "chain"), ("kept", "4.000", "0.500"));
        let table = methods_table(&report.streams).to_string();
        for part in ["bf16 kk 64x4096x4096", "host µs", "strided batch", "0.250"] {
            assert!(table.contains(part), "{part} is missing in: {table}");
        }
        let alone = alone_table(&report.streams).to_string();
        for part in ["empty kernel", "p99", "3.50"] {
            assert!(alone.contains(part), "{part} is missing in: {alone}");
        }
    }

    #[test]
    fn reports_with_streams_survive_json() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stream.json");
        let report = report();
        report.write(&path).unwrap();
        assert_eq!(Report::read(&path).unwrap(), report);
        assert!(report.holds_stream("bf16 kk 256x256x256", 1000));
        assert!(!report.holds_stream("bf16 kk 256x256x256", 10));
    }
}

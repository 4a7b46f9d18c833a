//! [`Judgement`]: what the heuristic's picks lose among the choices that a survey timed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;

use persistent_gemm::Error;
use persistent_gemm::error::FileDamage;
use persistent_gemm::measure::Elements;
use persistent_gemm::stats::geometric_mean;
use pgemm_ir::Element;
use pgemm_plan::{Choice, Config, DeviceFacts, ProblemKey, Split, USUAL_SMS, heuristic};
use serde::Deserialize;

use crate::error::{BenchError, Result};
use crate::names::named_problem;

/// The least part of a time that is left for the kernel after the repack kernels. Less says nothing
/// about the kernel.
const LEAST_PART: f64 = 0.3;

/// The greater reading of the peer around a block of choices over the smaller one, at most.
const MOST_DRIFT: f64 = 1.05;

/// Since when threads load operands as they do now, but for requests ahead of their loads.
const LOADERS_SINCE: &str = "2026-11-25T20:41";

/// Since when sets of accumulators take turns for several stages. Such kernels were slower before.
const TURNS_SINCE: &str = "2026-11-27T19:43";

/// What the heuristic's picks of one run lose.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The run's name.
    pub run: String,
    /// Times of the picks over those of the fastest choices, ascending, with the problems' names.
    pub regrets: Vec<(f64, String)>,
}

impl Judgement {
    /// A judgement of no problems yet.
    pub fn named(run: &str) -> Judgement {
        Judgement { run: run.to_owned(), regrets: vec![] }
    }

    /// Adds the problems of another run.
    pub fn add(&mut self, other: Judgement) {
        self.regrets.extend(other.regrets);
        self.regrets.sort_by(|a, b| a.0.total_cmp(&b.0));
    }

    /// The geometric mean of the regrets.
    pub fn mean(&self) -> Option<f64> {
        geometric_mean(self.regrets.iter().map(|(regret, _)| *regret))
    }

    /// The regret that this part of the problems does not exceed.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let last = self.regrets.len().checked_sub(1)?;
        let place = (part * last as f64).round() as usize;
        self.regrets.get(place.min(last)).map(|(regret, _)| *regret)
    }
}

/// A line of a survey, or of another run with timings, in the compact form of `benchmarks/results`.
#[derive(Deserialize)]
struct Line {
    run: String,
    problem: Option<String>,
    /// Whether the kernels of the run ran at a steady clock. The first line of a survey says so,
    /// which has no problem. All other runs do.
    #[serde(default)]
    steady: bool,
    /// The device, on the run's line, and the same of all lines of the run.
    sm_count: Option<u32>,
    memory_mb_per_second: Option<u32>,
    /// When the run began, as its device.
    #[serde(default)]
    date: String,
    #[serde(default)]
    blocks: Vec<Block>,
    /// What ran in an atlas, beside its microseconds.
    kernel: Option<String>,
    /// The contestants of a race, which all saw the same clock.
    #[serde(default)]
    contestants: Vec<Racer>,
    /// The candidates of the autotuner, which saw the same clock too, with their speed over that of
    /// the heuristic's pick.
    #[serde(default)]
    trials: Vec<(String, f64)>,
    heuristic: Option<String>,
    /// The autotuner's last candidate: its microseconds, and the quartiles of its speed over that
    /// of the heuristic's pick. Other files have other figures of these names.
    #[serde(default)]
    us: serde_json::Value,
    #[serde(default)]
    ratio: serde_json::Value,
}

impl Line {
    /// The device that the run was measured on. Runs that do not name its memory are of H200s.
    fn device(&self) -> DeviceFacts {
        let megabytes = self.memory_mb_per_second.unwrap_or(0);
        DeviceFacts::new(self.sm_count.unwrap_or(USUAL_SMS)).with_memory_mb_per_second(megabytes)
    }

    /// The kernel of an atlas with its microseconds.
    fn picked(&mut self) -> Option<Block> {
        let (kernel, us) = (self.kernel.take()?, self.us.as_f64()?);
        Some(Block { peer_us: [None; 2], choices: vec![(kernel, Some(us))] })
    }

    /// The choices of the line's trials with their microseconds.
    fn tried(&mut self) -> Option<Block> {
        let pick = self.heuristic.take()?;
        let us = self.us.as_f64()? * self.ratio.get(1)?.as_f64()?;
        let tried = self.trials.drain(..).map(|(name, speed)| (name, Some(us / speed)));
        let choices = [(pick, Some(us))].into_iter().chain(tried).collect();
        Some(Block { peer_us: [None; 2], choices })
    }
}

/// A contestant of a race.
#[derive(Deserialize)]
struct Racer {
    kernel: Option<String>,
    us: Option<f64>,
}

/// Choices between two readings of the peer.
#[derive(Deserialize)]
struct Block {
    peer_us: [Option<f64>; 2],
    choices: Vec<(String, Option<f64>)>,
}

/// What the heuristic's picks lose, for each run of a file in the compact form. The picks are those
/// for the device of the run.
///
/// # Errors
/// [`Error::Io`], or [`BenchError::Report`] if a line cannot be read.
pub fn judge(path: &Path) -> Result<Vec<Judgement>> {
    let mut runs: BTreeMap<String, Vec<(f64, String)>> = BTreeMap::new();
    for line in lines(path)? {
        let device = line.device();
        let Some(problem) = line.problem else { continue };
        let regret = key_of(&problem).and_then(|key| regret(&key, &line.blocks, device));
        runs.entry(line.run).or_default().extend(regret.map(|regret| (regret, problem)));
    }
    let judgement = |(run, regrets): (String, Vec<(f64, String)>)| {
        let mut judgement = Judgement::named(&run);
        judgement.add(Judgement { run, regrets });
        judgement
    };
    Ok(runs.into_iter().map(judgement).collect())
}

/// The features of all timed choices of a file in the compact form, as lines of comma-separated
/// values: run and problem; `wgmma` or `registers`, the kind of the kernel; the time in cycles of
/// 1.7 GHz, with the drift of the clock divided out and without what repack kernels take as
/// estimated; the estimate before it is corrected; the cycles of the repack kernels; and the
/// features.
///
/// # Errors
/// The same as for [`judge`].
pub fn features(path: &Path) -> Result<String> {
    let mut table = format!(
        "run,problem,kernels,cycles,estimate,before,{}\n",
        heuristic::FEATURE_NAMES.join(",")
    );
    for line in lines(path)? {
        let Some(key) = line.problem.as_deref().and_then(key_of) else { continue };
        for (choice, us) in timings(&line.blocks) {
            // Estimates of direct kernels are not corrected.
            let shape = key.shape_for(&choice).filter(|_| !choice.spec.is_direct());
            let Some((shape, before)) = shape else { continue };
            let (estimate, mut features) = heuristic::features_of(&choice, shape, line.device());
            features[heuristic::STEADY] = f32::from(u8::from(line.steady));
            // Kernels are corrected without the repack kernels before them.
            let cycles = us * heuristic::NOMINAL_MHZ - before;
            if cycles <= LEAST_PART * (cycles + before) {
                continue;
            }
            let problem = line.problem.as_deref().unwrap_or_default();
            let kind = if choice.spec.wgmma().is_some() { "wgmma" } else { "registers" };
            table += &format!("{},{problem},{kind},{cycles},{estimate},{before}", line.run);
            features.iter().for_each(|feature| table += &format!(",{feature}"));
            table.push('\n');
        }
    }
    Ok(table)
}

/// The lines of a file.
fn lines(path: &Path) -> Result<Vec<Line>> {
    let text =
        fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let lines =
        text.lines().map(serde_json::from_str).collect::<std::result::Result<Vec<Line>, _>>();
    let mut lines = lines.map_err(|error| BenchError::Report {
        path: path.to_owned(),
        finding: Box::new(FileDamage::Json(error)),
    })?;
    let steady: HashSet<String> =
        lines.iter().filter(|line| line.steady).map(|line| line.run.clone()).collect();
    let runs: HashMap<String, ([Option<u32>; 2], String)> = lines
        .iter()
        .filter(|line| line.sm_count.is_some())
        .map(|line| {
            let device = [line.sm_count, line.memory_mb_per_second];
            (line.run.clone(), (device, line.date.clone()))
        })
        .collect();
    for line in &mut lines {
        let (device, date) = runs.get(&line.run).cloned().unwrap_or_default();
        [line.sm_count, line.memory_mb_per_second] = device;
        line.steady = line.blocks.is_empty() || steady.contains(&line.run);
        let others = [line.tried(), line.picked()];
        let Line { blocks, contestants, .. } = line;
        blocks.extend(others.into_iter().flatten());
        let raced = contestants.drain(..).filter_map(|Racer { kernel, us }| Some((kernel?, us)));
        let choices: Vec<_> = raced.collect();
        if choices.len() > 1 {
            blocks.push(Block { peer_us: [None; 2], choices });
        }
        for block in blocks {
            block.choices.retain(|(name, _)| !has_changed_since(&date, name));
        }
    }
    Ok(lines)
}

/// Whether a choice's kernel is another one than at that date.
fn has_changed_since(date: &str, name: &str) -> bool {
    if date < LOADERS_SINCE && name.contains("-threads_") {
        return true;
    }
    let is_promoted = name.contains("-p128");
    let takes_turns = |choice: Choice| choice.spec.resources().registers.turn_stages > 1;
    date < TURNS_SINCE && is_promoted && choice_of(name).is_some_and(takes_turns)
}

/// A problem with its timed choices and their microseconds, and the device.
pub(super) type Timings = (ProblemKey, Vec<(Choice, f64)>, DeviceFacts);

/// The problems of a file with their timed choices.
///
/// # Errors
/// The same as for [`judge`].
pub(super) fn timings_of(path: &Path) -> Result<Vec<Timings>> {
    let timed = |line: Line| {
        let device = line.device();
        Some((key_of(line.problem.as_deref()?)?, timings(&line.blocks), device))
    };
    Ok(lines(path)?.into_iter().filter_map(timed).collect())
}

/// The timed choices with their microseconds. A drift of the clock shows in the peer's readings and
/// is divided out. If these differ by more than [`MOST_DRIFT`], something disturbed the block, and
/// it is left out.
fn timings(blocks: &[Block]) -> Vec<(Choice, f64)> {
    let mut peers: Vec<f64> = blocks.iter().flat_map(|block| block.peer_us).flatten().collect();
    peers.sort_by(f64::total_cmp);
    let usual = peers.get(peers.len() / 2).copied();
    let mut timed = Vec::new();
    for Block { peer_us, choices } in blocks {
        let near: Vec<f64> = peer_us.iter().flatten().copied().collect();
        let (least, most) =
            near.iter().fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), us| {
                (least.min(*us), most.max(*us))
            });
        if most > least * MOST_DRIFT {
            continue;
        }
        let mean = near.iter().sum::<f64>() / near.len().max(1) as f64;
        let drift = usual.filter(|_| !near.is_empty()).map_or(1.0, |usual| mean / usual);
        let timings =
            choices.iter().filter_map(|(name, us)| Some((choice_of(name)?, (*us)? / drift)));
        timed.extend(timings);
    }
    timed
}

/// The time of the choice with the least estimate over the shortest time. `None` if nothing was
/// timed.
fn regret(key: &ProblemKey, blocks: &[Block], device: DeviceFacts) -> Option<f64> {
    let estimate = |(choice, us): (Choice, f64)| Some((key.cycles(&choice, device)?, us));
    let timed: Vec<(f64, f64)> = timings(blocks).into_iter().filter_map(estimate).collect();
    let pick = timed.iter().min_by(|a, b| a.0.total_cmp(&b.0))?.1;
    let best = timed.iter().map(|(_, us)| *us).min_by(f64::total_cmp)?;
    Some(pick / best)
}

/// The problem of a name such as `e4m3->bf16 kk 512x1024x64` or `bf16 kk 512x1024x64*8`. How sums
/// are added up, which may stand between types and majors, is left to the kernels.
fn key_of(name: &str) -> Option<ProblemKey> {
    let mut words = name.split(' ');
    let types = words.next()?;
    let (operands, output) = types.split_once("->").unwrap_or((types, types));
    let (operands, output): (Element, Element) = (operands.parse().ok()?, output.parse().ok()?);
    let precision = words.next()?.parse().unwrap_or_default();
    let elements = Elements { precision, ..Elements::new(operands, output) };
    let problem = named_problem(name, elements)?;
    Some(ProblemKey::of(&problem, &Config::new(operands).with_output(output)))
}

/// The choice of a name such as `bf16-kk-bf16-64x8x128-s8-w1-c4x1:split-2:1:dependent`.
fn choice_of(name: &str) -> Option<Choice> {
    let mut parts = name.split(':');
    let (spec, split) = (parts.next()?.parse().ok()?, parts.next()?.parse::<Split>().ok()?);
    let raster_rows = parts.next()?.parse().ok()?;
    let dependent_launch = parts.next() == Some("dependent");
    Some(Choice { spec, raster_rows, split, dependent_launch })
}

#[cfg(test)]
mod tests {
    use pgemm_plan::Major;

    use super::*;

    #[test]
    fn names_of_problems_are_read() {
        let batch = key_of("bf16 mn 49x57x32*6144").unwrap();
        assert_eq!((batch.n, batch.batch.count, batch.b_major), (57, 6144, Major::N));
        assert_eq!(key_of("e4m3->bf16 fast kk 8x16x32").unwrap().output, Element::Bf16);
        assert!(key_of("bf16 gelu kk 8x16x32").is_none());
    }

    /// Timings of kernels that are other ones by now say nothing.
    #[test]
    fn kernels_have_changed_since_old_runs() {
        let narrow = "e4m3-kk-bf16-128x80x128-s7-w2-c1x1-p128:whole:8:dependent";
        let wide = "e4m3-kk-bf16-192x80x128-s5-w3-c1x1-p128:whole:8:dependent";
        let loads = "bf16-kn-bf16-64x64x64-s6-w1-c1x1-threads_a:whole:1:dependent";
        for (date, name, changed) in [
            ("2026-11-25", narrow, true),
            ("2026-11-27T18:59:59Z", narrow, true),
            ("2026-11-27T20:07:47Z", narrow, false),
            ("2026-11-25", wide, false),
            ("2026-11-24T18:54:03Z", loads, true),
            ("2026-11-26T10:49:48Z", loads, false),
        ] {
            assert_eq!(has_changed_since(date, name), changed, "{date} {name}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.jsonl");
        let problem = r#""problem":"e4m3->bf16 kk 512x512x4096""#;
        let choices = format!(r#"[["{narrow}",9.0],["{wide}",10.0]]"#);
        let text = [
            r#"{"run":"old","date":"2026-11-25","sm_count":132}"#.to_owned(),
            format!(
                r#"{{"run":"old",{problem},"blocks":[{{"peer_us":[1.0,1.0],"choices":{choices}}}]}}"#
            ),
        ];
        fs::write(&path, text.join("\n")).unwrap();
        assert_eq!(features(&path).unwrap().lines().count(), 2);
    }

    /// Two kernels of a race can be compared, and one cannot.
    #[test]
    fn races_of_two_kernels_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("races.jsonl");
        let racer = |tile: &str, us: f64| {
            let kernel = format!("bf16-kk-bf16-{tile}x64-s6-p2-c2x1:whole:8:dependent");
            format!(r#"{{"kernel":"{kernel}","us":{us:.1}}}"#)
        };
        let peer = r#"{"name":"cuBLASLt","us":45.0}"#.to_owned();
        for (racers, features_of) in [
            (vec![peer.clone(), racer("128x128", 50.0)], 0),
            (vec![peer, racer("128x128", 50.0), racer("128x96", 60.0)], 2),
        ] {
            let line = format!(
                r#"{{"run":"race","problem":"bf16 kk 4096x4096x4096","contestants":[{}]}}"#,
                racers.join(",")
            );
            fs::write(&path, line).unwrap();
            assert_eq!(features(&path).unwrap().lines().count(), 1 + features_of);
        }
    }

    /// Surveys of earlier schemas ran too briefly. An atlas times one kernel.
    #[test]
    fn surveys_say_whether_the_clock_was_steady() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mixed.jsonl");
        let kernel = "bf16-kk-bf16-128x128x64-s6-p2-c2x1:whole:8:dependent";
        let problem = r#""problem":"bf16 kk 4096x4096x4096""#;
        let blocks = format!(r#""blocks":[{{"peer_us":[1.0,1.0],"choices":[["{kernel}",50.0]]}}]"#);
        let f64_kernel = "f64-kk-f64-64x64x16-s7-w2x2-k8:whole:8:dependent";
        let f64_problem = r#""problem":"f64 kk 512x512x512""#;
        let text = [
            r#"{"run":"brief"}"#.to_owned(),
            format!(r#"{{"run":"brief",{problem},{blocks}}}"#),
            r#"{"run":"hot","steady":true}"#.to_owned(),
            format!(r#"{{"run":"hot",{problem},{blocks}}}"#),
            format!(r#"{{"run":"atlas",{problem},"kernel":"{kernel}","us":50.0,"ratio":[1,1,1]}}"#),
            format!(r#"{{"run":"atlas",{f64_problem},"kernel":"{f64_kernel}","us":20.0}}"#),
        ];
        fs::write(&path, text.join("\n")).unwrap();
        let table = features(&path).unwrap();
        let last = |line: &str| line.rsplit(',').next().map(str::to_owned);
        let steady: Vec<_> = table.lines().skip(1).filter_map(last).collect();
        assert_eq!(steady, ["0", "1", "1", "1"]);
        let kinds: Vec<_> = table.lines().filter_map(|line| line.split(',').nth(2)).collect();
        assert_eq!(kinds, ["kernels", "wgmma", "wgmma", "wgmma", "registers"]);
    }

    /// An H100 moves the same bytes in 1.47 times the cycles of an H200.
    #[test]
    fn features_are_those_of_the_device_of_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.jsonl");
        let kernel = "bf16-kk-bf16-128x128x64-s6-p2-c2x1:whole:8:dependent";
        let timed = |run: &str| {
            let problem = r#""problem":"bf16 kk 8192x8192x64""#;
            format!(r#"{{"run":"{run}",{problem},"kernel":"{kernel}","us":50.0,"ratio":[1,1,1]}}"#)
        };
        let text = [
            r#"{"run":"h100","sm_count":132,"memory_mb_per_second":3352320}"#.to_owned(),
            timed("h100"),
            r#"{"run":"h200","sm_count":132}"#.to_owned(),
            timed("h200"),
        ];
        fs::write(&path, text.join("\n")).unwrap();
        let table = features(&path).unwrap();
        let estimate = |line: &str| line.split(',').nth(4)?.parse::<f64>().ok();
        let estimates: Vec<f64> = table.lines().skip(1).filter_map(estimate).collect();
        let [h100, h200] = estimates[..] else { panic!("{table}") };
        assert!(h100 > 1.1 * h200 && h100 < 1.47 * h200, "{h100}, {h200}");
    }

    #[test]
    fn trials_of_the_autotuner_are_timings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("autotune.jsonl");
        let (pick, other) =
            ["bf16-kk-bf16-128x256x64-s4-w2-c2x1", "bf16-kk-bf16-128x128x64-s6-p2-c2x1"]
                .map(|spec| format!("{spec}:whole:8:dependent"))
                .into();
        let text = format!(
            r#"{{"run":"r","problem":"bf16 kk 4096x4096x4096","trials":[["{other}",1.25]],"heuristic":"{pick}","ratio":[1.0,2.0,3.0],"us":50.0}}
"#
        );
        fs::write(&path, text).unwrap();
        let [(_, timings, _)] = &timings_of(&path).unwrap()[..] else { panic!() };
        let found: Vec<(String, f64)> =
            timings.iter().map(|(choice, us)| (choice.spec.to_string(), *us)).collect();
        let expected = [(&pick, 100.0), (&other, 80.0)];
        let name = |choice: &str| choice.split(':').next().unwrap_or_default().to_owned();
        assert_eq!(found, expected.map(|(choice, us)| (name(choice), us)));
    }

    #[test]
    fn the_regret_is_that_of_the_least_estimate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("survey.jsonl");
        // Of a product with one row of tiles, a tile of 256 columns wastes most of its work.
        let narrow = "bf16-kkm-bf16-64x16x128-s8-w1-c1x1:whole:1:dependent";
        let wide = "bf16-kk-bf16-128x256x64-s4-w2-c1x1:whole:1:dependent";
        let text = format!(
            r#"{{"format":1,"run":"r"}}
{{"run":"r","problem":"bf16 kk 16x8192x8192","blocks":[{{"peer_us":[10.0,10.0],"choices":[["{narrow}",40.0]]}},{{"peer_us":[20.0,null],"choices":[["{wide}",40.0],["{wide}",null]]}}]}}
"#
        );
        fs::write(&path, &text).unwrap();
        let [judgement] = &judge(&path).unwrap()[..] else { panic!() };
        assert_eq!(judgement.regrets, [(2.0, "bf16 kk 16x8192x8192".to_owned())]);
        assert_eq!((judgement.mean(), judgement.quantile(0.95)), (Some(2.0), Some(2.0)));

        // Something disturbed the block: the peer took twice as long after it as before.
        let disturbed = text.replace("[10.0,10.0]", "[10.0,20.0]");
        fs::write(&path, disturbed).unwrap();
        let [judgement] = &judge(&path).unwrap()[..] else { panic!() };
        assert_eq!(judgement.mean(), Some(1.0));

        fs::write(&path, "{\n").unwrap();
        assert!(matches!(judge(&path), Err(BenchError::Report { .. })));
    }
}

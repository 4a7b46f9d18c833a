use std::collections::HashSet;

use pgemm_ir::Element;
use pgemm_plan::{KeyBatch, Major, Precision, Split};

use super::*;

const SMS: u32 = 132;

fn key(m: usize, n: usize, k: usize) -> ProblemKey {
    ProblemKey {
        m,
        n,
        k,
        dtype: Element::Bf16,
        b_dtype: None,
        output: Element::Bf16,
        precision: Precision::Full,
        a_major: Major::K,
        b_major: Major::N,
        batch: KeyBatch::default(),
    }
}

/// Counts its timings: the nth timing returns n microseconds, and choices split along k cannot run.
#[derive(Default)]
struct Counting {
    readings: u32,
    peers: u32,
    lost_after: Option<u32>,
}

impl SurveyTimer for Counting {
    fn choice(&mut self, choice: &Choice) -> Result<Result<f64, String>> {
        self.readings += 1;
        if self.lost_after.is_some_and(|last| self.readings > last) {
            return Err(Error::NoDevice.into());
        }
        Ok(match choice.split {
            Split::Whole => Ok(f64::from(self.readings) + 1e-5),
            split => Err(format!("no {split}")),
        })
    }

    fn peer(&mut self) -> Result<Option<f64>> {
        self.readings += 1;
        self.peers += 1;
        Ok(Some(f64::from(self.readings)))
    }
}

fn survey(rows: Vec<SurveyRow>) -> Survey {
    let machine = Machine { sm_count: SMS, ..Machine::example() };
    Survey { rows, ..Survey::new(machine, SurveyOptions::default()) }
}

#[test]
fn choices_are_the_best_within_a_factor_and_a_limit() {
    let key = key(1024, 1536, 4096);
    let options = SurveyOptions { limit: usize::MAX, ..SurveyOptions::default() };
    let cycles = |choice: &Choice| heuristic::cycles(choice, key.shape(), SMS);
    let near = options.choices(&key, SMS);
    assert!(near.is_sorted_by_key(cycles));
    assert!(near.iter().all(|choice| cycles(choice) <= 3.0 * cycles(&near[0])));
    assert!(near.iter().all(|choice| choice.spec.cluster == Cluster::NONE));
    assert!(near.iter().any(|choice| choice.split != Split::Whole));
    assert!(near.iter().any(Choice::swapped) && !near.iter().all(Choice::swapped));

    let few = SurveyOptions { limit: 7, ..options }.choices(&key, SMS);
    assert_eq!(few, near[..7]);
    let all = SurveyOptions { within: 1e9, ..options }.choices(&key, SMS);
    assert!(all.len() > near.len());
    let clusters = SurveyOptions { clusters: true, within: 1e9, ..options }.choices(&key, SMS);
    let specs: HashSet<_> = clusters.iter().map(|choice| choice.spec).collect();
    assert_eq!(specs, key.specs().collect());
}

#[test]
fn options_that_measure_nothing_are_refused() {
    let refused = |options: SurveyOptions| options.check().unwrap_err().to_string();
    let usual = SurveyOptions::default();
    usual.check().unwrap();
    assert!(refused(SurveyOptions { limit: 0, ..usual }).contains("0 choices"));
    for seconds_per_choice in [0.0, f64::NAN, 2.0] {
        let text = refused(SurveyOptions { seconds_per_choice, ..usual });
        assert!(text.contains("at most 1 s"), "{text}");
    }
    for within in [0.5, f64::NAN, f64::INFINITY] {
        assert!(refused(SurveyOptions { within, ..usual }).contains("at least 1"));
    }
}

#[test]
fn long_problems_are_seen_coming() {
    let options = SurveyOptions::default();
    let seconds = |key: ProblemKey| options.seconds(&key, &options.choices(&key, SMS), SMS);
    assert!(seconds(key(8192, 8192, 8192)) < 3.0);
    assert!(seconds(key(65536, 65536, 65536)) > MAX_PROBLEM_SECONDS);
}

#[test]
fn the_peer_is_read_around_every_few_choices() {
    let key = key(512, 512, 4096);
    // One choice in three is split.
    let spec = key.specs().next().unwrap();
    let split = |rows| if rows % 3 == 0 { Split::StreamK } else { Split::Whole };
    let choices: Vec<_> = (1..=19)
        .map(|raster_rows| Choice { raster_rows, split: split(raster_rows), ..Choice::plain(spec) })
        .collect();
    let mut timer = Counting::default();
    let mut heard = Vec::new();
    let rows = rows(&mut timer, &key, &choices, LaunchMode::Graph, &mut |done| {
        heard.push(done);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(heard, (0..19).collect::<Vec<_>>());
    assert_eq!(timer.peers, 4);
    // Readings: the peer 1, eight choices, the peer 10, eight choices, the peer 19, three choices,
    // the peer 23.
    let around: Vec<_> = rows.iter().map(|row| row.peer_microseconds.map(Option::unwrap)).collect();
    assert_eq!(around[..8], [[1.0, 10.0]; 8]);
    assert_eq!(around[8..16], [[10.0, 19.0]; 8]);
    assert_eq!(around[16..], [[19.0, 23.0]; 3]);
    assert_eq!(rows.iter().map(|row| row.choice).collect::<Vec<_>>(), choices);
    // Times are rounded to nanoseconds. A failure is recorded, and the survey continues.
    for row in &rows {
        match row.choice.split {
            Split::Whole => assert_eq!(row.microseconds.unwrap().fract(), 0.0),
            split => assert_eq!(row.error, Some(format!("no {split}"))),
        }
        assert_eq!(row.microseconds.is_some(), row.error.is_none());
    }

    let mut lost = Counting { lost_after: Some(3), ..Counting::default() };
    let error = super::rows(&mut lost, &key, &choices, LaunchMode::Graph, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap_err();
    assert!(matches!(error, BenchError::Gemm(Error::NoDevice)));

    let mut timer = Counting::default();
    let stop = |done| if done == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let stopped = super::rows(&mut timer, &key, &choices, LaunchMode::Graph, &mut { stop });
    assert!(matches!(stopped, Err(BenchError::Stopped)));
    assert_eq!((timer.readings, timer.peers), (6, 1));
}

#[test]
fn a_file_has_one_row_a_line_and_reads_back() {
    let key = key(512, 512, 4096);
    let choices = SurveyOptions::default().choices(&key, SMS);
    let rows = rows(&mut Counting::default(), &key, &choices, LaunchMode::Graph, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/survey.json");
    let survey = survey(rows);
    survey.write(&path).unwrap();
    survey.write(&path).unwrap();
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), choices.len() + 2);
    let line: serde_json::Value =
        serde_json::from_str(text.lines().nth(1).unwrap().trim_end_matches(',')).unwrap();
    assert_eq!(line["m"], 512);
    assert_eq!(line["dtype"], "bf16");
    assert_eq!(line["spec"], choices[0].spec.to_string());
    assert_eq!(line["launch"], "graph");
    assert_eq!(serde_json::from_str::<Survey>(&text).unwrap(), survey);

    let empty = Survey { rows: Vec::new(), ..survey };
    assert_eq!(serde_json::from_str::<Survey>(&empty.text().unwrap()).unwrap(), empty);
}

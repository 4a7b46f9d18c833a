use std::collections::HashSet;

use persistent_gemm::measure::Slice;
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

/// A measurement in which contestant i took i + 1 microseconds and a bit.
fn measurement(contestants: usize) -> Measurement {
    let slice = |contestant| Slice {
        contestant,
        gemms: 10,
        seconds: 1e-5 * (contestant as f64 + 1.0 + 1e-5),
        state: Default::default(),
    };
    Measurement {
        launch: LaunchMode::Graph,
        gemms_per_slice: vec![10; contestants],
        warm_up_seconds: 0.0,
        settled: None,
        rounds: vec![(0..contestants).map(slice).collect()],
        energy_blocks: vec![],
    }
}

/// The rows of these choices, all of which ran.
fn rows_of(key: &ProblemKey, choices: &[Choice]) -> Vec<SurveyRow> {
    let entered: Vec<_> = choices.iter().map(|choice| (*choice, Ok(()))).collect();
    rows(key, &entered, true, Some(&measurement(choices.len() + 1)))
}

fn survey(rows: Vec<SurveyRow>) -> Survey {
    let machine = Machine { sm_count: SMS, ..Machine::example() };
    Survey { rows, ..Survey::new(machine, SurveyOptions::default()) }
}

#[test]
fn a_lead_in_is_part_of_the_protocol_and_of_the_time() {
    let options = SurveyOptions { seconds_per_choice: 0.06, ..SurveyOptions::default() };
    let led = SurveyOptions { lead_in_seconds: 0.07, ..options };
    let parts = |options: &SurveyOptions| {
        let protocol = options.protocol();
        (protocol.rounds, protocol.lead_in_seconds, protocol.slice_seconds)
    };
    assert_eq!((parts(&options), parts(&led)), ((3, 0.0, 0.01), (1, 0.07, 0.03)));
    let key = key(64, 64, 64);
    let choices = options.choices(&key, SMS);
    let [brief, long] = [options, led].map(|options| options.seconds(&key, &choices, SMS.into()));
    assert!((long - brief - 0.14 * choices.len() as f64).abs() < 1e-9, "{brief}, {long}");
    for lead_in_seconds in [-0.1, 1.1, f64::NAN] {
        let error = SurveyOptions { lead_in_seconds, ..options }.check().unwrap_err().to_string();
        assert!(error.contains("give 0 to 1 s"), "{error}");
    }
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
fn the_best_kernels_run_with_all_their_launches_and_others_with_one() {
    let key = key(640, 640, 640);
    let all = SurveyOptions {
        limit: usize::MAX,
        within: 1.3,
        clusters: true,
        source: ChoiceSource::Rule,
        ..SurveyOptions::default()
    };
    let few = SurveyOptions { limit: 14, ..all };
    let [all, few] = [all, few].map(|options| options.choices(&key, SMS));
    assert_eq!(few.len(), 14);
    let launches = |among: &[Choice], choice: &Choice| {
        let same = |other: &&Choice| (other.spec, other.split) == (choice.spec, choice.split);
        among.iter().filter(same).count()
    };
    let (best, drawn) = few.split_at(8);
    assert!(best.iter().all(|choice| launches(&few, choice) == launches(&all, choice)));
    assert!(best.iter().any(|choice| launches(&few, choice) == 2));
    assert!(drawn.iter().all(|choice| launches(&few, choice) == 1));
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
    let seconds = |key: ProblemKey| options.seconds(&key, &options.choices(&key, SMS), SMS.into());
    assert!(seconds(key(8192, 8192, 8192)) < 3.0);
    assert!(seconds(key(65536, 65536, 65536)) > MAX_PROBLEM_SECONDS);
}

#[test]
fn choices_that_cannot_run_have_rows_that_say_why() {
    let key = key(512, 512, 4096);
    let spec = key.specs().next().unwrap();
    let choice = |raster_rows| Choice { raster_rows, ..Choice::plain(spec) };
    let fails = Err("no memory".to_owned());
    let entered = [(choice(1), Ok(())), (choice(2), fails.clone()), (choice(3), Ok(()))];
    let of = |peer, measurement: Option<&Measurement>| {
        let rows = rows(&key, &entered, peer, measurement);
        assert!(rows.iter().zip(&entered).all(|(row, (choice, _))| row.choice == *choice));
        assert_eq!(rows[1].error.as_deref(), Some("no memory"));
        let times = rows.iter().map(|row| row.microseconds).collect::<Vec<_>>();
        (times, rows[2].peer_microseconds)
    };
    // Two choices ran and then the peer. Times are rounded to nanoseconds.
    assert_eq!(of(true, Some(&measurement(3))), (vec![Some(1.0), None, Some(2.0)], Some(3.0)));
    assert_eq!(of(false, Some(&measurement(2))), (vec![Some(1.0), None, Some(2.0)], None));
    assert_eq!(of(false, None), (vec![None; 3], None));
}

#[test]
fn choices_run_hot() {
    let of = |seconds_per_choice| {
        let options = SurveyOptions { seconds_per_choice, ..SurveyOptions::default() };
        let protocol = options.protocol();
        (protocol.warm_up_min_seconds, protocol.slice_seconds)
    };
    assert_eq!(of(0.06), (HEAT_SECONDS, 0.01));
    assert_eq!(of(0.001), (HEAT_SECONDS, Protocol::SHORTEST_QUICK_SLICE));
}

#[test]
fn a_file_has_one_row_a_line_and_reads_back() {
    let key = key(512, 512, 4096);
    let choices = SurveyOptions::default().choices(&key, SMS);
    let rows = rows_of(&key, &choices);
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

//! The protocol on a fake clock: order of slices, counts, ratios, settling.

use std::collections::BTreeSet;
use std::f64::consts::TAU;

use super::*;
use crate::stats::Summary;

/// A card whose contestants take known times, whose clock warms up and drifts, and that logs what
/// it is asked.
struct FakeCard {
    /// Seconds per GEMM of each contestant at full clock.
    gemm_seconds: Vec<f64>,
    /// GEMMs per graph, once graphs are in use.
    graph: Option<u64>,
    /// GPU seconds so far.
    now: f64,
    /// Each second makes everything this much slower.
    drift: f64,
    /// Everything is by up to this part slower or faster in a swing of so many seconds.
    swing: Option<(f64, f64)>,
    /// SM clock in MHz at a time; `None` hides the sensors.
    clock: Option<fn(f64) -> u32>,
    slices: Vec<(usize, u64)>,
    blocks: Vec<(usize, u64)>,
}

impl FakeCard {
    fn new(gemm_seconds: &[f64]) -> FakeCard {
        FakeCard {
            gemm_seconds: gemm_seconds.to_vec(),
            graph: None,
            now: 0.0,
            drift: 0.0,
            swing: None,
            clock: Some(|_| 1500),
            slices: Vec::new(),
            blocks: Vec::new(),
        }
    }

    fn advance(&mut self, contestant: usize, gemms: u64) -> SliceReading {
        assert_eq!(gemms % self.gemms_per_submission(contestant), 0);
        let swing = |(part, period): (f64, f64)| part * (TAU * self.now / period).cos();
        let slowness = 1.0 + self.drift * self.now + self.swing.map_or(0.0, swing);
        let seconds = self.gemm_seconds[contestant] * gemms as f64 * slowness;
        self.now += seconds;
        let state = self.clock.map_or_else(PowerSample::default, |clock| PowerSample {
            sm_clock_mhz: Some(clock(self.now)),
            power_watts: Some(600.0),
            ..PowerSample::default()
        });
        SliceReading { seconds, state }
    }
}

impl SliceRunner for FakeCard {
    fn contestants(&self) -> usize {
        self.gemm_seconds.len()
    }

    fn use_graphs(&mut self, seconds_per_gemm: &[f64]) -> Result<()> {
        assert_eq!(seconds_per_gemm.len(), self.contestants());
        self.graph = Some(100);
        Ok(())
    }

    fn gemms_per_submission(&self, _: usize) -> u64 {
        self.graph.unwrap_or(1)
    }

    fn slice(&mut self, contestant: usize, gemms: u64) -> Result<SliceReading> {
        self.slices.push((contestant, gemms));
        Ok(self.advance(contestant, gemms))
    }

    fn energy_block(
        &mut self,
        contestant: usize,
        gemms: u64,
    ) -> Result<(SliceReading, Option<EnergyReading>)> {
        self.blocks.push((contestant, gemms));
        let reading = self.advance(contestant, gemms);
        // Contestant 0 draws 500 W, contestant 1 600 W, …
        let watts = 500.0 + 100.0 * contestant as f64;
        Ok((reading, Some(EnergyReading { watts, seconds: 0.4, joules: 0.4 * watts })))
    }
}

fn protocol() -> Protocol {
    Protocol { rounds: 9, palindromes_per_round: 1, energy_rounds: 2, ..Protocol::within(6.0, 2) }
}

#[test]
fn rounds_and_blocks_run_a_b_b_a() {
    let mut card = FakeCard::new(&[1e-3, 2e-3]);
    let measurement = measure(&mut card, &protocol()).unwrap();
    assert_eq!(measurement.rounds.len(), 9);
    for round in &measurement.rounds {
        let order: Vec<_> = round.iter().map(|slice| slice.contestant).collect();
        assert_eq!(order, [0, 1, 1, 0]);
    }
    let blocks: Vec<_> = card.blocks.iter().map(|block| block.0).collect();
    assert_eq!(blocks, [0, 1, 1, 0, 0, 1, 1, 0]);
    // The last 36 slices that the card saw are the rounds: nothing runs between them.
    let tail: Vec<_> = card.slices.iter().rev().take(36).map(|slice| slice.0).collect();
    assert_eq!(tail, [0, 1, 1, 0].repeat(9));
}

#[test]
fn a_lead_in_runs_before_each_slice_and_is_not_timed() {
    let mut card = FakeCard::new(&[1e-3, 2e-3]);
    let protocol = Protocol { lead_in_seconds: 0.08, ..protocol() };
    let measurement = measure(&mut card, &protocol).unwrap();
    assert_eq!(measurement.gemms_per_slice, [20, 10]);
    let tail: Vec<_> = card.slices.iter().rev().take(8).map(|slice| (slice.0, slice.1)).collect();
    assert_eq!(tail, [(0, 20), (0, 80), (1, 10), (1, 40), (1, 10), (1, 40), (0, 20), (0, 80)]);
    assert!(measurement.rounds.iter().all(|round| round.len() == 4));
    let endless = Protocol { lead_in_seconds: 1e9, ..protocol };
    assert!(measure(&mut card, &endless).unwrap_err().to_string().contains("lead_in_seconds"));
}

#[test]
fn many_candidates_interleave_forwards_and_backwards() {
    let order = |first| palindrome(4, first).collect::<Vec<_>>();
    assert_eq!(order(0), [0, 1, 2, 3, 3, 2, 1, 0]);
    assert_eq!(order(3), [3, 0, 1, 2, 2, 1, 0, 3]);
    let mut card = FakeCard::new(&[1e-3, 2e-3, 4e-3]);
    let measurement = measure(&mut card, &protocol()).unwrap();
    let order: Vec<_> = measurement.rounds[0].iter().map(|slice| slice.contestant).collect();
    assert_eq!(order, [0, 1, 2, 2, 1, 0]);
    for contestants in [1, 2, 3, 4, 9, 10, 12, 30] {
        let mut card = FakeCard::new(&vec![1e-3; contestants]);
        let protocol = Protocol { rounds: contestants as u32, ..protocol() };
        let measurement = measure(&mut card, &protocol).unwrap();
        let firsts: BTreeSet<_> =
            measurement.rounds.iter().map(|round| round[0].contestant).collect();
        assert_eq!(firsts.len(), if contestants == 2 { 1 } else { contestants });
    }
    let median = |ours| Summary::of(&measurement.ratios(ours, 0)).unwrap().median;
    assert!((median(1) - 0.5).abs() < 1e-9);
    assert!((median(2) - 0.25).abs() < 1e-9);
}

#[test]
fn ratio_is_peer_time_over_our_time() {
    let mut card = FakeCard::new(&[1e-3, 1.25e-3]);
    let measurement = measure(&mut card, &protocol()).unwrap();
    let ratios = measurement.ratios(0, 1);
    assert_eq!(ratios.len(), 9);
    assert!(ratios.iter().all(|ratio| (ratio - 1.25).abs() < 1e-9));
    assert!(measurement.seconds_per_gemm(1).iter().all(|s| (s - 1.25e-3).abs() < 1e-12));
}

#[test]
fn rounds_may_hold_several_palindromes() {
    let mut card = FakeCard::new(&[1e-3, 2e-3]);
    let protocol = Protocol { palindromes_per_round: 3, ..protocol() };
    let measurement = measure(&mut card, &protocol).unwrap();
    let order: Vec<_> = measurement.rounds[4].iter().map(|slice| slice.contestant).collect();
    assert_eq!(order, [0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0]);
    assert_eq!(measurement.ratios(0, 1).len(), 9);
    assert!((measurement.ratios(0, 1)[4] - 2.0).abs() < 1e-9);
}

#[test]
fn swings_as_long_as_a_palindrome_cancel_over_many() {
    let mut card = FakeCard::new(&[1e-3; 10]);
    let protocol = Protocol { rounds: 10, ..Protocol::within(6.0, 10) };
    let palindrome = 20.0 * protocol.slice_seconds;
    card.swing = Some((0.1, palindrome));
    let measurement = measure(&mut card, &protocol).unwrap();
    let (mut worst, mut mean) = (0.0f64, 0.0f64);
    for contestant in 1..10 {
        let ratios = measurement.ratios(contestant, 0);
        worst = ratios.iter().fold(worst, |worst, ratio| worst.max((ratio - 1.0).abs()));
        mean = mean.max((ratios.iter().sum::<f64>() / 10.0 - 1.0).abs());
    }
    assert!(worst > 0.05 && mean < worst / 10.0, "{worst} {mean}");
}

#[test]
fn linear_drift_cancels() {
    let mut card = FakeCard::new(&[1e-3, 1e-3]);
    card.drift = 0.2;
    let measurement = measure(&mut card, &protocol()).unwrap();
    let (first, last) = (&measurement.rounds[0], &measurement.rounds[8]);
    assert!(last[0].seconds > 1.02 * first[0].seconds, "the drift must be visible in the slices");
    for ratio in measurement.ratios(0, 1) {
        assert!((ratio - 1.0).abs() < 1e-4, "{ratio}");
    }
}

#[test]
fn slices_reach_their_length_and_counts_are_chosen_once() {
    let mut card = FakeCard::new(&[0.3e-3, 0.7e-3]);
    let protocol = protocol();
    let measurement = measure(&mut card, &protocol).unwrap();
    for slice in measurement.rounds.iter().flatten() {
        assert!(slice.seconds >= protocol.slice_seconds * 0.999);
        assert!(slice.seconds <= protocol.slice_seconds * 1.1);
        assert_eq!(slice.gemms, measurement.gemms_per_slice[slice.contestant]);
    }
    for block in &measurement.energy_blocks {
        assert!(block.seconds >= protocol.block_seconds * 0.999);
    }
}

#[test]
fn a_gemm_longer_than_a_slice_runs_once() {
    let mut card = FakeCard::new(&[0.3, 0.2]);
    let measurement = measure(&mut card, &protocol()).unwrap();
    assert_eq!(measurement.gemms_per_slice, [1, 1]);
}

#[test]
fn small_problems_use_graphs_and_both_do() {
    let mut card = FakeCard::new(&[20e-6, 80e-6]);
    let measurement = measure(&mut card, &protocol()).unwrap();
    assert_eq!(measurement.launch, LaunchMode::Graph);
    assert!(measurement.gemms_per_slice.iter().all(|gemms| gemms % 100 == 0));

    let mut card = FakeCard::new(&[60e-6, 80e-6]);
    assert_eq!(measure(&mut card, &protocol()).unwrap().launch, LaunchMode::Eager);

    let mut card = FakeCard::new(&[20e-6, 80e-6]);
    let eager = Protocol { launch: LaunchChoice::Eager, ..protocol() };
    assert_eq!(measure(&mut card, &eager).unwrap().launch, LaunchMode::Eager);
    assert_eq!(card.graph, None);
}

#[test]
fn joules_are_power_times_time_per_gemm() {
    let mut card = FakeCard::new(&[1e-3, 2e-3]);
    let measurement = measure(&mut card, &protocol()).unwrap();
    assert_eq!(measurement.joules_per_gemm(0).len(), 4);
    assert!(measurement.joules_per_gemm(0).iter().all(|joules| (joules - 0.5).abs() < 1e-9));
    assert!(measurement.joules_per_gemm(1).iter().all(|joules| (joules - 1.2).abs() < 1e-9));
    assert_eq!(measurement.watts(1), Some(600.0));
    let alone = measurement.ratio_alone(0, 1).unwrap();
    assert!((alone - 2.0).abs() < 1e-9, "{alone}");
    let without = Protocol { energy_rounds: 0, ..protocol() };
    assert_eq!(measure(&mut card, &without).unwrap().ratio_alone(0, 1), None);
}

#[test]
fn warm_up_ends_when_the_clock_has_settled() {
    // The clock falls from 1980 to 1500 MHz during the first 1.2 s and stays there.
    let falling = |now: f64| (1980.0 - 400.0 * now.min(1.2)) as u32;
    let mut card = FakeCard::new(&[1e-3, 1e-3]);
    card.clock = Some(falling);
    let protocol = Protocol { warm_up_min_seconds: 0.5, warm_up_max_seconds: 10.0, ..protocol() };
    let measurement = measure(&mut card, &protocol).unwrap();
    assert_eq!(measurement.settled, Some(true));
    assert!((1.2..3.5).contains(&measurement.warm_up_seconds), "{}", measurement.warm_up_seconds);
}

#[test]
fn warm_up_is_bounded_and_says_that_it_did_not_settle() {
    let mut card = FakeCard::new(&[1e-3, 1e-3]);
    card.clock = Some(|now| 3000 - (300.0 * now) as u32);
    let measurement = measure(&mut card, &protocol()).unwrap();
    assert_eq!(measurement.settled, Some(false));
    assert!(measurement.warm_up_seconds < protocol().warm_up_max_seconds + 0.5);
}

#[test]
fn without_sensors_warm_up_takes_its_full_time() {
    let mut card = FakeCard::new(&[1e-3, 1e-3]);
    card.clock = None;
    let measurement = measure(&mut card, &protocol()).unwrap();
    assert_eq!(measurement.settled, None);
    assert!(measurement.warm_up_seconds >= protocol().warm_up_max_seconds);
    assert_eq!(measurement.sm_clock_mhz(0), None);
}

#[test]
fn budgets_are_kept() {
    for (seconds, contestants) in [(1.0, 2), (3.0, 2), (6.0, 2), (20.0, 2), (6.0, 5), (30.0, 9)] {
        let protocol = Protocol::within(seconds, contestants);
        assert!(protocol.slice_seconds >= Protocol::SHORTEST_SLICE);
        let mut card = FakeCard::new(&vec![100e-6; contestants]);
        measure(&mut card, &protocol).unwrap();
        assert!(card.now < 1.25 * seconds + 0.3, "{} s requested, {} s used", seconds, card.now);
    }
    assert_eq!(Protocol::default().rounds, 9);
    assert!(Protocol::default().palindromes_per_round >= 2);
    assert!(Protocol::default().energy_rounds >= 1);
    assert_eq!(Protocol::within(1.0, 2).energy_rounds, 0);
}

#[test]
fn impossible_protocols_are_refused() {
    let mut card = FakeCard::new(&[1e-3]);
    let message =
        |protocol: Protocol, card: &mut FakeCard| measure(card, &protocol).unwrap_err().to_string();
    assert!(message(Protocol { rounds: 0, ..protocol() }, &mut card).contains("round"));
    let endless = Protocol { slice_seconds: f64::INFINITY, ..protocol() };
    assert!(message(endless, &mut card).contains("slice_seconds"));
    assert!(message(protocol(), &mut FakeCard::new(&[])).contains("contestant"));
    assert!(message(protocol(), &mut FakeCard::new(&[0.0])).contains("no time"));
}

#[test]
fn a_quick_protocol_keeps_to_its_seconds() {
    for (seconds, contestants) in [(0.5, 2), (0.25, 2), (1.0, 9)] {
        let protocol = Protocol::quick(seconds, contestants);
        let slices = f64::from(2 * protocol.rounds * protocol.palindromes_per_round);
        let timed = slices * contestants as f64 * protocol.slice_seconds;
        let all = timed + protocol.warm_up_max_seconds;
        assert!((all - seconds).abs() < 1e-9, "{seconds} s, {contestants} contestants: {all}");
        assert_eq!(protocol.energy_rounds, 0);
    }
    // Slices do not become shorter than two graphs, nor does anything become undefined.
    assert_eq!(Protocol::quick(0.1, 50).slice_seconds, Protocol::SHORTEST_QUICK_SLICE);
    assert!(Protocol::quick(f64::NAN, 0).slice_seconds.is_finite());
}

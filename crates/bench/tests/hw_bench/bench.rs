//! The benchmark harness on a GPU: cuBLASLt against itself must come out even. Without a Hopper
//! device or cuBLASLt it says `SKIPPED`; with PGEMM_REQUIRE_GPU=1 that is a failure.

use std::io::Write;
use std::path::PathBuf;

use persistent_gemm::driver::StreamRef;
use persistent_gemm::measure::{
    Contestant, Elements, LaunchChoice, LaunchMode, MeasureError, Protocol,
};
use persistent_gemm::{Dtype, Major, Problem};
use pgemm_bench::{Bench, BenchError, CublasLt, CublasLtContestant, Outcome, Report};

use crate::device::device;

/// A bench and the peer, or `None` if there is none and none is required.
fn open() -> Option<(Bench, CublasLt)> {
    let device = device("the harness")?;
    let bench = Bench::new(&device).unwrap();
    match CublasLt::open(&device) {
        Ok(cublaslt) => Some((bench, cublaslt)),
        Err(error) if std::env::var_os("PGEMM_REQUIRE_GPU").is_some_and(|value| value == "1") => {
            panic!("the harness needs cuBLASLt: {error}")
        }
        Err(error) => {
            // Past the test harness's capture; where stderr is closed there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "SKIPPED: the harness: {error}");
            None
        }
    }
}

fn bf16() -> Elements {
    Elements::new(Dtype::Bf16, Dtype::Bf16)
}

/// cuBLASLt's first pick against itself.
fn against_itself(bench: &Bench, cublaslt: &CublasLt, protocol: &Protocol) -> Outcome {
    let problem = Problem::new(2048, 2048, 2048, Major::K, Major::K);
    let operands = bench.operands(&problem, bf16(), 1).unwrap();
    assert!(operands.count() >= 2);
    assert!(operands.total_bytes() > 2 * bench.device().properties().l2_bytes);
    let mut ours = CublasLtContestant::first_pick(cublaslt, &operands).unwrap();
    let mut peer = ours.clone().named("the same again");
    bench.pair(&operands, &mut ours, &mut peer, protocol).unwrap()
}

fn print(outcome: &Outcome) {
    for row in outcome.rows() {
        println!(
            "{} {}: {} {:.4} ({:.4} to {:.4}) of {}; {:.2} against {:.2} us, {:.0} against {:.0} \
             TFLOP/s, {:?} against {:?} J, {:?} against {:?} MHz",
            row.problem,
            row.launch,
            row.name,
            row.ratio,
            row.ratio_min,
            row.ratio_max,
            row.peer,
            row.microseconds,
            row.peer_microseconds,
            row.teraflops,
            row.peer_teraflops,
            row.joules,
            row.peer_joules,
            row.sm_clock_mhz,
            row.peer_sm_clock_mhz,
        );
    }
}

/// One test, because measurements that run side by side disturb each other.
#[test]
fn the_harness_is_fair_and_the_gate_holds() {
    let Some((bench, cublaslt)) = open() else { return };
    println!("cuBLASLt {} at {}", cublaslt.version(), cublaslt.path().display());
    let mut report = Report::new(bench.machine(Some(&cublaslt)));
    println!("{:?}", report.machine);

    for (choice, mode, seconds) in [
        (LaunchChoice::Eager, LaunchMode::Eager, 6.0),
        (LaunchChoice::Auto, LaunchMode::Graph, 6.0),
    ] {
        let protocol = Protocol { launch: choice, ..Protocol::within(seconds, 2) };
        let outcome = against_itself(&bench, &cublaslt, &protocol);
        print(&outcome);
        assert_eq!(outcome.launch(), mode);
        let ours = &outcome.contestants[0];
        assert!((0.9..1.1).contains(&ours.ratio.median), "{:?}", ours.ratio);
        assert_eq!(ours.ratio.count, 9);
        if bench.meter().is_available() {
            for contestant in &outcome.contestants {
                let joules = contestant.joules.expect("NVML is there, so energy is too");
                assert!(joules.min > 0.0, "{joules:?}");
                assert!(contestant.sm_clock_mhz.is_some_and(|clock| clock > 100.0));
            }
        }
        report.outcomes.push(outcome);
    }

    majors_types_and_scalars(&bench, &cublaslt);
    wrong_results_are_not_timed(&bench, &cublaslt);
    report.outcomes.extend(candidates(&bench, &cublaslt));

    let folder = tempfile::tempdir().unwrap();
    let path = match std::env::var_os("PGEMM_BENCH_JSON") {
        Some(path) => PathBuf::from(path),
        None => folder.path().join("report.json"),
    };
    report.write(&path).unwrap();
    assert_eq!(Report::read(&path).unwrap(), report);
}

/// cuBLASLt's results agree with the reference in all layouts, so its operands are described
/// rightly.
fn majors_types_and_scalars(bench: &Bench, cublaslt: &CublasLt) {
    for (element, output) in [
        (Dtype::Bf16, Dtype::Bf16),
        (Dtype::Bf16, Dtype::F32),
        (Dtype::F16, Dtype::F16),
        (Dtype::F16, Dtype::F32),
    ] {
        for (a_major, b_major) in
            [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)]
        {
            let plain = Problem::new(200, 328, 264, a_major, b_major);
            let strided = plain
                .with_a_leading_dimension(plain.a.leading_dimension + 8)
                .with_b_leading_dimension(plain.b.leading_dimension + 16)
                .with_c_leading_dimension(336)
                .with_d_leading_dimension(344)
                .with_alpha(0.5)
                .with_beta(-1.5);
            let shared = plain.with_batch(5).with_b_batch_stride(0);
            for problem in [plain, strided, strided.with_batch(3), shared] {
                let operands = bench.operands(&problem, Elements::new(element, output), 3).unwrap();
                for mut candidate in CublasLtContestant::all(cublaslt, &operands).unwrap() {
                    bench.verify(&operands, &mut candidate).unwrap();
                }
            }
        }
    }
    // Large enough to be compared on sampled rows.
    let problem = Problem::new(4096, 4096, 1024, Major::M, Major::N);
    let operands = bench.operands(&problem, bf16(), 4).unwrap();
    let mut peer = CublasLtContestant::first_pick(cublaslt, &operands).unwrap();
    assert_eq!(bench.verify(&operands, &mut peer).unwrap().rows.map(|rows| rows.len()), Some(64));
}

/// A contestant that leaves its last set alone.
struct Lazy {
    inner: CublasLtContestant,
    sets: usize,
}

impl Contestant for Lazy {
    fn name(&self) -> &str {
        "lazy"
    }

    fn enqueue(&mut self, set: usize, stream: StreamRef<'_>) -> Result<(), MeasureError> {
        if set + 1 == self.sets { Ok(()) } else { self.inner.enqueue(set, stream) }
    }
}

fn wrong_results_are_not_timed(bench: &Bench, cublaslt: &CublasLt) {
    let problem = Problem::new(256, 256, 256, Major::K, Major::K);
    let operands = bench.operands(&problem, bf16(), 5).unwrap();
    let mut peer = CublasLtContestant::first_pick(cublaslt, &operands).unwrap();
    let mut lazy = Lazy { inner: peer.clone(), sets: operands.count() };
    let error = bench.pair(&operands, &mut lazy, &mut peer, &Protocol::within(1.0, 2)).unwrap_err();
    assert!(
        matches!(&error, BenchError::Measure(MeasureError::WrongResult { contestant, .. }) if contestant == "lazy"),
        "{error}"
    );
}

/// Several against one, and the best of the heuristic's candidates.
fn candidates(bench: &Bench, cublaslt: &CublasLt) -> Vec<Outcome> {
    let problem = Problem::new(1024, 1024, 1024, Major::K, Major::N);
    let operands = bench.operands(&problem, bf16(), 6).unwrap();
    let (best, found) =
        bench.best_cublaslt(cublaslt, &operands, &Protocol::within(3.0, 8)).unwrap();
    print(&found);
    let fastest =
        found.contestants.iter().map(|c| c.microseconds.median).fold(f64::INFINITY, f64::min);
    let name = format!("cuBLASLt #{}", best.rank());
    let picked = found.contestants.iter().find(|contestant| contestant.name == name).unwrap();
    assert_eq!(picked.microseconds.median, fastest);

    let mut first = CublasLtContestant::first_pick(cublaslt, &operands).unwrap();
    let mut again = first.clone().named("first pick again");
    let mut best = best;
    let outcome = bench
        .compare_many(
            &operands,
            &mut [&mut best, &mut again],
            &mut first,
            &Protocol::within(3.0, 3),
        )
        .unwrap();
    print(&outcome);
    assert_eq!((outcome.peer, outcome.contestants.len()), (0, 3));
    assert!((0.9..1.1).contains(&outcome.contestants[2].ratio.median));
    vec![found, outcome]
}

use pgemm_ir::Element;
use pgemm_plan::Major;

use super::*;
use persistent_gemm::Error;
use persistent_gemm::power::PowerSample;

/// A peer in three methods, and a resident kernel in two.
pub(crate) fn outcome() -> StreamOutcome {
    let problem = Problem::new(256, 256, 256, Major::K, Major::K);
    let elements = Elements::new(Element::Bf16, Element::Bf16);
    let times = |contestant: &str, method: Method, median: f64| MethodTimes {
        contestant: contestant.to_owned(),
        method,
        details: serde_json::json!({ "spec": "x" }),
        verification: Verification {
            rows: None,
            sets: vec![0, 9],
            comparisons: vec![],
            products: vec![],
        },
        clock: method.clock(),
        jobs: 1000,
        rounds: vec![median],
        microseconds: Summary::of(&[median]).unwrap(),
        host_microseconds: (method.clock() == Clock::Host).then(|| Summary::of(&[0.25]).unwrap()),
        teraflops: 33.5 / median,
    };
    StreamOutcome {
        name: problem_name(&problem, elements),
        problem,
        elements,
        count: 1000,
        operand_sets: 10,
        operand_bytes: 4000,
        methods: vec![
            times(PEER, Method::Eager, 4.0),
            times(PEER, Method::Graph, 2.0),
            times(PEER, Method::Branches, 1.0),
            times(RESIDENT, Method::Together, 0.5),
            times(RESIDENT, Method::OneByOne, 0.5),
            times(RESIDENT, Method::Chain, 4.0),
        ],
        alone: vec![AloneTimes::of(EMPTY, vec![3.0, 4.0, 5.0]).unwrap()],
        left_out: vec![],
        state: PowerSample::default(),
    }
}

#[test]
fn sets_divide_the_jobs_into_batches() {
    // All have their own where they fit.
    assert_eq!(sets_for(1000, 98_304), 1000);
    assert_eq!(sets_for(1, 98_304), 1);
    // 682 sets of 1024³ fit: two batches.
    assert_eq!(sets_for(1000, 6 << 20), 500);
    // 64x4096x4096: 124 fit, nine batches of 112 are 1008 jobs.
    assert_eq!(sets_for(1000, 34_603_008), 112);
    assert_eq!(sets_for(1000, 1 << 40), 2);
    assert_eq!(sets_for(100_000, 1024), 4000);
}

#[test]
fn results_of_the_first_and_the_last_set_are_compared() {
    assert_eq!(compared(1), [0]);
    assert_eq!(compared(2), [0, 1]);
    assert_eq!(compared(3), [0, 1, 2]);
    let many = compared(1000);
    assert_eq!((many.len(), many[0], many[7]), (8, 0, 999));
}

#[test]
fn only_plain_products_are_jobs() {
    let problem = Problem::new(64, 64, 64, Major::K, Major::K);
    let elements = Elements::new(Element::Bf16, Element::Bf16);
    assert!(check(&problem, elements, 1).is_ok());
    let finding =
        |problem, elements, count| check(&problem, elements, count).unwrap_err().to_string();
    assert!(finding(problem, elements, 0).contains("no jobs"));
    assert!(finding(problem.with_batch(2), elements, 1).contains("batches"));
    assert!(finding(problem.with_beta(1.0), elements, 1).contains("add C"));
    let relu = "relu".parse().unwrap();
    let fused = Elements { epilogue: relu, ..elements };
    assert!(finding(problem, fused, 1).contains("epilogue"));
}

/// Counts its repetitions, and takes the times given.
struct Fake {
    seconds: Vec<f64>,
    at: usize,
}

impl Runner for Fake {
    fn jobs(&self) -> usize {
        10
    }

    fn repeat(&mut self) -> Result<methods::Reading> {
        let seconds = self.seconds[self.at % self.seconds.len()];
        self.at += 1;
        Ok(methods::Reading { seconds, host_seconds: Some(seconds / 2.0) })
    }
}

#[test]
fn a_round_is_two_repetitions() {
    let outcome = outcome();
    let entrant = |seconds: &[f64]| TimedContestant {
        contestant: LAUNCHED.to_owned(),
        method: Method::Eager,
        details: serde_json::Value::Null,
        verification: outcome.methods[0].verification.clone(),
        runner: Box::new(Fake { seconds: seconds.to_vec(), at: 0 }),
        times: vec![],
        host_times: vec![],
    };
    let mut one = entrant(&[1e-5, 3e-5]);
    (0..4).for_each(|_| one.repeat().unwrap());
    let found = one.summary(2e6).unwrap();
    assert_eq!((found.rounds.len(), found.microseconds.median), (2, 2.0));
    assert_eq!(found.host_microseconds.unwrap().median, 1.0);
    assert_eq!((found.jobs, found.clock, found.teraflops), (10, Clock::Host, 1.0));
    assert!(entrant(&[1.0]).summary(1.0).is_none());
}

#[test]
fn the_fastest_of_several_is_the_one_with_the_shortest_repetition() {
    let all = [vec![3.0], vec![4.0, 1.0], vec![2.0]];
    let make = |rank: usize| Ok(Fake { seconds: all[rank].clone(), at: 0 });
    assert_eq!(fastest(3, make), 1);
    assert_eq!(fastest(1, |_| -> Result<Fake> { Err(Error::NoDevice.into()) }), 0);
    let failing = |rank| {
        if rank == 2 { Ok(Fake { seconds: vec![9.0], at: 0 }) } else { Err(Error::NoDevice.into()) }
    };
    assert_eq!(fastest(3, failing), 2);
}

#[test]
fn the_empty_kernel_can_be_built() {
    let kernel = pgemm_kernels::empty_kernel().unwrap();
    let ptx = pgemm_ptx::emit(&kernel).unwrap();
    assert!(ptx.contains(".entry empty("), "{ptx}");
}

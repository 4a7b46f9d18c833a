//! The host's side of the protocol and the resident kernel, both as engines run them, in the
//! emulator: their words are in its memory, and every access of the host is a turn among the
//! kernel's. So the schedule decides what the kernel finds, and races between the two are reported.

mod fault;
mod host;
mod products;
mod scenario;
mod submitter;

use pgemm_emulator::{ReportKind, Schedule};
use pgemm_ir::{Op, Order, Scope};
use pgemm_kernels::resident::layout::{LANE_SLOTS, RING_SLOTS};

use super::HOST;
use super::host_side::ABORTED;
use crate::error::{EngineError, Error};
use fault::Fault;
use host::Body;
use products::Products;
use scenario::{Found, IDLE, LARGER, SMALL, Scenario, Settings};
use submitter::{OfStream, submit};

/// Kernels of one consumer, of two that take turns, and of two that share a tile.
const SPECS: [&str; 3] = [
    "bf16-kk-f32-64x16x64-s2-w1-c1x1-resident",
    "bf16-kk-f32-64x16x64-s2-p2-c1x1-resident",
    "bf16-kk-f32-128x16x64-s2-w2-c1x1-resident",
];

/// All kinds of schedules, from one seed.
fn schedules(seed: u64) -> [Schedule; 4] {
    [
        Schedule::seeded(seed),
        Schedule::async_late(seed),
        Schedule::async_early(seed),
        Schedule::stores_late(seed),
    ]
}

#[test]
fn jobs_of_threads_and_streams_are_exact_under_any_schedule() {
    let mut most_launches = 0;
    for seed in 0..3 {
        for (at, schedule) in schedules(seed).into_iter().enumerate() {
            let spec = SPECS[(seed as usize + at) % SPECS.len()];
            let submitters = 1 + at % 2;
            let scenario = Scenario::of(spec, schedule, seed);
            let scenario = Scenario { submitters, of_streams: 6, pauses: at != 1, ..scenario };
            let run = scenario.run().unwrap_or_else(|found| panic!("seed {seed}: {found}"));
            most_launches = most_launches.max(run.launches);
        }
    }
    // Launch 0 runs at the beginning.
    assert!(most_launches > 2, "the kernel has hardly ever left");
}

/// More jobs than twice the slots of the ring and of the host's lane.
fn wrapping(schedule: Schedule, seed: u64) -> Scenario {
    assert_eq!(RING_SLOTS, LANE_SLOTS);
    let scenario = Scenario::of(SPECS[1], schedule, seed);
    Scenario {
        chains: 40,
        jobs: RING_SLOTS as usize,
        singles: 400,
        batch: 60,
        of_streams: 10,
        fills: true,
        ..scenario
    }
}

#[test]
fn jobs_are_exact_when_the_ring_and_the_lane_wrap() {
    for (seed, schedule) in [Schedule::round_robin(), Schedule::seeded(1)].into_iter().enumerate() {
        let scenario = Scenario { pauses: seed == 1, ..wrapping(schedule, seed as u64) };
        scenario.run().unwrap_or_else(|found| panic!("seed {seed}: {found}"));
    }
}

/// What the first seed finds at which a scenario with a broken rule goes wrong.
fn found(fault: Fault, scenario: impl Fn(u64) -> Scenario) -> Found {
    let runs = (0..4).map(|seed| scenario(seed).with_fault(fault).run());
    runs.filter_map(Result::err).next().unwrap_or_else(|| panic!("nothing notices {fault:?}"))
}

/// The rules hold in the tests above. Here each is broken, and the same runs go wrong.
#[test]
fn broken_rules_are_noticed() {
    let few = |seed| {
        let scenario = Scenario::of(SPECS[0], Schedule::seeded(seed), seed);
        Scenario { of_streams: 4, ..scenario }
    };
    for (fault, kind) in [
        (Fault::DoorbellFirst, ReportKind::Race),
        (Fault::DoorbellRelaxed, ReportKind::Race),
        (Fault::SecondIgnored, ReportKind::Race),
        (Fault::StreamUnfenced, ReportKind::Race),
        (Fault::LaneCountLow, ReportKind::Deadlock),
        (Fault::LaneCountHigh, ReportKind::Race),
    ] {
        let found = found(fault, few);
        assert_eq!(found.kind(), Some(kind), "{fault:?}: {found}");
    }
    // Jobs that are lost, or that have another record, show in various ways.
    for fault in [Fault::HintOfOtherRecord, Fault::HintOfOtherTiles, Fault::HintOfOtherCount] {
        found(fault, few);
    }
    let wraps = |seed| wrapping(Schedule::seeded(seed), seed);
    found(Fault::SlotTooEarly, wraps);
    let relaxed = found(Fault::CompletionRelaxed, wraps);
    assert_eq!(relaxed.kind(), Some(ReportKind::Race), "{relaxed}");
}

/// Runs two jobs, the second of which comes when the kernel leaves, from the host or from a stream.
/// Returns what goes wrong.
fn at_the_end(fault: Option<Fault>, on_stream: bool) -> Option<Found> {
    for seed in 0..2 {
        for pause in (IDLE - 8000..IDLE).step_by(200) {
            let settings = Settings::of(Schedule::stores_late(seed), pause);
            let settings = Settings { ctas: 1, streams: 1, fault, ..settings };
            let mut products = Products::new(SPECS[0], 1);
            let singles = submitter::singles(&mut products, 2, SMALL);
            let host = settings.host();
            let bodies: Vec<Body<'_>> = vec![Box::new(|| {
                // Launch 0 says first that it runs.
                host::sleep(2000);
                submit(&host, &[&singles[0].record], &[]);
                submitter::drain(&host);
                host::sleep(pause);
                if on_stream {
                    let job = submitter::submit_on(&host, 70, 0, &singles[1].record);
                    host::wait_until(|| host.is_done(job));
                } else {
                    submit(&host, &[&singles[1].record], &[]);
                }
                submitter::stop(&host);
            })];
            if let Err(found) = settings.run(&mut products, &host, bodies) {
                return Some(found);
            }
        }
    }
    None
}

/// Who submits a job rings and then looks whether the kernel has left. The kernel says that it
/// leaves and then looks at the doorbells.
#[test]
fn a_job_that_comes_when_the_kernel_leaves_needs_the_fence() {
    for on_stream in [false, true] {
        if let Some(found) = at_the_end(None, on_stream) {
            panic!("{on_stream}: {found}");
        }
        let found = at_the_end(Some(Fault::LookUnfenced), on_stream);
        let found = found.unwrap_or_else(|| panic!("{on_stream}: nothing notices the fence"));
        assert_eq!(found.kind(), Some(ReportKind::Deadlock), "{on_stream}: {found}");
    }
}

/// D is ordered by a fence of the GPU's scope, behind which only the device may read it. With one
/// of the system's scope in its place the host may, if it has read the completion word with acquire.
#[test]
fn what_a_job_has_stored_is_there_when_it_is_said_to_be_done() {
    let widened = |fault| {
        let settings = Settings { fault, ..Settings::of(Schedule::seeded(2), 2) };
        let mut products = Products::new(SPECS[1], 3);
        let mut fences = 0;
        products.kernel.kernel.visit_blocks_mut(&mut |block| {
            for inst in &mut block.insts {
                if inst.op == Op::Fence(Order::AcquireRelease, Scope::Gpu) {
                    inst.op = Op::Fence(Order::AcquireRelease, Scope::System);
                    fences += 1;
                }
            }
        });
        assert_eq!(fences, 1, "the fence before the completion words");
        let mut singles = submitter::singles(&mut products, 6, SMALL);
        let host = settings.host();
        let bodies: Vec<Body<'_>> = vec![Box::new(|| {
            for single in &mut singles {
                let job = submit(&host, &[single.submitted()], &[])[0];
                host::wait_until(|| host.is_done(job));
                assert!(single.output.holds_now());
            }
            submitter::stop(&host);
        })];
        settings.run(&mut products, &host, bodies)
    };
    if let Err(found) = widened(None) {
        panic!("{found}");
    }
    let Err(found) = widened(Some(Fault::CompletionRelaxed)) else { panic!("nothing notices it") };
    assert_eq!(found.kind(), Some(ReportKind::Race), "{found}");
}

#[test]
fn jobs_of_the_host_come_after_those_of_streams_that_are_done() {
    for (seed, schedule) in schedules(3).into_iter().enumerate() {
        let settings = Settings { streams: 3, ..Settings::of(schedule, seed as u64) };
        let mut products = Products::new(SPECS[0], 5);
        let mut of_streams = [0, 1, 2].map(|stream| OfStream {
            jobs: submitter::singles(&mut products, 2, LARGER),
            id: 70 + stream as u64,
            stream,
            random: seed as u64,
        });
        let factors = products.factors(LARGER);
        let mut sum = products.output(LARGER);
        let record = products.record(&factors, Some(&of_streams[0].jobs[1].output), &sum);
        let host = settings.host();
        let bodies: Vec<Body<'_>> = vec![Box::new(|| {
            host::delay(0, 4000);
            let [first, second, third] = &mut of_streams;
            let last = first.enqueue(&host);
            let mut job = [&record].into_iter().peekable();
            let early = host.submit(&mut job, [last].into_iter(), |_| panic!("submitted"));
            assert!(matches!(early, Err(EngineError::AfterStream { job: 1 })), "{early:?}");
            host::delay(1, 4000);
            let other = second.enqueue(&host);
            assert!(other.lane != last.lane && other.lane != HOST);
            let full = host.submit_on(third.id, &record, third.stream, |_| Ok(())).unwrap_err();
            assert!(matches!(full, Error::Engine(EngineError::Lanes { limit: 2 })), "{full}");
            host::wait_until(|| host.is_done(last));
            submit(&host, &[&record], &[last]);
            let stored = first.jobs[1].output.expected.iter().flatten();
            sum.expected =
                Some(stored.zip(&factors.sums).map(|(one, other)| one + other).collect());
            host::wait_until(|| host.is_done(other));
            // The third stream gets a lane that another one had.
            let again = third.enqueue(&host);
            assert!(again.lane != HOST && again.number == 3, "{again:?}");
            host::wait_until(|| host.is_done(again));
            submitter::stop(&host);
        })];
        let run = settings.run(&mut products, &host, bodies);
        run.unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        let all = of_streams.iter().flat_map(|stream| &stream.jobs).map(|single| &single.output);
        products.check("a result", all.chain([&sum])).unwrap_or_else(|found| panic!("{found}"));
    }
}

#[test]
fn what_an_abort_gives_up_is_not_said_to_be_done() {
    let mut given_up = 0;
    for (seed, schedule) in schedules(7).into_iter().enumerate() {
        let settings = Settings { streams: 1, ..Settings::of(schedule, seed as u64) };
        let mut products = Products::new(SPECS[2], 9);
        let mut singles = submitter::singles(&mut products, 12, [512, 64, 64]);
        let jobs = submitter::singles(&mut products, 2, LARGER);
        let mut of_stream = OfStream { jobs, id: 70, stream: 0, random: 1 };
        let host = settings.host();
        let mut done = vec![];
        let bodies: Vec<Body<'_>> = vec![Box::new(|| {
            let records: Vec<_> = singles.iter().map(|single| &single.record).collect();
            let jobs = submit(&host, &records, &[]);
            let last = of_stream.enqueue(&host);
            host::wait_until(|| host.is_done(jobs[seed]));
            host.abort();
            host::await_end();
            host.give_up();
            assert_eq!(host.phase(), ABORTED);
            // The stream goes on, whether its job is done or not.
            assert!(host.queue().is_done(last.completion()));
            done.extend(jobs.into_iter().map(|job| host.is_done(job)));
            host::end_bells();
        })];
        let run = settings.run(&mut products, &host, bodies);
        run.unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        assert!(done[seed], "the job that was waited for");
        given_up += done.iter().filter(|done| !**done).count();
        let done = singles.iter_mut().zip(done).filter(|(_, done)| *done);
        let outputs = done.map(|(single, _)| {
            single.output.expected = Some(single.sums.clone());
            &single.output
        });
        products.check("a result", outputs).unwrap_or_else(|found| panic!("{found}"));
    }
    assert!(given_up > 0, "all jobs were done");
}

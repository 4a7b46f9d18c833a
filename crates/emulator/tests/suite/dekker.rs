//! Stores that other observers see late (Dekker's pattern). An idle kernel announces its end and
//! then looks for a job once more. The host submits a job and then looks whether the kernel has
//! announced its end, in which case it launches again. Both need a fence between their store and
//! their load.

use pgemm_emulator::{
    HostStep, HostView, Memory, Options, Permission, Report, ReportKind, Schedule,
};
use pgemm_ir::{Argument, Kernel, KernelBuilder, Launch, Order, Scope, Val, ty};

use crate::host::{in_thread_0, run_hosted};
use crate::kernel::{assert_same_fault, passes, role, run_with, schedules, words};

const RUNS: u32 = 0;
const ENDS: u32 = 1;
const JOBS: u64 = 4;
/// Nanoseconds without a job after which the kernel ends. An operation takes one nanosecond.
const IDLE: u64 = 80;

/// Serves jobs until there has been none for a while. `without` names the step that is left out.
fn server(without: &'static str) -> Kernel {
    role(move |b| {
        let [doorbell, state, done] =
            ["doorbell", "state", "done"].map(|name| b.param::<ty::U64>(name));
        in_thread_0(b, 0, || {
            let head = || b.load_ordered::<ty::U64>(doorbell, Order::Acquire, Scope::System);
            let say = |what: u32| {
                b.store_ordered(state, b.constant(what), Order::Relaxed, Scope::System);
            };
            let [one, zero] = [1, 0].map(|value: u32| b.constant::<ty::U32>(value));
            say(RUNS);
            let served = b.load_ordered::<ty::U64>(done, Order::Relaxed, Scope::System);
            b.while_(
                (one, served, b.clock()),
                |(runs, ..)| runs.eq(1),
                |(_, served, last)| {
                    let found = head();
                    let serve = || {
                        b.store_ordered(done, found, Order::Release, Scope::System);
                        (one, found, b.clock())
                    };
                    let idle = || {
                        let ends = || {
                            say(ENDS);
                            if without != "kernel fence" {
                                b.fence(Order::SequentiallyConsistent, Scope::System);
                            }
                            let missed = match without {
                                "look" => served.lt(served),
                                _ => served.lt(head()),
                            };
                            b.if_else(
                                missed,
                                || {
                                    say(RUNS);
                                    one
                                },
                                || zero,
                            )
                        };
                        let waited = (b.clock() - last).ge(IDLE);
                        let runs = b.if_else(waited, ends, || one);
                        (runs, served, last)
                    };
                    b.if_else(served.lt(found), serve, idle)
                },
            );
        });
    })
}

/// Submits jobs with pauses drawn from a seed, and launches again if the kernel has announced its
/// end. Returns the number of launches.
fn submit(kernel: &Kernel, schedule: Schedule, seed: u64, fence: bool) -> Result<u32, Box<Report>> {
    let mut memory = Memory::new();
    let [doorbell, state, done] = ["doorbell", "state", "done"]
        .map(|name| memory.upload(name, &[0; 8], Permission::ReadWrite));
    let arguments = [doorbell, state, done].map(Argument::U64);
    let launch = Launch { grid: [1, 1, 1], arguments: arguments.to_vec() };
    let (mut job, mut stage, mut pause) = (0, 0, seed % 25);
    let host = |memory: &mut HostView<'_>| {
        if pause > 0 {
            pause -= 1;
            return HostStep::Ran;
        }
        stage += 1;
        match stage {
            1 => {
                job += 1;
                memory.store_release_u64(doorbell, job);
            }
            2 if fence => memory.fence_seq_cst(),
            3 if memory.load_acquire_u32(state) == ENDS => return HostStep::Launch(launch.clone()),
            4.. => {
                if memory.load_acquire_u64(done) < job {
                    return HostStep::Waits;
                }
                if job == JOBS {
                    return HostStep::Done;
                }
                (stage, pause) = (0, (seed * 7 + job * 13) % 25);
            }
            _ => {}
        }
        HostStep::Ran
    };
    let options = Options { schedule, max_steps: 100_000, ..Options::default() };
    Ok(run_hosted(kernel, 1, &arguments, &mut memory, options, host)?.launches)
}

const SEEDS: std::ops::Range<u64> = 0..400;

#[test]
fn no_job_is_missed_when_the_kernel_ends() {
    let kernel = server("");
    let mut launches = Vec::new();
    for seed in SEEDS {
        let others = [Schedule::async_late(seed), Schedule::stores_late(seed)];
        for schedule in [Schedule::seeded(seed)].into_iter().chain(others) {
            let made = submit(&kernel, schedule, seed, true);
            launches.push(made.unwrap_or_else(|report| panic!("seed {seed}: {report}")));
        }
    }
    for schedule in schedules() {
        submit(&kernel, schedule, 5, true).unwrap();
    }
    // Some runs had to launch again, and some did not.
    assert!(launches.contains(&1) && launches.iter().any(|&launches| launches > 2));
}

#[test]
fn without_a_fence_or_the_second_look_some_job_is_missed() {
    for (without, fence) in [("kernel fence", true), ("look", true), ("", false)] {
        let kernel = server(without);
        let mut missed = 0;
        for seed in SEEDS {
            let schedule = Schedule::stores_late(seed);
            let Err(report) = submit(&kernel, schedule, seed, fence) else { continue };
            assert_eq!(report.kind, ReportKind::Deadlock, "{report}");
            assert!(report.to_string().contains("the host waits"), "{report}");
            let again = submit(&kernel, report.schedule.clone(), seed, fence).unwrap_err();
            assert_same_fault(&report, &again);
            missed += 1;
        }
        assert!(missed > 0, "without {without:?}, fence {fence}");
    }
}

/// Each of two CTAs stores a word, runs `between`, and loads the other's word.
fn crossing(between: impl for<'k> Fn(&'k KernelBuilder, [Val<'k, ty::U64>; 2])) -> Kernel {
    role(|b| {
        let [flags, output] = ["flags", "output"].map(|name| b.param::<ty::U64>(name));
        let cta = b.special(pgemm_ir::Special::Cta);
        let [own, other] = [cta * 128, (cta ^ 1) * 128].map(|bytes| flags.byte_offset(bytes));
        b.if_(b.special(pgemm_ir::Special::Thread).eq(0), || {
            b.store_ordered(own, b.constant(1u32), Order::Release, Scope::Gpu);
            between(b, [own, output.byte_offset(64)]);
            let seen = b.load_acquire(other);
            b.store_global(output.byte_offset(cta * 4), [seen]);
        });
    })
}

fn crossing_arguments(memory: &mut Memory) -> (Vec<Argument>, u64) {
    let [flags, output] =
        ["flags", "output"].map(|name| memory.upload(name, &[0; 256], Permission::ReadWrite));
    (vec![Argument::U64(flags), Argument::U64(output)], output)
}

#[test]
fn both_may_look_before_their_stores_are_seen() {
    let neither_seen = |kernel: &Kernel| {
        let mut count = 0;
        for seed in 0..100 {
            let mut memory = Memory::new();
            let (arguments, output) = crossing_arguments(&mut memory);
            let options = Options { schedule: Schedule::seeded(seed), ..Options::default() };
            run_with(kernel, 2, arguments, &mut memory, options).unwrap();
            count += u32::from(words(&memory, output, 2) == [0, 0]);
        }
        count
    };
    assert!(neither_seen(&crossing(|_, _| ())) > 0);
    let weaker = crossing(|b, _| b.fence(Order::AcquireRelease, Scope::Gpu));
    assert!(neither_seen(&weaker) > 0);
    let fenced = crossing(|b, _| b.fence(Order::SequentiallyConsistent, Scope::Gpu));
    assert_eq!(neither_seen(&fenced), 0);
}

#[test]
fn a_warp_sees_its_own_stores_at_once() {
    let kernel = crossing(|b, [own, found]| {
        let seen = b.load_acquire(own);
        b.store_ordered(own, seen + 1, Order::Release, Scope::Gpu);
        let seen = b.load_acquire(own);
        b.store_ordered(found, seen, Order::Relaxed, Scope::Gpu);
    });
    passes(&kernel, 2, crossing_arguments, |memory, output| {
        assert_eq!(words(memory, output + 64, 1), [2]);
    });
}

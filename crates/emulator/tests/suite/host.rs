//! A host that runs beside the kernel: words that both poll, replay of recorded runs, and several
//! launches in a row.

use pgemm_emulator::{
    ActorKind, Emulator, HostStep, HostView, Memory, Options, Permission, Report, ReportKind,
    Schedule, Statistics,
};
use pgemm_ir::{Argument, Kernel, KernelBuilder, Launch, Order, Scope, Special, Val, ty};

use crate::kernel::{assert_same_fault, role, schedules, words};

/// Runs a kernel together with a host program.
pub fn run_hosted(
    kernel: &Kernel,
    ctas: u32,
    arguments: &[Argument],
    memory: &mut Memory,
    options: Options,
    mut host: impl FnMut(&mut HostView<'_>) -> HostStep,
) -> Result<Statistics, Box<Report>> {
    let launch = Launch { grid: [ctas, 1, 1], arguments: arguments.to_vec() };
    Emulator::new(kernel, &launch, memory, options).unwrap().with_host(&mut host).run()
}

/// Polls a word of global memory until it is at least `least`.
pub fn poll<'k>(
    b: &'k KernelBuilder,
    address: Val<'k, ty::U64>,
    least: u32,
    order: Order,
    scope: Scope,
) {
    b.while_(b.constant(0u32), |seen| seen.lt(least), |_| b.load_ordered(address, order, scope));
}

pub fn in_thread_0(b: &KernelBuilder, cta: u32, body: impl FnOnce()) {
    let here = b.special(Special::Cta).eq(cta) & b.special(Special::Thread).eq(0);
    b.if_(here, body);
}

fn options(schedule: Schedule) -> Options {
    Options { schedule, max_steps: 200_000, ..Options::default() }
}

/// Zeroed words: a doorbell, an answer, and data.
fn mailbox(memory: &mut Memory) -> ([u64; 3], Vec<Argument>) {
    let words = ["doorbell", "answer", "data"]
        .map(|name| memory.upload(name, &[0; 256], Permission::ReadWrite));
    (words, words.map(Argument::U64).to_vec())
}

const ROUNDS: u32 = 5;

/// A kernel that waits for each round of the doorbell, doubles a number and answers.
fn doubler(acquire: Scope, release: Order) -> Kernel {
    role(move |b| {
        let [doorbell, answer, data] = ["doorbell", "answer", "data"].map(|name| b.param(name));
        in_thread_0(b, 0, || {
            b.for_range(1, ROUNDS + 1, 1, |round| {
                b.while_(
                    b.constant(0u32),
                    |seen: Val<'_, ty::U32>| seen.lt(round),
                    |_| b.scope("poll", || b.load_ordered(doorbell, Order::Acquire, acquire)),
                );
                let [number] = b.scope("read", || b.load_global::<ty::U32, 1>(data));
                b.scope("write", || b.store_global(data, [number + number]));
                b.store_ordered(answer, round, release, Scope::System);
            });
        });
    })
}

/// A host that sends numbers to the doubling kernel, one a round, and checks the answers.
fn requester([doorbell, answer, data]: [u64; 3]) -> impl FnMut(&mut HostView<'_>) -> HostStep {
    let (mut round, mut number) = (0, 3u32);
    move |memory| {
        if memory.load_acquire_u32(answer) < round {
            return HostStep::Waits;
        }
        if round > 0 {
            let doubled = memory.read(data, 4);
            assert_eq!(doubled, (2 * number).to_le_bytes());
            number = 2 * number + 1;
        }
        if round == ROUNDS {
            return HostStep::Done;
        }
        round += 1;
        memory.write(data, &number.to_le_bytes());
        memory.store_release_u32(doorbell, round);
        HostStep::Ran
    }
}

fn request(kernel: &Kernel, schedule: Schedule) -> Result<Statistics, Box<Report>> {
    let mut memory = Memory::new();
    let (places, arguments) = mailbox(&mut memory);
    run_hosted(kernel, 1, &arguments, &mut memory, options(schedule), requester(places))
}

#[test]
fn host_and_kernel_answer_each_other() {
    let kernel = doubler(Scope::System, Order::Release);
    for schedule in schedules() {
        let statistics = request(&kernel, schedule).unwrap_or_else(|report| panic!("{report}"));
        assert!(statistics.host_turns > u64::from(ROUNDS));
    }
}

#[test]
fn without_release_or_with_a_narrow_scope_they_race() {
    for schedule in schedules() {
        let report = request(&doubler(Scope::Gpu, Order::Release), schedule.clone()).unwrap_err();
        assert_eq!(report.kind, ReportKind::Race, "{report}");
        assert!(report.sites.iter().any(|site| site.actor.kind == ActorKind::Host), "{report}");
        assert!(report.to_string().contains("the host"), "{report}");

        // The host reads a word that no thread released to it.
        let report = request(&doubler(Scope::System, Order::Relaxed), schedule).unwrap_err();
        assert_eq!(report.kind, ReportKind::Race, "{report}");
        let [host, kernel] = &report.sites[..] else { panic!("{report}") };
        assert_eq!(host.actor.kind, ActorKind::Host);
        assert!(host.location.file.ends_with("host.rs"), "{report}");
        assert_eq!(kernel.location.scopes.last().map(String::as_str), Some("write"));
    }
}

#[test]
fn runs_with_a_host_are_replayed() {
    let kernel = doubler(Scope::System, Order::Release);
    let first = request(&kernel, Schedule::seeded(7)).unwrap();
    assert_eq!(first, request(&kernel, Schedule::replay(first.choices.clone())).unwrap());
    let kernel = doubler(Scope::Gpu, Order::Release);
    let report = request(&kernel, Schedule::seeded(7)).unwrap_err();
    let again = request(&kernel, report.schedule.clone()).unwrap_err();
    assert_same_fault(&report, &again);
}

#[test]
fn a_host_that_waits_for_ever_is_a_deadlock() {
    let kernel = role(|b| {
        let [_, answer, _] = ["doorbell", "answer", "data"].map(|name| b.param::<ty::U64>(name));
        in_thread_0(b, 0, || {
            b.store_ordered(answer, b.constant(1u32), Order::Release, Scope::System);
        });
    });
    for schedule in schedules() {
        let mut memory = Memory::new();
        let ([_, answer, _], arguments) = mailbox(&mut memory);
        let waiter = |memory: &mut HostView<'_>| match memory.load_acquire_u32(answer) {
            2 => HostStep::Done,
            _ => HostStep::Waits,
        };
        let report = run_hosted(&kernel, 1, &arguments, &mut memory, options(schedule), waiter);
        let report = report.unwrap_err();
        assert_eq!(report.kind, ReportKind::Deadlock, "{report}");
        assert_eq!(report.sites.len(), 1, "{report}");
        assert_eq!(report.sites[0].actor.kind, ActorKind::Host);
    }
}

#[test]
fn what_the_host_must_not_do_is_reported() {
    let kernel = role(|b| {
        let _ = ["doorbell", "answer", "data"].map(|name| b.param::<ty::U64>(name));
    });
    let try_to = |act: fn(&mut HostView<'_>, [u64; 3])| {
        let mut memory = Memory::new();
        let (places, arguments) = mailbox(&mut memory);
        memory.upload("constants", &[0; 4], Permission::ReadOnly);
        memory.allocate("empty", 4);
        let host = move |memory: &mut HostView<'_>| {
            act(memory, places);
            HostStep::Done
        };
        let options = options(Schedule::round_robin());
        run_hosted(&kernel, 1, &arguments, &mut memory, options, host).unwrap_err().kind
    };
    // The distance between two allocations.
    const NEXT: u64 = 1 << 36;
    assert_eq!(
        try_to(|memory, [doorbell, ..]| {
            memory.load_acquire_u64(doorbell + 4);
        }),
        ReportKind::Misaligned
    );
    assert_eq!(
        try_to(|memory, [doorbell, ..]| memory.write(doorbell + 250, &[0; 8])),
        ReportKind::OutOfBounds
    );
    assert_eq!(
        try_to(|memory, [.., data]| memory.store_release_u32(data + NEXT, 1)),
        ReportKind::ReadOnlyWrite
    );
    assert_eq!(
        try_to(|memory, [.., data]| {
            memory.load_acquire_u32(data + 2 * NEXT);
        }),
        ReportKind::UninitialisedRead
    );
}

/// Counts its launches in plain memory, ordered by nothing but the launches themselves. The last
/// thread of the only CTA tells the host.
fn counting() -> Kernel {
    role(|b| {
        let [doorbell, answer, data] = ["doorbell", "answer", "data"].map(|name| b.param(name));
        in_thread_0(b, 0, || {
            let [count] = b.scope("count", || b.load_global::<ty::U32, 1>(data));
            b.store_global(data, [count + 1]);
            let [step] = b.load_global::<ty::U32, 1>(doorbell);
            b.store_ordered(answer, step, Order::Release, Scope::System);
        });
    })
}

#[test]
fn launches_come_one_after_the_other() {
    let kernel = counting();
    for schedule in schedules() {
        let mut memory = Memory::new();
        let ([doorbell, _, data], arguments) = mailbox(&mut memory);
        let launch = Launch { grid: [1, 1, 1], arguments: arguments.clone() };
        let mut launched = 0;
        let host = |memory: &mut HostView<'_>| {
            if launched < 3 {
                launched += 1;
                return HostStep::Launch(launch.clone());
            }
            if memory.kernel_runs() {
                return HostStep::Waits;
            }
            // All launches have ended, so this read is ordered.
            assert_eq!(memory.read(data, 4), 4u32.to_le_bytes());
            memory.write(doorbell, &[1; 4]);
            HostStep::Done
        };
        let statistics =
            run_hosted(&kernel, 1, &arguments, &mut memory, options(schedule), host).unwrap();
        assert_eq!(statistics.launches, 4);
        assert_eq!(words(&memory, data, 1), [4]);
    }
}

#[test]
fn what_the_host_does_before_a_launch_happens_before_it() {
    let kernel = counting();
    let mut raced = 0;
    for schedule in schedules() {
        for late in [false, true] {
            let mut memory = Memory::new();
            let ([doorbell, answer, _], arguments) = mailbox(&mut memory);
            let launch = Launch { grid: [1, 1, 1], arguments: arguments.clone() };
            let mut turn = 0;
            let host = |memory: &mut HostView<'_>| {
                turn += 1;
                match turn {
                    1 if !memory.kernel_runs() => {
                        memory.write(doorbell, &[7, 0, 0, 0]);
                        HostStep::Launch(launch.clone())
                    }
                    1 => {
                        turn = 0;
                        HostStep::Waits
                    }
                    2 if late => {
                        memory.write(doorbell, &[8, 0, 0, 0]);
                        HostStep::Ran
                    }
                    _ if memory.load_acquire_u32(answer) == 0 => HostStep::Waits,
                    _ => HostStep::Done,
                }
            };
            let schedule = schedule.clone();
            let result = run_hosted(&kernel, 1, &arguments, &mut memory, options(schedule), host);
            if late {
                let report = result.unwrap_err();
                assert_eq!(report.kind, ReportKind::Race, "{report}");
                raced += u32::from(report.to_string().contains("launch 1"));
            } else {
                result.unwrap();
                assert_eq!(words(&memory, answer, 1), [7]);
            }
        }
    }
    assert_eq!(raced as usize, schedules().len());
}

#[test]
fn launches_that_do_not_fit_are_reported() {
    let kernel = counting();
    let mut memory = Memory::new();
    let ([doorbell, ..], arguments) = mailbox(&mut memory);
    let host = |memory: &mut HostView<'_>| {
        memory.load_acquire_u32(doorbell);
        HostStep::Launch(Launch { grid: [1, 1, 1], arguments: vec![] })
    };
    let options = options(Schedule::round_robin());
    let report = run_hosted(&kernel, 1, &arguments, &mut memory, options, host).unwrap_err();
    assert_eq!(report.kind, ReportKind::HostMisuse);
    assert!(report.message.contains("0 arguments"), "{report}");
}

#[test]
fn the_clock_moves_on_while_a_kernel_waits() {
    let kernel = role(|b| {
        let [_, answer, _] = ["doorbell", "answer", "data"].map(|name| b.param::<ty::U64>(name));
        in_thread_0(b, 0, || {
            let start = b.clock();
            let end = b.while_(
                start,
                |now| (now - start).lt(5_000u64),
                |_| {
                    b.sleep(100);
                    b.clock()
                },
            );
            b.store_global(answer, [end - start]);
        });
    });
    for (step_nanoseconds, least, most) in [(1, 1_000, 6_000), (100, 10, 200)] {
        for schedule in schedules() {
            let mut memory = Memory::new();
            let ([_, answer, _], arguments) = mailbox(&mut memory);
            let options = Options { step_nanoseconds, ..options(schedule) };
            let host = |_: &mut HostView<'_>| HostStep::Done;
            let steps = run_hosted(&kernel, 1, &arguments, &mut memory, options, host).unwrap();
            assert!((least..most).contains(&steps.steps), "{}", steps.steps);
            let waited = memory.read(answer, 8).unwrap().try_into().unwrap();
            assert!((5_000..6_000).contains(&u64::from_le_bytes(waited)));
        }
    }
}

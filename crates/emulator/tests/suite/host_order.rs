//! What orders the host's accesses: acquire, release, fences, and loads that have returned.

use pgemm_emulator::{HostStep, HostView, Memory, Options, Permission, ReportKind};
use pgemm_ir::{Argument, Kernel, Order, Scope, ty};

use crate::host::{in_thread_0, poll, run_hosted};
use crate::kernel::{role, schedules};

/// Words at distant addresses: a doorbell, an answer, what the host gives and what it gets.
type Places = [u64; 4];

/// A kernel that waits for the doorbell, passes the given word on, and answers by a relaxed store,
/// behind a fence of some scope if there is one.
fn kernel(fence: Option<Scope>) -> Kernel {
    role(move |b| {
        let [doorbell, answer, given, got] =
            ["doorbell", "answer", "given", "got"].map(|name| b.param(name));
        in_thread_0(b, 0, || {
            poll(b, doorbell, 1, Order::Acquire, Scope::System);
            let [word] = b.load_global::<ty::U32, 1>(given);
            b.store_global(got, [word]);
            if let Some(scope) = fence {
                b.fence(Order::AcquireRelease, scope);
            }
            b.store_ordered(answer, b.constant(1u32), Order::Relaxed, Scope::System);
        });
    })
}

/// Runs a host that gives 7, rings, waits for the answer, and does a last thing. Returns the fault
/// that each schedule finds, which is the same.
fn fault(
    kernel: &Kernel,
    ring: fn(&mut HostView<'_>, u64),
    answered: fn(&mut HostView<'_>, u64) -> bool,
    last: fn(&mut HostView<'_>, Places),
) -> Option<ReportKind> {
    let mut faults = schedules().into_iter().map(|schedule| {
        let mut memory = Memory::new();
        let places: Places = ["doorbell", "answer", "given", "got"]
            .map(|name| memory.upload(name, &[0; 16], Permission::ReadWrite));
        let arguments = places.map(Argument::U64);
        let mut has_rung = false;
        let host = |memory: &mut HostView<'_>| {
            let [doorbell, answer, given, _] = places;
            if !has_rung {
                memory.write(given, &7u32.to_le_bytes());
                ring(memory, doorbell);
                has_rung = true;
                return HostStep::Ran;
            }
            if !answered(memory, answer) {
                return HostStep::Waits;
            }
            last(memory, places);
            HostStep::Done
        };
        let options = Options { schedule, max_steps: 200_000, ..Options::default() };
        let run = run_hosted(kernel, 1, &arguments, &mut memory, options, host);
        run.err().map(|report| report.kind)
    });
    let first = faults.next().unwrap();
    assert!(faults.all(|fault| fault == first), "schedules find other faults");
    first
}

fn release(memory: &mut HostView<'_>, doorbell: u64) {
    memory.store_release_u32(doorbell, 1);
}

fn acquire(memory: &mut HostView<'_>, answer: u64) -> bool {
    memory.load_acquire_u32(answer) == 1
}

fn acquire_both_words(memory: &mut HostView<'_>, answer: u64) -> bool {
    memory.load_acquire_u64(answer) as u32 == 1
}

fn read_what_it_got(memory: &mut HostView<'_>, [.., got]: Places) {
    assert_eq!(memory.read(got, 4), 7u32.to_le_bytes());
}

fn give_again(memory: &mut HostView<'_>, [_, _, given, _]: Places) {
    memory.write(given, &8u32.to_le_bytes());
}

#[test]
fn a_relaxed_store_releases_what_a_fence_before_it_has() {
    let kernel = kernel(Some(Scope::System));
    let of = |ring| fault(&kernel, ring, acquire, read_what_it_got);
    assert_eq!(of(release), None);
    assert_eq!(fault(&kernel, release, acquire_both_words, read_what_it_got), None);
    assert_eq!(
        of(|memory, doorbell| memory.store_relaxed_u32(doorbell, 1)),
        Some(ReportKind::Race)
    );
    assert_eq!(
        of(|memory, doorbell| {
            memory.fence_release();
            memory.store_relaxed_u32(doorbell, 1);
        }),
        None
    );
    assert_eq!(
        of(|memory, doorbell| {
            memory.fence_seq_cst();
            memory.store_relaxed_u32(doorbell, 1);
        }),
        None
    );
}

#[test]
fn a_store_that_is_made_later_has_what_was_released_when_it_was_handed_over() {
    let kernel = kernel(Some(Scope::System));
    let of = |ring| fault(&kernel, ring, acquire, read_what_it_got);
    let late = of(|memory, doorbell| {
        let released = memory.released();
        memory.fence_release();
        memory.store_later_u32(doorbell, 1, &released);
    });
    assert_eq!(late, Some(ReportKind::Race));
    let in_time = of(|memory, doorbell| {
        memory.fence_release();
        let released = memory.released();
        memory.store_later_u32(doorbell, 1, &released);
    });
    assert_eq!(in_time, None);
}

#[test]
fn a_relaxed_load_needs_an_acquire_fence() {
    let kernel = kernel(Some(Scope::System));
    let of = |answered| fault(&kernel, release, answered, read_what_it_got);
    assert_eq!(of(acquire), None);
    let relaxed = of(|memory, answer| memory.load_relaxed_u32(answer) == 1);
    assert_eq!(relaxed, Some(ReportKind::Race));
    let fenced = of(|memory, answer| {
        let answered = memory.load_relaxed_u32(answer) == 1;
        memory.fence_acquire();
        answered
    });
    assert_eq!(fenced, None);
}

/// What the kernel has loaded before the word that the host finds is the host's again, also if the
/// fence in between does not include the host. What the kernel has stored is not the host's then.
#[test]
fn loads_that_have_returned_come_before_what_the_host_writes() {
    let of = |fence, answered, last| fault(&kernel(fence), release, answered, last);
    assert_eq!(of(Some(Scope::System), acquire, give_again), None);
    assert_eq!(of(Some(Scope::Gpu), acquire, give_again), None);
    assert_eq!(of(None, acquire, give_again), Some(ReportKind::Race));
    let relaxed: fn(&mut HostView<'_>, u64) -> bool =
        |memory, answer| memory.load_relaxed_u32(answer) == 1;
    assert_eq!(of(Some(Scope::Gpu), relaxed, give_again), Some(ReportKind::Race));
    assert_eq!(of(Some(Scope::Gpu), acquire, read_what_it_got), Some(ReportKind::Race));
    let overwrite: fn(&mut HostView<'_>, Places) =
        |memory, [.., got]| memory.write(got, &8u32.to_le_bytes());
    assert_eq!(of(Some(Scope::Gpu), acquire, overwrite), Some(ReportKind::Race));
}

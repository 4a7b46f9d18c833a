//! Atomic operations and reductions in global memory, and the order that they make. The kernels
//! are written with the builder.

use pgemm_emulator::{Memory, Options, Permission, ReportKind, Schedule};
use pgemm_ir::{
    Argument, AtomicOp, Element, Kernel, KernelBuilder, Order, RegionKind, Scope, SmemRequest,
    Special, Val, ty,
};

use crate::kernel::{fails_with, passes, role, run_with, words};

const CTAS: u32 = 3;
const ZEROS: [u8; 4096] = [0; 4096];

/// An allocation of zeroed memory for each name.
fn zeroed<const N: usize>(memory: &mut Memory, names: [&str; N]) -> [u64; N] {
    names.map(|name| memory.upload(name, &ZEROS, Permission::ReadWrite))
}

fn pointers(addresses: &[u64]) -> Vec<Argument> {
    addresses.iter().map(|&address| Argument::U64(address)).collect()
}

fn two(memory: &mut Memory) -> (Vec<Argument>, [u64; 2]) {
    let addresses = zeroed(memory, ["counter", "data"]);
    (pointers(&addresses), addresses)
}

fn two_pointers(b: &KernelBuilder) -> [Val<'_, ty::U64>; 2] {
    [b.param("counter"), b.param("data")]
}

fn in_thread_0(b: &KernelBuilder, body: impl FnOnce()) {
    b.if_(b.special(Special::Thread).eq(0), body);
}

fn in_cta(b: &KernelBuilder, cta: u32, body: impl FnOnce()) {
    b.if_(b.special(Special::Cta).eq(cta), body);
}

#[test]
fn every_thread_draws_another_number() {
    let kernel = role(|b| {
        let [counter, data] = two_pointers(b);
        let number = b.atomic(AtomicOp::Add, counter, 1, Order::Relaxed, Scope::Gpu);
        b.store_global(data.byte_offset(number * 4), [number + 7]);
    });
    passes(&kernel, CTAS, two, |memory, [counter, data]| {
        assert_eq!(words(memory, counter, 1), [384]);
        assert_eq!(words(memory, data, 384), (7..391).collect::<Vec<_>>());
    });
}

#[test]
fn counters_start_again_after_their_limit() {
    let kernel = role(|b| {
        let [counter, data] = two_pointers(b);
        let number = b.atomic(AtomicOp::Inc, counter, 4, Order::Relaxed, Scope::Gpu);
        let drawn = data.byte_offset(number * 4);
        b.atomic(AtomicOp::Add, drawn, 1, Order::Relaxed, Scope::Gpu);
    });
    passes(&kernel, CTAS, two, |memory, [counter, data]| {
        assert_eq!(words(memory, counter, 1), [384 % 5]);
        assert_eq!(words(memory, data, 6), [77, 77, 77, 77, 76, 0]);
    });
}

#[test]
fn what_is_exchanged_is_handed_on_once() {
    let kernel = role(|b| {
        let [counter, data] = two_pointers(b);
        let threads = b.special(Special::Cta) * 128;
        let own = threads + b.special(Special::Thread);
        let before = b.atomic(AtomicOp::Exch, counter, own + 1, Order::Relaxed, Scope::Gpu);
        b.store_global(data.byte_offset(own * 4), [before]);
    });
    passes(&kernel, CTAS, two, |memory, [counter, data]| {
        let mut seen = words(memory, data, 384);
        seen.extend(words(memory, counter, 1));
        seen.sort_unstable();
        assert_eq!(seen, (0..=384).collect::<Vec<_>>());
    });
}

/// Each CTA writes a word and increments a counter. The CTA that counts last adds the words up.
fn last_arriver(order: Order, scope: Scope, fences: bool) -> Kernel {
    role(|b| {
        let [counter, data] = two_pointers(b);
        let (cta, ctas) = (b.special(Special::Cta), b.special(Special::CtaCount));
        let fence = || {
            if fences {
                b.fence(Order::AcquireRelease, Scope::Gpu);
            }
        };
        in_thread_0(b, || {
            b.scope("write", || b.store_global(data.byte_offset(cta * 4), [cta + 1]));
            fence();
            let before = b.atomic(AtomicOp::Add, counter, 1, order, scope);
            fence();
            b.if_(before.eq(ctas - 1), || {
                let sum =
                    b.for_carry(0, ctas, 1, b.constant(0u32), |index, sum: Val<'_, ty::U32>| {
                        let [word] = b.scope("read", || b.load_global(data.byte_offset(index * 4)));
                        sum + word
                    });
                b.store_global(data.byte_offset(ctas * 4), [sum]);
            });
        });
    })
}

#[test]
fn whoever_counts_last_has_seen_all_others() {
    for kernel in [
        last_arriver(Order::AcquireRelease, Scope::Gpu, false),
        last_arriver(Order::Relaxed, Scope::Gpu, true),
    ] {
        passes(&kernel, 4, two, |memory, [_, data]| assert_eq!(words(memory, data + 16, 1), [10]));
    }
    for (order, scope) in [
        (Order::Relaxed, Scope::Gpu),
        (Order::Acquire, Scope::Gpu),
        (Order::Release, Scope::Gpu),
        (Order::AcquireRelease, Scope::Cta),
        (Order::AcquireRelease, Scope::Cluster),
    ] {
        let kernel = last_arriver(order, scope, false);
        fails_with(&kernel, 4, |m| two(m).0, ReportKind::Race, &["read", "write"]);
    }
}

/// Each other CTA writes a word and increments a counter. CTA 0 polls the counter until all have.
fn polled(order: Order) -> Kernel {
    role(|b| {
        let [counter, data] = two_pointers(b);
        let cta = b.special(Special::Cta);
        let others = b.special(Special::CtaCount) - 1;
        let write = || {
            b.scope("write", || b.store_global(data.byte_offset(cta * 4), [cta]));
            b.atomic(AtomicOp::Add, counter, 1, order, Scope::Gpu);
        };
        let read = || {
            let poll = || b.load_acquire(counter);
            b.while_(poll(), |seen| seen.ne(others), |_| poll());
            let word = |at: u32| b.scope("read", || b.load_global(data.byte_offset(at)));
            let ([first], [second]): ([Val<'_, ty::U32>; 1], _) = (word(4), word(8));
            b.store_global::<ty::U32, 1>(data, [first * 10 + second]);
        };
        in_thread_0(b, || b.if_else(cta.eq(0), read, write));
    })
}

/// Each CTA adds its number to a word under a lock that it takes and releases by exchanges.
fn locked(take: (Order, Scope), release: (Order, Scope)) -> Kernel {
    role(|b| {
        let [lock, data] = two_pointers(b);
        let cta = b.special(Special::Cta);
        in_thread_0(b, || {
            let attempt = || b.compare_exchange::<ty::U32>(lock, 0, cta + 1, take.0, take.1);
            b.while_(attempt(), |holder| holder.ne(0), |_| attempt());
            let [sum] = b.scope("read", || b.load_global::<ty::U32, 1>(data));
            b.scope("write", || b.store_global(data, [sum + cta + 1]));
            b.compare_exchange::<ty::U32>(lock, cta + 1, 0, release.0, release.1);
        });
    })
}

#[test]
fn exchanges_of_a_lock_pass_on_what_it_guards() {
    use Order::{Acquire, AcquireRelease, Relaxed, Release};
    use Scope::{Cluster, Cta, Gpu};

    for (take, release) in [(Acquire, Release), (AcquireRelease, AcquireRelease)] {
        let kernel = locked((take, Gpu), (release, Gpu));
        passes(&kernel, 4, two, |memory, [lock, data]| {
            assert_eq!((words(memory, lock, 1), words(memory, data, 1)), (vec![0], vec![10]));
        });
    }
    for (take, release) in [
        ((Relaxed, Gpu), (Release, Gpu)),
        ((Release, Gpu), (Release, Gpu)),
        ((Acquire, Cta), (Release, Gpu)),
        ((Acquire, Cluster), (Release, Gpu)),
        ((Acquire, Gpu), (Relaxed, Gpu)),
        ((Acquire, Gpu), (Acquire, Gpu)),
        ((Acquire, Gpu), (Release, Cta)),
        ((Acquire, Gpu), (Release, Cluster)),
    ] {
        let kernel = locked(take, release);
        fails_with(&kernel, 4, |m| two(m).0, ReportKind::Race, &["read", "write"]);
    }
}

#[test]
fn an_acquire_learns_of_all_that_were_counted() {
    passes(&polled(Order::Release), 3, two, |memory, [_, data]| {
        assert_eq!(words(memory, data, 1), [12]);
    });
    fails_with(&polled(Order::Relaxed), 3, |m| two(m).0, ReportKind::Race, &["read", "write"]);
}

/// All threads of all CTAs add to the same elements. The CTA that counts last reads the sums.
fn reduced<const N: usize>() -> Kernel {
    role(|b| {
        let [counter, data] = two_pointers(b);
        let kind = RegionKind::Data(Element::F32);
        let ticket = b.smem_address(b.region("ticket", kind, SmemRequest::whole(16, 16)));
        let lane = b.special(Special::Lane);
        let own = data.byte_offset(lane * (4 * N as u32));
        b.reduce_add(own, std::array::from_fn::<_, N, _>(|i| b.constant(i as f32 + 0.5)));
        b.sync_cta();
        in_thread_0(b, || {
            let order = Order::AcquireRelease;
            let before = b.atomic(AtomicOp::Inc, counter, CTAS - 1, order, Scope::Gpu);
            b.store_shared(ticket, [before]);
        });
        b.sync_cta();
        let [before] = b.load_shared::<ty::U32, 1>(ticket);
        b.if_(before.warp_uniform().eq(CTAS - 1), || {
            b.named_barrier("last", 4).sync();
            let sums: [Val<'_, ty::F32>; N] = b.load_global(own);
            b.if_(b.special(Special::Warp).eq(0), || {
                b.store_global(own.byte_offset(2048), sums.map(|sum| sum + 1.0));
            });
        });
    })
}

#[test]
fn reductions_add_up_and_the_last_cta_reads_them() {
    fn check<const N: usize>() {
        passes(&reduced::<N>(), CTAS, two, |memory, [counter, data]| {
            let sums = words(memory, data + 2048, 32 * N);
            for (i, sum) in sums.into_iter().enumerate() {
                // Each CTA has four warps.
                assert_eq!(f32::from_bits(sum), 12.0 * ((i % N) as f32 + 0.5) + 1.0);
            }
            assert_eq!(words(memory, counter, 1), [0]);
        });
    }
    check::<1>();
    check::<2>();
    check::<4>();
}

#[test]
fn the_order_of_reductions_is_the_schedules() {
    // Adding 1 to 2^24 twice rounds to 2^24 each time. Adding 1 + 1 = 2 to it is exact.
    let kernel = role(|b| {
        let [_, data] = two_pointers(b);
        let first = b.special(Special::Cta).eq(0);
        let value = first.select::<ty::F32>(16_777_216.0, 1.0);
        in_thread_0(b, || b.reduce_add(data, [value]));
    });
    let result = |schedule: Schedule| {
        let mut memory = Memory::new();
        let (arguments, [_, data]) = two(&mut memory);
        let options = Options { schedule, ..Options::default() };
        run_with(&kernel, CTAS, arguments, &mut memory, options).unwrap();
        f32::from_bits(words(&memory, data, 1)[0])
    };
    let mut sums: Vec<f32> = (0..40).map(|seed| result(Schedule::seeded(seed))).collect();
    assert_eq!(sums[7], result(Schedule::seeded(7)));
    sums.sort_by(f32::total_cmp);
    sums.dedup();
    assert_eq!(sums, [16_777_216.0, 16_777_218.0]);
}

/// CTA 1 acts after CTA 0. CTA 2 is ordered with neither.
fn three(
    first: impl FnOnce(&KernelBuilder, Val<'_, ty::U64>),
    second: impl FnOnce(&KernelBuilder, Val<'_, ty::U64>),
    third: impl FnOnce(&KernelBuilder, Val<'_, ty::U64>),
) -> Kernel {
    role(|b| {
        let [counter, data] = two_pointers(b);
        in_thread_0(b, || {
            in_cta(b, 0, || {
                first(b, data);
                b.atomic(AtomicOp::Exch, counter, 1, Order::Release, Scope::Gpu);
            });
            in_cta(b, 1, || {
                let poll = || b.load_acquire(counter);
                b.while_(poll(), |seen| seen.eq(0), |_| poll());
                second(b, data);
            });
            in_cta(b, 2, || third(b, data));
        });
    })
}

fn adds(b: &KernelBuilder, data: Val<'_, ty::U64>) {
    b.scope("add", || b.reduce_add(data, [b.constant(1.0)]));
}

fn adds_in_order(b: &KernelBuilder, data: Val<'_, ty::U64>) {
    b.scope("ordered", || b.reduce_add(data, [b.constant(1.0)]));
}

fn reads(b: &KernelBuilder, data: Val<'_, ty::U64>) {
    let [sum] = b.scope("read", || b.load_global::<ty::U32, 1>(data));
    b.store_global(data.byte_offset(4), [sum]);
}

fn zeroes(b: &KernelBuilder, data: Val<'_, ty::U64>) {
    b.scope("zero", || b.store_global(data, [b.constant::<ty::F32>(0.0)]));
}

#[test]
fn a_reduction_does_not_hide_an_earlier_one() {
    // The reader is ordered after one of the two reductions, whichever comes first.
    let kernel = three(adds_in_order, reads, adds);
    fails_with(&kernel, CTAS, |m| two(m).0, ReportKind::Race, &["add", "read"]);
    passes(&three(adds_in_order, reads, |_, _| ()), CTAS, two, |_, _| ());
}

#[test]
fn a_reduction_does_not_hide_what_it_adds_to() {
    let kernel = three(zeroes, adds_in_order, adds);
    fails_with(&kernel, CTAS, |m| two(m).0, ReportKind::Race, &["add", "zero"]);
    passes(&three(zeroes, adds_in_order, |_, _| ()), CTAS, two, |_, _| ());
    let kernel = three(reads, adds_in_order, adds);
    fails_with(&kernel, CTAS, |m| two(m).0, ReportKind::Race, &["add", "read"]);
}

#[test]
fn atomics_need_memory_that_is_there() {
    let count = || {
        role(|b| {
            let counter = b.param::<ty::U64>("counter");
            in_thread_0(b, || {
                b.scope("here", || b.atomic(AtomicOp::Add, counter, 1, Order::Relaxed, Scope::Gpu));
            });
        })
    };
    let add = |offset: u32| {
        role(move |b| {
            let sums = b.param::<ty::U64>("sums").byte_offset(offset);
            let value = b.constant(1.0);
            in_thread_0(b, || b.scope("here", || b.reduce_add(sums, [value; 4])));
        })
    };
    let read_only = |m: &mut Memory| pointers(&[m.upload("data", &ZEROS, Permission::ReadOnly)]);
    let unwritten = |m: &mut Memory| pointers(&[m.allocate("data", 64)]);
    for kernel in [count(), add(0)] {
        fails_with(&kernel, 1, read_only, ReportKind::ReadOnlyWrite, &["here"]);
        fails_with(&kernel, 1, unwritten, ReportKind::UninitialisedRead, &["here"]);
    }
    fails_with(&add(8), 1, unwritten, ReportKind::Misaligned, &["here"]);
    fails_with(&add(64), 1, unwritten, ReportKind::OutOfBounds, &["here"]);
}

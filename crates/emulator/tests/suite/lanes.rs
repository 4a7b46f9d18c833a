//! Values that the lanes of a warp exchange, and atomic operations in shared memory, compared with
//! what PTX says of each (PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "atom").

use pgemm_ir::{
    Argument, AtomicOp, Element, KernelBuilder, Order, RegionKind, Scope, Shuffle, SmemRequest,
    Special, Val, ty,
};

use crate::kernel::{passes, role, words};

/// The value of a thread.
fn value(thread: u32) -> u32 {
    thread.wrapping_mul(0x9e37_79b9) >> 3
}

/// Runs a function of each thread's value in four warps and compares each thread's word. The
/// expected word is that of a lane, given the values of all lanes of its warp.
#[track_caller]
fn check(
    body: impl for<'k> Fn(&'k KernelBuilder, Val<'k, ty::U32>) -> Val<'k, ty::U32>,
    expected: impl Fn(usize, &[u32]) -> u32,
) {
    let kernel = role(|b| {
        let output = b.param::<ty::U64>("output");
        let thread = b.special(Special::Thread);
        let value = (thread * 0x9e37_79b9) >> 3;
        b.store_global(output.byte_offset(thread * 4), [body(b, value)]);
    });
    let values: Vec<u32> = (0..128).map(value).collect();
    passes(
        &kernel,
        1,
        |memory| {
            let output = memory.allocate("output", 4 * 128);
            (vec![Argument::U64(output)], output)
        },
        |memory, output| {
            let found = words(memory, output, 128);
            for (thread, found) in found.into_iter().enumerate() {
                let warp = &values[thread / 32 * 32..][..32];
                assert_eq!(found, expected(thread % 32, warp), "thread {thread}");
            }
        },
    );
}

#[test]
fn shuffles_read_the_lane_that_ptx_names() {
    check(|_, a| a.shuffle(5), |_, warp| warp[5]);
    check(|_, a| a.shuffle_up(3), |lane, warp| warp[if lane < 3 { lane } else { lane - 3 }]);
    check(|_, a| a.shuffle_down(3), |lane, warp| warp[if lane > 28 { lane } else { lane + 3 }]);
    check(|_, a| a.shuffle_xor(9), |lane, warp| warp[lane ^ 9]);
    check(|b, a| a.shuffle(b.special(Special::Lane) + 1), |lane, warp| warp[(lane + 1) % 32]);
    check(|_, a| a.shuffle_in(Shuffle::Index, 8, 11), |lane, warp| warp[lane / 8 * 8 + 3]);
    // Beyond the group, a lane reads its own value.
    check(
        |_, a| a.shuffle_in(Shuffle::Down, 8, 2),
        |lane, warp| warp[if lane % 8 > 5 { lane } else { lane + 2 }],
    );
    // Values of 64 bits keep their halves.
    let wide = |a: u32| u64::from(a) << 32 | 7;
    check(
        |_, a| ((((a.to_u64() << 32) | 7).shuffle_xor(1)) >> 30).low_word(),
        |lane, warp| (wide(warp[lane ^ 1]) >> 30) as u32,
    );
}

#[test]
fn votes_and_reductions_see_all_lanes() {
    let mask = |warp: &[u32], holds: &dyn Fn(u32) -> bool| {
        (0..32).fold(0, |mask, lane| mask | u32::from(holds(warp[lane])) << lane)
    };
    check(|_, a| (a & 1).eq(0).ballot(), |_, warp| mask(warp, &|a| a & 1 == 0));
    check(
        |b, a| (a.eq(value(40)) | b.special(Special::Warp).eq(3)).any_lane().select(1, 0),
        |_, warp| u32::from(warp.contains(&value(40)) || warp.contains(&value(96))),
    );
    check(
        |b, a| (a.ne(value(40)) & b.special(Special::Warp).ne(3)).all_lanes().select(1, 0),
        |_, warp| u32::from(!warp.contains(&value(40)) && !warp.contains(&value(96))),
    );
    check(|_, a| (a & 3).matching_lanes(), |lane, warp| mask(warp, &|a| a & 3 == warp[lane] & 3));
    check(|_, a| a.warp_sum(), |_, warp| warp.iter().fold(0, |sum, a| sum.wrapping_add(*a)));
    check(|_, a| a.warp_min(), |_, warp| *warp.iter().min().unwrap());
    check(|_, a| a.warp_max(), |_, warp| *warp.iter().max().unwrap());
    check(|_, a| a.warp_and(), |_, warp| warp.iter().fold(u32::MAX, |all, a| all & a));
    check(|_, a| a.warp_or(), |_, warp| warp.iter().fold(0, |all, a| all | a));
    check(|_, a| a.warp_xor(), |_, warp| warp.iter().fold(0, |all, a| all ^ a));
    check(
        |_, a| (a.as_s32() << 3).warp_min().as_u32(),
        |_, warp| warp.iter().map(|a| (a << 3) as i32).min().unwrap() as u32,
    );
    // Four groups of eight lanes.
    check(
        |_, a| a.reduce_lanes(8, |a, b| a + b),
        |lane, warp| warp[lane / 8 * 8..][..8].iter().fold(0, |sum, a| sum.wrapping_add(*a)),
    );
}

/// Runs an atomic operation of all 32 lanes of a warp on one word of shared memory, and returns the
/// word and the sum of what the lanes have read.
fn atomic(op: AtomicOp, first: u32, operand: fn(u32) -> u32) -> [u32; 2] {
    let mut found = [0; 2];
    let kernel = role(|b| {
        let output = b.param::<ty::U64>("output");
        let kind = RegionKind::Data(Element::F32);
        let word = b.smem_address(b.region("word", kind, SmemRequest::whole(16, 16)));
        let thread = b.special(Special::Thread);
        b.if_(thread.eq(0), || b.store_shared(word, [b.constant(first)]));
        b.sync_cta();
        b.if_(b.special(Special::Warp).eq(1), || {
            let lane = b.special(Special::Lane);
            let operands: Vec<u32> = (0..32).map(operand).collect();
            let value = operands.iter().enumerate().fold(b.constant(0u32), |all, (i, operand)| {
                lane.eq(i as u32).select(*operand, all)
            });
            let old: Val<'_, ty::U32> = b.atomic(op, word, value, Order::Relaxed, Scope::Cta);
            let sum = old.warp_sum();
            b.if_(lane.eq(0), || b.store_global(output.byte_offset(4u32), [sum]));
        });
        b.sync_cta();
        b.if_(thread.eq(0), || {
            let [last] = b.load_shared::<ty::U32, 1>(word);
            b.store_global(output, [last]);
        });
    });
    let results = std::cell::RefCell::new(&mut found);
    passes(
        &kernel,
        1,
        |memory| {
            let output = memory.allocate("output", 8);
            (vec![Argument::U64(output)], output)
        },
        |memory, output| results.borrow_mut().copy_from_slice(&words(memory, output, 2)),
    );
    found
}

#[test]
fn atomics_in_shared_memory_combine_all_lanes() {
    // Lanes come in their order, so that each reads what the ones before have left.
    assert_eq!(atomic(AtomicOp::Add, 10, |_| 2), [74, (0..32).map(|i| 10 + 2 * i).sum()]);
    assert_eq!(atomic(AtomicOp::Inc, 0, |_| 9), [2, (0..32).map(|i| i % 10).sum()]);
    assert_eq!(atomic(AtomicOp::Dec, 3, |_| 4), [1, (0..32).map(|i| (8 - i % 5) % 5).sum()]);
    assert_eq!(atomic(AtomicOp::Min, 7, |lane| 40 - lane)[0], 7);
    assert_eq!(atomic(AtomicOp::Max, 7, |lane| 40 - lane), [40, 7 + 31 * 40]);
    assert_eq!(atomic(AtomicOp::And, 0xff, |lane| !(lane & 4))[0], 0xfb);
    assert_eq!(atomic(AtomicOp::Or, 0, |lane| 1 << (lane % 5))[0], 0x1f);
    assert_eq!(atomic(AtomicOp::Xor, 0, |lane| 1 << (lane % 5))[0], 0b00011);
    assert_eq!(atomic(AtomicOp::Exch, 100, |lane| lane), [31, 100 + (0..31).sum::<u32>()]);
}

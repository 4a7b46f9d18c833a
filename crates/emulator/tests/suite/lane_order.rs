//! Lanes of a warp that communicate through shared memory without a barrier of the warp.

use pgemm_emulator::{Memory, Permission, ReportKind};
use pgemm_ir::{
    Argument, Element, Kernel, KernelBuilder, RegionKind, SmemRequest, Special, Val, ty,
};

use crate::kernel::{fails_with, passes, role};

/// A kernel with a word of shared memory for each thread, and the place of the output.
fn kernel(
    body: impl for<'k> FnOnce(&'k KernelBuilder, Val<'k, ty::Smem>, Val<'k, ty::U32>),
) -> Kernel {
    role(|b| {
        b.param::<ty::U64>("output");
        let kind = RegionKind::Data(Element::F32);
        let words = b.smem_address(b.region("words", kind, SmemRequest::whole(512, 16)));
        let thread = b.special(Special::Thread);
        b.store_shared(words.offset(thread * 4), [thread]);
        b.sync_cta();
        body(b, words, thread);
    })
}

fn prepare(memory: &mut Memory) -> Vec<Argument> {
    vec![Argument::U64(memory.upload("output", &[0; 512], Permission::ReadWrite))]
}

#[track_caller]
fn fails(kernel: &Kernel) {
    let report = fails_with(kernel, 1, prepare, ReportKind::Race, &["first", "second"]);
    assert!(report.message.starts_with("no barrier of the warp orders"), "{report}");
    let lanes = [0, 1].map(|site| report.sites[site].actor.lane.unwrap());
    assert_ne!(lanes[0], lanes[1], "{report}");
    assert_eq!(report.sites[0].actor.warp, report.sites[1].actor.warp, "{report}");
}

#[track_caller]
fn runs(kernel: &Kernel) {
    passes(kernel, 1, |memory| (prepare(memory), ()), |_, ()| ());
}

/// A lane stores, and others load with or without a barrier between.
#[test]
fn what_a_lane_writes_others_read_after_a_barrier() {
    for sync in [false, true] {
        let kernel = kernel(|b, words, thread| {
            let own = words.offset(thread * 4);
            b.scope("first", || b.store_shared(own, [thread + 1]));
            if sync {
                b.warp_sync();
            }
            let [other] =
                b.scope("second", || b.load_shared::<ty::U32, 1>(words.offset((thread ^ 1) * 4)));
            b.warp_sync();
            b.store_shared(own, [other]);
        });
        if sync { runs(&kernel) } else { fails(&kernel) }
    }
}

/// A lane overwrites what another has read.
#[test]
fn what_a_lane_reads_others_overwrite_after_a_barrier() {
    for sync in [false, true] {
        let kernel = kernel(|b, words, thread| {
            let [other] =
                b.scope("first", || b.load_shared::<ty::U32, 1>(words.offset((thread ^ 1) * 4)));
            if sync {
                b.warp_sync();
            }
            b.scope("second", || b.store_shared(words.offset(thread * 4), [other]));
        });
        if sync { runs(&kernel) } else { fails(&kernel) }
    }
}

/// All lanes read what the elected one has written: a uniform address.
#[test]
fn a_broadcast_through_memory_needs_a_barrier() {
    for sync in [false, true] {
        let kernel = kernel(|b, words, thread| {
            let place = words.offset(b.special(Special::Warp) * 4);
            b.if_((thread & 31).eq(7), || {
                b.scope("first", || b.store_shared(place, [thread]));
            });
            if sync {
                b.warp_sync();
            }
            let [found] = b.scope("second", || b.load_shared::<ty::U32, 1>(place));
            b.sync_cta();
            b.store_shared(words.offset(thread * 4), [found]);
        });
        if sync { runs(&kernel) } else { fails(&kernel) }
    }
}

/// Two lanes write the same word by different instructions.
#[test]
fn two_writes_need_a_barrier() {
    let kernel = kernel(|b, words, thread| {
        b.if_((thread & 31).eq(3), || {
            b.scope("first", || b.store_shared(words.offset(thread * 4), [thread]));
        });
        b.if_((thread & 31).eq(4), || {
            b.scope("second", || b.store_shared(words.offset((thread - 1) * 4), [thread]));
        });
    });
    fails(&kernel);
}

/// A lane may use its own words, lanes of one instruction may write the same value, and all may
/// read the same word.
#[test]
fn a_lane_needs_no_barrier_for_what_it_did_itself() {
    let own = kernel(|b, words, thread| {
        let own = words.offset(thread * 4);
        let [value] = b.load_shared::<ty::U32, 1>(own);
        b.store_shared(own, [value + 1]);
        let [value] = b.load_shared::<ty::U32, 1>(own);
        b.store_shared(own, [value + 1]);
    });
    runs(&own);
    let one_warp = role(|b| {
        b.param::<ty::U64>("output");
        let kind = RegionKind::Data(Element::F32);
        let place = b.smem_address(b.region("word", kind, SmemRequest::whole(16, 16)));
        b.if_(b.special(Special::Warp).eq(0), || {
            b.store_shared(place, [b.constant(7u32)]);
            b.warp_sync();
            let [all] = b.load_shared::<ty::U32, 1>(place);
            b.warp_sync();
            b.store_shared(place, [all.warp_sum()]);
        });
    });
    runs(&one_warp);
}

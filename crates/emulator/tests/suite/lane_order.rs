//! Lanes of a warp that communicate through memory without a barrier of the warp.

use pgemm_emulator::{Memory, Permission, ReportKind};
use pgemm_ir::{
    Argument, Element, Kernel, KernelBuilder, Order, RegionKind, Scope, SmemRequest, Special, Val,
    ty,
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

/// Neighbours exchange bytes and halves of words.
#[test]
fn parts_of_words_need_a_barrier_too() {
    for bytes in [1, 2] {
        for sync in [false, true] {
            let kernel = kernel(|b, words, thread| {
                let [own, beside] = [thread, thread ^ 1].map(|at| words.offset(at * bytes));
                b.sync_cta();
                b.scope("first", || b.store_narrow_shared(own, bytes, thread));
                // Its own bytes need no barrier, and those beside them are others.
                let kept = b.load_narrow_shared(own, bytes);
                if sync {
                    b.warp_sync();
                }
                let other = b.scope("second", || b.load_narrow_shared(beside, bytes));
                b.sync_cta();
                b.store_shared(words.offset(thread * 4), [kept + other]);
            });
            if sync { runs(&kernel) } else { fails(&kernel) }
        }
    }
}

/// Neighbours exchange words and halves of words of global memory.
#[test]
fn global_memory_needs_a_barrier_too() {
    for halves in [false, true] {
        for sync in [false, true] {
            let kernel = role(|b| {
                let output = b.param::<ty::U64>("output");
                let thread = b.special(Special::Thread);
                let bytes = if halves { 2 } else { 4 };
                let [own, beside] = [thread, thread ^ 1].map(|at| output.byte_offset(at * bytes));
                let value = thread.to_f32();
                b.scope("first", || match halves {
                    true => b.store_element(own, Element::F16, value),
                    false => b.store_global(own, [value]),
                });
                if sync {
                    b.warp_sync();
                }
                let other = b.scope("second", || match halves {
                    true => b.load_element(beside, Element::F16),
                    false => b.load_global::<ty::F32, 1>(beside)[0],
                });
                b.warp_sync();
                match halves {
                    true => b.store_element(own, Element::F16, other),
                    false => b.store_global(own, [other]),
                }
            });
            if sync { runs(&kernel) } else { fails(&kernel) }
        }
    }
}

/// The shared memory of two warps, of which the first stores for the second.
struct Handover<'k> {
    words: Val<'k, ty::Smem>,
    /// An mbarrier with one arrival.
    stored: Val<'k, ty::Smem>,
    thread: Val<'k, ty::U32>,
    warp: Val<'k, ty::U32>,
}

fn handover(body: impl for<'k> FnOnce(&'k KernelBuilder, Handover<'k>)) -> Kernel {
    kernel(|b, words, thread| {
        let stored = SmemRequest::whole(8, 8);
        let stored = b.smem_address(b.region("stored", RegionKind::Mbarrier, stored));
        b.if_(thread.eq(0), || stored.mbarrier_init(1));
        b.sync_cta();
        body(b, Handover { words, stored, thread, warp: b.special(Special::Warp) });
    })
}

/// One lane tells another warp that all lanes have stored.
#[test]
fn a_lane_speaks_for_others_after_a_barrier() {
    for sync in [false, true] {
        let kernel = handover(|b, Handover { words, stored, thread, warp }| {
            b.if_(warp.eq(0), || {
                b.scope("first", || b.store_shared(words.offset(thread * 4), [thread]));
                if sync {
                    b.warp_sync();
                }
                b.if_(thread.eq(0), || stored.mbarrier_arrive());
            });
            b.if_(warp.eq(1), || {
                stored.mbarrier_wait(0);
                let word = words.offset((thread & 31) * 4);
                b.scope("second", || b.load_shared::<ty::U32, 1>(word));
            });
        });
        if sync {
            runs(&kernel);
        } else {
            fails_with(&kernel, 1, prepare, ReportKind::Race, &["first", "second"]);
        }
    }
}

/// What a lane stored alone, it passes on alone.
#[test]
fn a_lane_speaks_for_itself() {
    let kernel = handover(|b, Handover { words, stored, thread, warp }| {
        b.if_(warp.eq(0), || {
            b.store_shared(words.offset(thread * 4), [thread]);
            b.if_(thread.eq(0), || {
                b.store_shared(words.offset(128), [thread]);
                stored.mbarrier_arrive();
            });
        });
        b.if_(warp.eq(1), || {
            stored.mbarrier_wait(0);
            b.load_shared::<ty::U32, 1>(words.offset(128));
        });
    });
    runs(&kernel);
}

/// A lane waits for what another warp has stored, and the other lanes of its warp read it.
#[test]
fn a_lane_acquires_for_others_by_a_barrier() {
    for (waits, sync) in [(1, false), (1, true), (2, false), (32, false)] {
        let kernel = handover(|b, Handover { words, stored, thread, warp }| {
            b.if_(warp.eq(0), || {
                b.scope("first", || b.store_shared(words.offset(thread * 4), [thread]));
                b.warp_sync();
                b.if_(thread.eq(0), || stored.mbarrier_arrive());
            });
            b.if_(warp.eq(1), || {
                let lane = thread & 31;
                b.if_(lane.lt(waits), || {
                    stored.mbarrier_wait(0);
                    // It may read everything itself.
                    b.for_range(0, 32, 1, |at| {
                        b.load_shared::<ty::U32, 1>(words.offset(at * 4));
                    });
                });
                if sync {
                    b.warp_sync();
                }
                b.scope("second", || b.load_shared::<ty::U32, 1>(words.offset(lane * 4)));
            });
        });
        if sync || waits == 32 {
            runs(&kernel);
        } else {
            let labels = ["second", "first"];
            let report = fails_with(&kernel, 1, prepare, ReportKind::Race, &labels);
            assert!(
                report.to_string().contains("a barrier of the warp passes that on"),
                "{report}"
            );
        }
    }
}

/// The same through global memory, by an acquire of one lane.
#[test]
fn an_acquire_of_a_lane_is_not_one_of_its_warp() {
    for sync in [false, true] {
        let kernel = role(|b| {
            let output = b.param::<ty::U64>("output");
            let thread = b.special(Special::Thread);
            let flag = output.byte_offset(256);
            let warp = b.special(Special::Warp);
            b.if_(warp.eq(0), || {
                b.scope("first", || b.store_global(output.byte_offset(thread * 4), [thread]));
                b.warp_sync();
                let one = b.constant::<ty::U32>(1);
                b.if_(thread.eq(0), || b.store_ordered(flag, one, Order::Release, Scope::Gpu));
            });
            b.if_(warp.eq(1), || {
                let lane = thread & 31;
                b.if_(lane.eq(0), || {
                    b.while_(b.load_acquire(flag), |flag| flag.eq(0), |_| b.load_acquire(flag));
                });
                if sync {
                    b.warp_sync();
                }
                let from = output.byte_offset(lane * 4);
                b.scope("second", || b.load_global::<ty::U32, 1>(from));
            });
        });
        if sync {
            runs(&kernel);
        } else {
            fails_with(&kernel, 1, prepare, ReportKind::Race, &["second", "first"]);
        }
    }
}

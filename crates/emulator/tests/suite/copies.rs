//! Asynchronous copies by threads, and bulk copies of consecutive bytes: what they move, and what
//! is found when something is left out.

use pgemm_emulator::{Memory, Permission, ReportKind};
use pgemm_ir::{
    Argument, Element, Kernel, KernelBuilder, RegionKind, SmemRequest, Special, Val, ty,
};

use crate::kernel::{fails_with, passes, role, words};

const THREADS: u32 = 128;

/// A kernel with an input and an output of one word for each thread, and a word of shared memory
/// for each.
fn kernel(
    body: impl for<'k> FnOnce(&'k KernelBuilder, [Val<'k, ty::U64>; 2], Val<'k, ty::Smem>),
) -> Kernel {
    role(|b| {
        let pointers = ["input", "output"].map(|name| b.param::<ty::U64>(name));
        let kind = RegionKind::Data(Element::F32);
        let tile = b.smem_address(b.region("tile", kind, SmemRequest::whole(8 * THREADS, 128)));
        // Whatever is read too early was written.
        b.store_shared(tile.offset(b.special(Special::Thread) * 8), [b.constant(0u32); 2]);
        b.fence_proxy_async();
        b.sync_cta();
        body(b, pointers, tile);
    })
}

fn prepare(memory: &mut Memory) -> Vec<Argument> {
    let input: Vec<u8> = (0..THREADS).flat_map(|i| (i * 3 + 1).to_le_bytes()).collect();
    let input = memory.upload("input", &input, Permission::ReadWrite);
    let output = memory.allocate("output", 4 * THREADS as usize);
    vec![Argument::U64(input), Argument::U64(output)]
}

#[track_caller]
fn gives(kernel: &Kernel, expected: impl Fn(u32) -> u32) {
    let with_output = |memory: &mut Memory| {
        let arguments = prepare(memory);
        let Argument::U64(output) = arguments[1] else { unreachable!("the output is an address") };
        (arguments, output)
    };
    passes(kernel, 1, with_output, |memory, output| {
        let expected: Vec<u32> = (0..THREADS).map(&expected).collect();
        assert_eq!(words(memory, output, THREADS as usize), expected);
    });
}

#[track_caller]
fn fails(kernel: &Kernel, kind: ReportKind, labels: &[&str]) {
    fails_with(kernel, 1, prepare, kind, labels);
}

/// What a kernel with an asynchronous copy leaves out.
#[derive(Clone, Copy, Default)]
struct Without {
    wait: bool,
    barrier: bool,
    later_source: bool,
}

/// Each thread copies its word, and its neighbour reads it.
fn copying(without: Without) -> Kernel {
    kernel(|b, [input, output], tile| {
        let thread = b.special(Special::Thread);
        let at = thread * 4;
        b.scope("copy", || b.copy_async(4, input.byte_offset(at), tile.offset(at), 4));
        b.copy_commit();
        if without.later_source {
            b.scope("write", || b.store_global(input.byte_offset(at), [thread]));
        }
        if !without.wait {
            b.copy_wait(0);
        }
        if !without.barrier {
            b.sync_cta();
        }
        let [word] =
            b.scope("read", || b.load_shared::<ty::U32, 1>(tile.offset((thread ^ 77) * 4)));
        if without.wait {
            b.copy_wait(0);
        }
        b.store_global(output.byte_offset(at), [word]);
    })
}

#[test]
fn copies_are_seen_after_a_wait_and_a_barrier() {
    gives(&copying(Without::default()), |thread| (thread ^ 77) * 3 + 1);
    let race = |without| fails(&copying(without), ReportKind::Race, &["copy", "read"]);
    race(Without { barrier: true, ..Without::default() });
    race(Without { wait: true, ..Without::default() });
    let without = Without { later_source: true, ..Without::default() };
    fails(&copying(without), ReportKind::Race, &["copy", "write"]);
}

#[test]
fn zeros_follow_the_bytes_of_the_source() {
    let kernel = kernel(|b, [input, output], tile| {
        let thread = b.special(Special::Thread);
        let at = thread * 4;
        b.copy_async(4, input.byte_offset(at), tile.offset(at), thread % 3);
        b.copy_commit();
        b.copy_wait(0);
        let [word] = b.load_shared::<ty::U32, 1>(tile.offset(at));
        b.store_global(output.byte_offset(at), [word]);
    });
    gives(&kernel, |thread| (thread * 3 + 1) & [0, 0xff, 0xffff][thread as usize % 3]);
}

#[test]
fn an_mbarrier_counts_copies() {
    let counting = |waits: bool| {
        kernel(|b, [input, output], tile| {
            let full = b.region("full", RegionKind::Mbarrier, SmemRequest::whole(8, 8));
            let full = b.smem_address(full);
            let thread = b.special(Special::Thread);
            b.if_(thread.eq(0), || full.mbarrier_init(THREADS));
            b.sync_cta();
            let at = thread * 4;
            b.scope("copy", || b.copy_async(4, input.byte_offset(at), tile.offset(at), 4));
            full.mbarrier_arrive_after_copies();
            if waits {
                full.mbarrier_wait(0);
            }
            let [word] =
                b.scope("read", || b.load_shared::<ty::U32, 1>(tile.offset((thread ^ 77) * 4)));
            if !waits {
                full.mbarrier_wait(0);
            }
            b.store_global(output.byte_offset(at), [word]);
        })
    };
    gives(&counting(true), |thread| (thread ^ 77) * 3 + 1);
    fails(&counting(false), ReportKind::Race, &["copy", "read"]);
}

#[test]
fn a_warp_waits_for_its_copies_before_it_ends() {
    let kernel = kernel(|b, [input, _], tile| {
        let at = b.special(Special::Thread) * 4;
        b.copy_async(4, input.byte_offset(at), tile.offset(at), 4);
        let other = tile.offset(at + 4 * THREADS);
        b.scope("forgotten", || b.copy_async(4, input.byte_offset(at), other, 4));
        b.copy_commit();
        b.copy_wait(1);
    });
    fails(&kernel, ReportKind::ExitWithCopyInFlight, &["forgotten"]);
}

/// A bulk load of all words, and a bulk store of them. Without a fence, the store may read what the
/// threads have not written yet.
fn bulk(fence: bool) -> Kernel {
    kernel(|b, [input, output], tile| {
        let full = b.region("full", RegionKind::Mbarrier, SmemRequest::whole(8, 8));
        let full = b.smem_address(full);
        let thread = b.special(Special::Thread);
        let bytes = 4 * THREADS;
        b.if_(thread.eq(0), || {
            full.mbarrier_init(1);
            b.fence_mbarrier_init();
            full.mbarrier_expect_copies(|copies| copies.load_bytes(input, tile, bytes));
        });
        b.sync_cta();
        full.mbarrier_wait(0);
        let own = tile.offset(thread * 4);
        let [word] = b.load_shared::<ty::U32, 1>(own);
        b.scope("write", || b.store_shared(own, [word + 1]));
        if fence {
            b.fence_proxy_async();
        }
        b.sync_cta();
        b.if_(thread.eq(0), || {
            b.scope("store", || b.bulk_store(tile, output, bytes));
            b.bulk_commit();
            b.bulk_wait(0);
        });
    })
}

#[test]
fn bulk_copies_move_consecutive_bytes() {
    gives(&bulk(true), |thread| thread * 3 + 2);
    fails(&bulk(false), ReportKind::MissingProxyFence, &["store", "write"]);
}

#[test]
fn bulk_copies_have_whole_units_of_16_bytes() {
    let copying = |bytes: u32, offset: u32| {
        kernel(move |b, [_, output], tile| {
            let thread = b.special(Special::Thread);
            b.store_shared(tile.offset(thread * 4), [thread]);
            b.fence_proxy_async();
            b.sync_cta();
            b.if_(thread.eq(0), || {
                b.scope("here", || b.bulk_store(tile, output.byte_offset(offset), bytes));
                b.bulk_commit();
                b.bulk_wait(0);
            });
        })
    };
    fails(&copying(24, 0), ReportKind::TmaMisuse, &["here"]);
    fails(&copying(0, 0), ReportKind::TmaMisuse, &["here"]);
    fails(&copying(32, 8), ReportKind::Misaligned, &["here"]);
    fails(&copying(4 * THREADS, 16), ReportKind::OutOfBounds, &["here"]);
}

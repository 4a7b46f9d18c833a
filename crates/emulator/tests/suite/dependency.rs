//! Programmatic dependent launch: a grid must not access global memory before
//! `griddepcontrol.wait`.

use pgemm_emulator::{Memory, Permission, ReportKind};
use pgemm_ir::{
    Argument, AtomicOp, Element, Kernel, KernelBuilder, Order, RegionKind, Scope, SmemRequest,
    Special, SwizzleMode, TensorMap, TensorMapSpec, Val, ty,
};

use crate::kernel::{fails_with, matrix, passes, role, words};

/// The `createpolicy` value for `evict_last`.
const EVICT_LAST: u64 = 0x14f0_0000_0000_0000;

fn arguments(memory: &mut Memory) -> (Vec<Argument>, u64) {
    let address = memory.upload("data", &[0; 512], Permission::ReadWrite);
    let input = memory.upload("input", &[1; 512], Permission::ReadOnly);
    (vec![Argument::U64(address), matrix(input, 16, 8, 64)], address)
}

struct Operands<'k> {
    data: Val<'k, ty::U64>,
    map: TensorMap<'k>,
    tile: Val<'k, ty::Smem>,
    barrier: Val<'k, ty::Smem>,
}

/// A kernel with an initialised mbarrier.
fn kernel(body: impl for<'k> FnOnce(&'k KernelBuilder, Operands<'k>)) -> Kernel {
    role(|b| {
        let spec = TensorMapSpec::tiled(Element::F32, vec![16, 8], SwizzleMode::None);
        let (data, map) = (b.param("data"), b.tensor_map("map", spec));
        let kind = RegionKind::Data(Element::F32);
        let tile = b.smem_address(b.region("tile", kind, SmemRequest::whole(512, 128)));
        let barrier = b.region("barrier", RegionKind::Mbarrier, SmemRequest::whole(8, 8));
        let barrier = b.smem_address(barrier);
        b.if_(b.special(Special::Thread).eq(0), || {
            map.prefetch_map();
            barrier.mbarrier_init(1);
            b.fence_mbarrier_init();
        });
        b.sync_cta();
        body(b, Operands { data, map, tile, barrier });
    })
}

fn increments(b: &KernelBuilder, data: Val<'_, ty::U64>) {
    let own = data.byte_offset(b.special(Special::Thread) * 4);
    let [word] = b.scope("read", || b.load_global::<ty::U32, 1>(own));
    b.store_global(own, [word + 1]);
}

#[test]
fn one_warp_waits_and_hands_the_others_what_it_knows() {
    let handed = |how: &'static str| {
        kernel(move |b, operands| {
            b.if_(b.special(Special::Warp).eq(0), || {
                b.grid_dependency_wait();
                if how == "mbarrier" {
                    b.if_(b.elect(), || operands.barrier.mbarrier_arrive());
                }
            });
            match how {
                "barrier" => b.sync_cta(),
                "mbarrier" => operands.barrier.mbarrier_wait(0),
                _ => {}
            }
            increments(b, operands.data);
            b.grid_dependency_launch();
        })
    };
    for how in ["barrier", "mbarrier"] {
        passes(&handed(how), 1, arguments, |memory, data| {
            assert_eq!(words(memory, data, 128), [1; 128]);
        });
    }
    let kind = ReportKind::MissingGridDependencyWait;
    fails_with(&handed("nothing"), 1, |m| arguments(m).0, kind, &["read"]);
}

#[test]
fn a_grid_that_never_waits_depends_on_none() {
    let kernel = kernel(|b, operands| {
        b.grid_dependency_launch();
        increments(b, operands.data);
    });
    passes(&kernel, 1, arguments, |memory, data| {
        assert_eq!(words(memory, data, 128), [1; 128]);
    });
}

/// One access by thread 0, after or before the wait.
fn one_access(access: &'static str, waits_first: bool) -> Kernel {
    kernel(move |b, operands| {
        let Operands { data, map, tile, barrier } = operands;
        b.if_(b.special(Special::Thread).eq(0), || {
            if waits_first {
                b.grid_dependency_wait();
            }
            b.scope("early", || match access {
                "load" => {
                    b.load_global::<ty::U32, 1>(data);
                }
                "acquire" => {
                    b.load_acquire(data);
                }
                "store" => b.store_global(data, [b.constant::<ty::U32>(1)]),
                "atomic" => {
                    b.atomic(AtomicOp::Add, data, 1, Order::Relaxed, Scope::Gpu);
                }
                "element load" => {
                    b.load_element(data, Element::Bf16);
                }
                "element store" => b.store_element(data, Element::F16, b.constant(1.0)),
                "reduction" => b.reduce_add(data, [b.constant(1.0)]),
                _ => {
                    barrier.mbarrier_arrive_expect(512);
                    let zero = b.constant(0);
                    map.with_policy(EVICT_LAST).load(tile, barrier, &[zero, zero]);
                    barrier.mbarrier_wait(0);
                }
            });
            if !waits_first {
                b.grid_dependency_wait();
            }
        });
    })
}

#[test]
fn every_kind_of_access_comes_after_the_wait() {
    let elements = ["element load", "element store"];
    let others = ["load", "acquire", "store", "atomic", "reduction", "tma load"];
    for access in others.into_iter().chain(elements) {
        passes(&one_access(access, true), 1, arguments, |_, _| ());
        let kind = ReportKind::MissingGridDependencyWait;
        fails_with(&one_access(access, false), 1, |m| arguments(m).0, kind, &["early"]);
    }
}

#[test]
fn maps_and_boxes_are_prefetched_before_the_wait() {
    let kernel = kernel(|b, operands| {
        // Half of this box is outside the tensor.
        let [x, y] = [8, 0].map(|at| b.constant(at));
        b.if_(b.special(Special::Thread).eq(0), || {
            operands.map.prefetch_box(&[x, y]);
            operands.map.with_policy(EVICT_LAST).prefetch_box(&[x, y]);
        });
        b.grid_dependency_wait();
        increments(b, operands.data);
    });
    passes(&kernel, 1, arguments, |memory, data| {
        assert_eq!(words(memory, data, 128), [1; 128]);
    });
}

#[test]
fn stores_by_tma_come_after_the_wait() {
    let storing = |waits_first: bool| {
        role(move |b| {
            let spec = TensorMapSpec::tiled(Element::F32, vec![16, 8], SwizzleMode::None);
            let map = b.tensor_map("map", spec).with_policy(EVICT_LAST);
            let kind = RegionKind::Data(Element::F32);
            let tile = b.smem_address(b.region("tile", kind, SmemRequest::whole(512, 128)));
            let thread = b.special(Special::Thread);
            b.store_shared(tile.offset(thread * 4), [thread]);
            b.fence_proxy_async();
            b.sync_cta();
            b.if_(thread.eq(0), || {
                if waits_first {
                    b.grid_dependency_wait();
                }
                let zero = b.constant(0);
                b.scope("early", || map.store(tile, &[zero, zero]));
                b.bulk_commit();
                b.bulk_wait(0);
                if !waits_first {
                    b.grid_dependency_wait();
                }
            });
        })
    };
    let output = |memory: &mut Memory| {
        let address = memory.allocate("output", 512);
        (vec![matrix(address, 16, 8, 64)], address)
    };
    passes(&storing(true), 1, output, |memory, address| {
        assert_eq!(words(memory, address, 128), (0..128).collect::<Vec<_>>());
    });
    let kind = ReportKind::MissingGridDependencyWait;
    fails_with(&storing(false), 1, |m| output(m).0, kind, &["early"]);
}

//! Tensor maps in global memory: the fences that are needed between a write of a map and its use.

use pgemm_emulator::{
    ActorKind, HostStep, HostView, Memory, Options, Permission, Report, ReportKind, Schedule,
    Statistics, tensor_map_image,
};
use pgemm_ir::{
    Argument, Element, Kernel, KernelBuilder, Launch, Order, RegionKind, Scope, SmemRequest,
    Special, SwizzleMode, TensorMap, TensorMapArgument, TensorMapSpec, Val, ty,
};

use crate::host::{in_thread_0, poll, run_hosted};
use crate::kernel::{fails_with, matrix, passes, role, run_with, schedules, words};

/// A box of one row of 32 words.
fn row_spec() -> TensorMapSpec {
    TensorMapSpec::tiled(Element::F32, vec![32, 1], SwizzleMode::None)
}

/// A tensor map of two rows of 32 words.
fn image(address: u64) -> [u8; 128] {
    let argument = TensorMapArgument { address, extents: vec![32, 2], strides: vec![128] };
    tensor_map_image(&row_spec(), &argument).unwrap()
}

fn numbers(first: u32) -> Vec<u8> {
    (first..first + 64).flat_map(u32::to_le_bytes).collect()
}

/// Shared memory for a row, with the alignment that TMA needs.
fn row<'k>(b: &'k KernelBuilder, name: &str) -> Val<'k, ty::Smem> {
    b.smem_address(b.region(name, RegionKind::Data(Element::F32), SmemRequest::whole(128, 128)))
}

fn ready_barrier<'k>(b: &'k KernelBuilder) -> Val<'k, ty::Smem> {
    let region = b.region("barrier", RegionKind::Mbarrier, SmemRequest::whole(8, 8));
    let barrier = b.smem_address(region);
    b.if_(b.special(Special::Thread).eq(0), || {
        barrier.mbarrier_init(1);
        b.fence_mbarrier_init();
    });
    b.sync_cta();
    barrier
}

/// Loads a row to shared memory and waits for it.
fn bring(
    b: &KernelBuilder,
    map: &TensorMap<'_>,
    tile: Val<'_, ty::Smem>,
    barrier: Val<'_, ty::Smem>,
    row: u32,
    parity: u32,
) {
    barrier.mbarrier_arrive_expect(128);
    map.load(tile, barrier, &[b.constant(0), b.constant(row)]);
    barrier.mbarrier_wait(parity);
}

/// Copies the second row behind a map in memory to `output`, in thread 0 of CTA 0.
fn copier(offset: u32, acquires: bool) -> Kernel {
    role(move |b| {
        let [maps, output] = ["maps", "output"].map(|name| b.param::<ty::U64>(name));
        let (tile, barrier) = (row(b, "tile"), ready_barrier(b));
        in_thread_0(b, 0, || {
            let map = b.tensor_map_at(maps.byte_offset(offset), row_spec());
            if acquires {
                map.fence_acquire(Scope::Gpu);
            }
            b.scope("use", || bring(b, &map, tile, barrier, 1, 0));
            copy_out(b, tile, output);
        });
    })
}

/// Stores a row of shared memory to global memory.
fn copy_out(b: &KernelBuilder, tile: Val<'_, ty::Smem>, output: Val<'_, ty::U64>) {
    b.for_range(0, 32, 1, |index| {
        let [word] = b.load_shared::<ty::U32, 1>(tile.offset(index * 4));
        b.store_global(output.byte_offset(index * 4), [word]);
    });
}

fn uploaded(memory: &mut Memory, maps: &[u8]) -> (Vec<Argument>, u64) {
    let maps = memory.upload("maps", maps, Permission::ReadWrite);
    let output = memory.allocate("output", 128);
    (vec![Argument::U64(maps), Argument::U64(output)], output)
}

#[test]
fn what_lay_there_before_the_launch_needs_no_fence() {
    for acquires in [false, true] {
        passes(
            &copier(128, acquires),
            1,
            |memory| {
                let input = memory.upload("input", &numbers(100), Permission::ReadOnly);
                uploaded(memory, &[[0; 128], image(input)].concat())
            },
            |memory, output| {
                assert_eq!(words(memory, output, 32), (132..164).collect::<Vec<_>>());
            },
        );
    }
}

#[test]
fn what_is_no_map_is_not_used() {
    let misuse = |offset, prepare: fn(&mut Memory) -> Vec<Argument>| {
        let kind = ReportKind::TmaMisuse;
        fails_with(&copier(offset, false), 1, prepare, kind, &["use"]).message
    };
    let zeros = |memory: &mut Memory| uploaded(memory, &[0; 256]).0;
    assert!(misuse(128, zeros).contains("are not a tensor map at"));
    assert!(misuse(64, zeros).contains("a multiple of 128"));
    assert!(misuse(256, zeros).contains("no tensor map is a parameter"));
    let partly = |memory: &mut Memory| {
        let maps = memory.allocate("maps", 128);
        memory.write(maps, &image(1 << 36)[..64]).unwrap();
        vec![Argument::U64(maps), Argument::U64(memory.allocate("output", 128))]
    };
    assert!(misuse(0, partly).contains("nothing has written all 128 bytes"));
}

#[test]
fn parameters_are_not_acquired() {
    let kernel = role(|b| {
        let map = b.tensor_map("map", row_spec());
        in_thread_0(b, 0, || b.scope("acquire", || map.fence_acquire(Scope::Gpu)));
    });
    let arguments = |memory: &mut Memory| {
        vec![matrix(memory.upload("input", &[0; 256], Permission::ReadOnly), 32, 2, 128)]
    };
    fails_with(&kernel, 1, arguments, ReportKind::TmaMisuse, &["acquire"]);
}

#[test]
fn the_address_of_a_parameter_is_none_in_memory() {
    let kernel = role(|b| {
        let _ = b.tensor_map("map", row_spec());
        let map = b.tensor_map_at(b.constant(0u64), row_spec());
        in_thread_0(b, 0, || b.scope("use", || map.prefetch_map()));
    });
    let arguments = |memory: &mut Memory| {
        vec![matrix(memory.upload("input", &[0; 256], Permission::ReadOnly), 32, 2, 128)]
    };
    fails_with(&kernel, 1, arguments, ReportKind::TmaMisuse, &["use"]);
}

/// CTA 0 copies tensor maps from the host's ring to one slot by TMA, one after the other, and
/// publishes each. CTA 1 stores a row through each map and tells the host. `without` names the step
/// that is left out.
fn relay(without: &'static str) -> Kernel {
    let does = move |step: &str| without != step;
    role(move |b| {
        let words = TensorMapSpec::tiled(Element::F32, vec![32, 1], SwizzleMode::None);
        let [incoming, slots] = ["incoming", "slots"].map(|name| b.tensor_map(name, words.clone()));
        let [slot, doorbell] = ["slot", "doorbell"].map(|name| b.param::<ty::U64>(name));
        let [published, done] = ["published", "done"].map(|name| b.param::<ty::U64>(name));
        let (tile, barrier) = (row(b, "tile"), ready_barrier(b));
        let zero = b.constant(0);
        in_thread_0(b, 0, || {
            b.for_range(0, JOBS, 1, |job| {
                b.while_(
                    b.constant(0u64),
                    |seen| seen.lt((job + 1).to_u64()),
                    |_| b.load_ordered(doorbell, Order::Acquire, Scope::System),
                );
                if does("proxy fence") {
                    b.fence_proxy_async_global();
                }
                barrier.mbarrier_arrive_expect(128);
                b.scope("fetch", || incoming.load(tile, barrier, &[zero, job]));
                barrier.mbarrier_wait(job & 1);
                b.scope("copy", || slots.store(tile, &[zero, zero]));
                b.bulk_commit();
                if does("bulk wait") {
                    b.bulk_wait(0);
                } else {
                    b.bulk_wait_read(0);
                }
                if does("map release") {
                    b.fence_map_release(Scope::Gpu);
                }
                let order = if does("release") { Order::Release } else { Order::Relaxed };
                b.store_ordered(published, job + 1, order, Scope::Gpu);
            });
        });
        let first = if does("same thread") { 0 } else { 1 };
        b.if_(b.special(Special::Cta).eq(1), || {
            let thread = b.special(Special::Thread);
            b.for_range(0, JOBS, 1, |job| {
                let map = b.tensor_map_at(slot, row_spec());
                b.if_(thread.lt(2), || {
                    let order = if does("acquire") { Order::Acquire } else { Order::Relaxed };
                    b.while_(
                        b.constant(0u32),
                        |seen: Val<'_, ty::U32>| seen.lt(job + 1),
                        |_| b.load_ordered(published, order, Scope::Gpu),
                    );
                    if does("map acquire") {
                        b.if_(thread.eq(0), || map.fence_acquire(Scope::Gpu));
                    }
                });
                b.if_(thread.eq(first), || {
                    b.for_range(0, 32, 1, |index| {
                        b.store_shared(tile.offset(index * 4), [job + 1]);
                    });
                    b.fence_proxy_async();
                    b.scope("use", || map.store(tile, &[zero, zero]));
                    b.bulk_commit();
                    b.bulk_wait(0);
                    b.store_ordered(done, job + 1, Order::Release, Scope::System);
                });
            });
        });
    })
}

const JOBS: u32 = 3;

/// Runs the relay kernel with a host that makes the maps. If `waits`, the host waits until a map
/// was used before it hands over the next.
fn run_relay(kernel: &Kernel, schedule: Schedule, waits: bool) -> Result<Statistics, Box<Report>> {
    let mut memory = Memory::new();
    let outputs: Vec<u64> = (0..JOBS).map(|_| memory.upload("output", &[0; 256], RW)).collect();
    let incoming = memory.allocate("incoming", 128 * JOBS as usize);
    let slots = memory.allocate("slots", 128);
    let [doorbell, published, done] =
        ["doorbell", "published", "done"].map(|name| memory.upload(name, &[0; 8], RW));
    let arguments = [
        matrix(incoming, 32, JOBS.into(), 128),
        matrix(slots, 32, 1, 128),
        Argument::U64(slots),
        Argument::U64(doorbell),
        Argument::U64(published),
        Argument::U64(done),
    ];
    let mut job = 0u64;
    let (of_outputs, last) = (outputs.clone(), u64::from(JOBS));
    let host = move |memory: &mut HostView<'_>| {
        if (waits || job == last) && u64::from(memory.load_acquire_u32(done)) < job {
            return HostStep::Waits;
        }
        if job == last {
            return HostStep::Done;
        }
        memory.write(incoming + 128 * job, &image(of_outputs[job as usize]));
        job += 1;
        memory.store_release_u64(doorbell, job);
        HostStep::Ran
    };
    let options = Options { schedule, max_steps: 300_000, ..Options::default() };
    let statistics = run_hosted(kernel, 2, &arguments, &mut memory, options, host)?;
    for (job, output) in (1..).zip(outputs) {
        assert_eq!(words(&memory, output, 32), [job; 32]);
    }
    Ok(statistics)
}

const RW: Permission = Permission::ReadWrite;

#[test]
fn maps_that_are_copied_by_tma_are_used_after_fences() {
    let kernel = relay("");
    for schedule in schedules() {
        let run = run_relay(&kernel, schedule.clone(), true);
        run.unwrap_or_else(|report| panic!("under {schedule:?}: {report}"));
    }
}

#[test]
fn every_fence_of_the_hand_over_is_needed() {
    for (without, kind) in [
        ("proxy fence", ReportKind::MissingProxyFence),
        ("bulk wait", ReportKind::Race),
        ("map release", ReportKind::MissingMapFence),
        ("release", ReportKind::Race),
        ("acquire", ReportKind::Race),
        ("map acquire", ReportKind::MissingMapFence),
        ("same thread", ReportKind::MissingMapFence),
    ] {
        let kernel = relay(without);
        for schedule in schedules() {
            let report = match run_relay(&kernel, schedule.clone(), true) {
                Ok(_) => panic!("without {without} under {schedule:?}: nothing was found"),
                Err(report) => report,
            };
            // Under some schedules the map is used before it was copied.
            let early = without == "bulk wait" && report.kind == ReportKind::TmaMisuse;
            assert!(report.kind == kind || early, "without {without}: {report}");
        }
    }
}

#[test]
fn a_slot_is_written_again_only_after_its_uses() {
    let kernel = relay("");
    for schedule in schedules() {
        let report = run_relay(&kernel, schedule, false).unwrap_err();
        assert_eq!(report.kind, ReportKind::Race, "{report}");
    }
}

/// Uses a map in place that the host writes while the kernel runs.
fn direct(acquire: Option<Scope>) -> Kernel {
    role(move |b| {
        let [maps, doorbell, output] =
            ["maps", "doorbell", "output"].map(|name| b.param::<ty::U64>(name));
        let (tile, barrier) = (row(b, "tile"), ready_barrier(b));
        in_thread_0(b, 0, || {
            poll(b, doorbell, 1, Order::Acquire, Scope::System);
            let map = b.tensor_map_at(maps, row_spec());
            if let Some(scope) = acquire {
                map.fence_acquire(scope);
            }
            b.scope("use", || {
                map.prefetch_map();
                map.prefetch_box(&[b.constant(0), b.constant(1)]);
            });
            bring(b, &map, tile, barrier, 1, 0);
            copy_out(b, tile, output);
        });
    })
}

#[test]
fn maps_of_the_host_are_acquired_at_system_scope() {
    let run = |acquire: Option<Scope>, schedule: Schedule| {
        let mut memory = Memory::new();
        let input = memory.upload("input", &numbers(5), Permission::ReadOnly);
        let [maps, doorbell] = ["maps", "doorbell"].map(|name| memory.upload(name, &[0; 128], RW));
        let output = memory.allocate("output", 128);
        let arguments = [maps, doorbell, output].map(Argument::U64);
        let mut turns = 0;
        let host = |memory: &mut HostView<'_>| {
            turns += 1;
            if turns == 1 {
                memory.write(maps, &image(input));
                return HostStep::Ran;
            }
            memory.store_release_u32(doorbell, 1);
            HostStep::Done
        };
        let options = Options { schedule, max_steps: 100_000, ..Options::default() };
        run_hosted(&direct(acquire), 1, &arguments, &mut memory, options, host)?;
        Ok::<_, Box<Report>>(words(&memory, output, 32))
    };
    for schedule in schedules() {
        let copied = run(Some(Scope::System), schedule.clone());
        let copied = copied.unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(copied, (37..69).collect::<Vec<_>>());
        for acquire in [None, Some(Scope::Gpu)] {
            let report = run(acquire, schedule.clone()).unwrap_err();
            assert_eq!(report.kind, ReportKind::MissingMapFence, "{report}");
            let [user, writer] = &report.sites[..] else { panic!("{report}") };
            assert_eq!(user.location.scopes.last().map(String::as_str), Some("use"));
            assert_eq!(writer.actor.kind, ActorKind::Host);
        }
    }
}

#[test]
fn a_map_that_a_thread_wrote_needs_both_fences_there_too() {
    let kernel = |release: bool, acquire: bool| {
        role(move |b| {
            let [maps, output] = ["maps", "output"].map(|name| b.param::<ty::U64>(name));
            let (tile, barrier) = (row(b, "tile"), ready_barrier(b));
            in_thread_0(b, 0, || {
                b.for_range(0, 32, 1, |index| {
                    let from = maps.byte_offset(index * 4);
                    let [word] = b.load_global::<ty::U32, 1>(from);
                    b.store_global(from.byte_offset(128), [word]);
                });
                if release {
                    b.fence_map_release(Scope::Gpu);
                }
                let map = b.tensor_map_at(maps.byte_offset(128), row_spec());
                if acquire {
                    map.fence_acquire(Scope::Gpu);
                }
                b.scope("use", || bring(b, &map, tile, barrier, 0, 0));
                copy_out(b, tile, output);
            });
        })
    };
    let prepare = |memory: &mut Memory| {
        let input = memory.upload("input", &numbers(9), Permission::ReadOnly);
        uploaded(memory, &[image(input), [0; 128]].concat())
    };
    passes(&kernel(true, true), 1, prepare, |memory, output| {
        assert_eq!(words(memory, output, 32), (9..41).collect::<Vec<_>>());
    });
    for fences in [(true, false), (false, true), (false, false)] {
        let mut memory = Memory::new();
        let arguments = prepare(&mut memory).0;
        let kernel = kernel(fences.0, fences.1);
        let report = run_with(&kernel, 1, arguments, &mut memory, Options::default()).unwrap_err();
        assert_eq!(report.kind, ReportKind::MissingMapFence, "{fences:?}: {report}");
    }
}

#[test]
fn what_an_earlier_launch_wrote_needs_no_fence() {
    let kernel = role(|b| {
        let [maps, output] = ["maps", "output"].map(|name| b.param::<ty::U64>(name));
        let uses = b.param::<ty::U32>("uses");
        let (tile, barrier) = (row(b, "tile"), ready_barrier(b));
        let copied = maps.byte_offset(128);
        in_thread_0(b, 0, || {
            b.if_(uses.eq(0), || {
                b.for_range(0, 32, 1, |index| {
                    let [word] = b.load_global::<ty::U32, 1>(maps.byte_offset(index * 4));
                    b.store_global(copied.byte_offset(index * 4), [word]);
                });
            });
            b.if_(uses.eq(1), || {
                bring(b, &b.tensor_map_at(copied, row_spec()), tile, barrier, 0, 0);
                copy_out(b, tile, output);
            });
        });
    });
    for schedule in schedules() {
        let mut memory = Memory::new();
        let input = memory.upload("input", &numbers(7), Permission::ReadOnly);
        let maps = [image(input), [0; 128]].concat();
        let (mut arguments, output) = uploaded(&mut memory, &maps);
        arguments.push(Argument::U32(0));
        let mut again = arguments.clone();
        again[2] = Argument::U32(1);
        let mut launches = [Launch { grid: [2, 1, 1], arguments: again }].into_iter();
        let host = |_: &mut HostView<'_>| launches.next().map_or(HostStep::Done, HostStep::Launch);
        let options = Options { schedule, ..Options::default() };
        let run = run_hosted(&kernel, 1, &arguments, &mut memory, options, host);
        assert_eq!(run.unwrap().launches, 2);
        assert_eq!(words(&memory, output, 32), (7..39).collect::<Vec<_>>());
    }
}

//! Loads, stores, atomics, barriers, TMA and tensor maps.

use pgemm_ir::{
    Access, AtomicOp, BinaryOp, CompareOp, Constant, Element, Kernel, Op, Order, ProxyFence, Scope,
    Space, Special, Type,
};

use super::PACKED;
use crate::support::{Ops, weak};

pub fn loads_and_stores() -> Kernel {
    let mut k = Ops::new("loads_and_stores", 1);
    let global = k.param("out", Type::U64);
    let shared = k.region(256, 256);
    let m = k.param("m", Type::U32);
    let sixteen = k.u32(16);
    let moved = k.one(Op::SmemOffset, &[shared, sixteen], Type::Smem);
    let indexed = k.one(Op::SmemOffset, &[moved, m], Type::Smem);
    for (space, address) in
        [(Space::Global, global), (Space::Shared, moved), (Space::Shared, indexed)]
    {
        for (ty, vector) in [
            (Type::U32, 1),
            (Type::S32, 2),
            (Type::B32, 4),
            (Type::F32, 2),
            (Type::F32, 4),
            (Type::U64, 2),
        ] {
            let access = weak(space, ty, vector);
            let values = k.many(Op::Load(access), &[address], &vec![ty; vector as usize]);
            let args = [vec![address], values].concat();
            k.run(Op::Store(access), &args);
        }
    }
    let zero = k.constant(Constant::F32(0.0));
    k.run(Op::Store(weak(Space::Shared, Type::F32, 2)), &[shared, zero, zero]);
    let ordered = |order, scope| Access { order, scope, ..weak(Space::Global, Type::U32, 1) };
    for (order, scope) in [(Order::Relaxed, Scope::Gpu), (Order::Acquire, Scope::System)] {
        k.many(Op::Load(ordered(order, scope)), &[global], &[Type::U32]);
    }
    for (order, scope) in [(Order::Relaxed, Scope::Cluster), (Order::Release, Scope::Cta)] {
        k.run(Op::Store(ordered(order, scope)), &[global, m]);
    }
    k.finish()
}

/// Loads and stores of single elements of every movable type, with computed and constant values.
/// Also accesses of one byte and of two bytes.
pub fn elements() -> Kernel {
    let mut k = Ops::new("elements", 1);
    let shared = k.region(0, 64);
    let (from, to) = (k.param("from", Type::U64), k.param("to", Type::U64));
    let half = k.constant(Constant::F32(0.5));
    let (thread, three) = (k.one(Op::Special(Special::Thread), &[], Type::U32), k.u32(3));
    let alone = k.one(Op::Compare(CompareOp::Eq), &[thread, three], Type::Bool);
    for bytes in [1, 2] {
        let [global, local] = [Space::Global, Space::Shared];
        let low = k.one(Op::LoadNarrow { space: global, bytes }, &[from], Type::U32);
        let high = k.one(Op::LoadNarrow { space: local, bytes }, &[shared], Type::U32);
        let both = k.one(Op::PermuteBytes, &[low, high, thread], Type::U32);
        let one = k.one(Op::PermuteBytes, &[three, both, three], Type::U32);
        k.run(Op::StoreNarrow { space: global, bytes }, &[to, one]);
        k.run(Op::StoreNarrow { space: local, bytes }, &[shared, three]);
    }
    for element in PACKED.into_iter().chain([Element::F32]) {
        let value = k.one(Op::LoadElement(element), &[from], Type::F32);
        k.run(Op::StoreElement(element), &[to, value]);
        let then = k.block(&[], |k, _| {
            let value = k.one(Op::LoadElement(element), &[to], Type::F32);
            k.run(Op::StoreElement(element), &[from, value]);
            k.run(Op::StoreElement(element), &[to, half]);
            vec![]
        });
        let otherwise = k.block(&[], |_, _| vec![]);
        k.control(Op::If, &[alone], &[], vec![then, otherwise]);
    }
    k.finish()
}

/// Every atomic operation, order and scope, and reductions of every width.
pub fn atomics() -> Kernel {
    let mut k = Ops::new("atomics", 1);
    let (counter, sums) = (k.param("counter", Type::U64), k.param("sums", Type::U64));
    let m = k.param("m", Type::U32);
    let one = k.u32(1);
    for (op, order, scope) in [
        (AtomicOp::Add, Order::Relaxed, Scope::Cta),
        (AtomicOp::Inc, Order::Acquire, Scope::Cluster),
        (AtomicOp::Exch, Order::Release, Scope::Gpu),
        (AtomicOp::Add, Order::AcquireRelease, Scope::System),
    ] {
        let old =
            k.one(Op::Atomic { op, space: Space::Global, order, scope }, &[counter, m], Type::U32);
        k.one(Op::Atomic { op, space: Space::Global, order, scope }, &[counter, one], Type::U32);
        k.one(Op::ShuffleFirst, &[old], Type::U32);
        k.one(Op::AssumeUniform, &[old], Type::U32);
    }
    k.one(Op::ShuffleFirst, &[one], Type::U32);
    k.run(Op::WarpSync, &[]);
    let value = k.one(Op::Convert(Type::F32), &[m], Type::F32);
    let half = k.constant(Constant::F32(0.5));
    k.run(Op::Reduce { vector: 1 }, &[sums, value]);
    k.run(Op::Reduce { vector: 2 }, &[sums, value, half]);
    k.run(Op::Reduce { vector: 4 }, &[sums, value, half, half, value]);
    k.finish()
}

/// Programmatic dependent launch: a grid that waits for its predecessor and launches its
/// dependents.
pub fn dependent() -> Kernel {
    let mut k = Ops::new("dependent", 1);
    let out = k.param("out", Type::U64);
    k.run(Op::GridDependencyWait, &[]);
    let value = k.one(Op::Load(weak(Space::Global, Type::U32, 1)), &[out], Type::U32);
    k.run(Op::GridDependencyLaunch, &[]);
    k.run(Op::PrefetchLine, &[out]);
    let once = Access { once: true, ..weak(Space::Global, Type::U32, 4) };
    k.many(Op::Load(once), &[out], &[Type::U32; 4]);
    k.run(Op::Store(weak(Space::Global, Type::U32, 1)), &[out, value]);
    k.finish()
}

pub fn matrices() -> Kernel {
    let mut k = Ops::new("matrices", 1);
    let shared = k.region(0, 4096);
    let lane = k.one(Op::Special(Special::Lane), &[], Type::U32);
    let sixteen = k.u32(16);
    let bytes = k.one(Op::Binary(BinaryOp::Mul), &[lane, sixteen], Type::U32);
    let row = k.one(Op::SmemOffset, &[shared, bytes], Type::Smem);
    for (count, transpose) in [(1, false), (2, true), (4, false), (4, true)] {
        let types = vec![Type::B32; count as usize];
        let matrices = k.many(Op::LoadMatrix { count, transpose }, &[row], &types);
        let args = [vec![row], matrices].concat();
        k.run(Op::StoreMatrix { count, transpose }, &args);
    }
    k.finish()
}

pub fn barriers() -> Kernel {
    let mut k = Ops::new("barriers", 2);
    let barrier = k.region(0, 16);
    k.run(Op::MbarrierInit { count: 5 }, &[barrier]);
    k.run(Op::FenceMbarrierInit, &[]);
    k.run(Op::FenceProxy(ProxyFence::SharedCta), &[]);
    k.run(Op::FenceProxy(ProxyFence::Global), &[]);
    let id = k.u32(0);
    k.run(Op::BarrierSync { threads: 256 }, &[id]);
    k.run(Op::MbarrierArrive, &[barrier]);
    k.run(Op::MbarrierArriveExpect { bytes: 16384 }, &[barrier]);
    let parity = k.u32(1);
    k.run(Op::MbarrierWait, &[barrier, parity]);
    let warpgroup = k.one(Op::Special(Special::Warpgroup), &[], Type::U32);
    let other = k.one(Op::Binary(BinaryOp::Add), &[warpgroup, parity], Type::U32);
    k.run(Op::BarrierArrive { threads: 256 }, &[other]);
    k.run(Op::MbarrierWait, &[barrier, warpgroup]);
    for scope in [Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::System] {
        k.run(Op::Fence(Order::AcquireRelease, scope), &[]);
        k.run(Op::Fence(Order::SequentiallyConsistent, scope), &[]);
    }
    k.finish()
}

pub fn cluster() -> Kernel {
    let mut k = Ops::new("cluster_barriers", 1).cluster(2);
    let barrier = k.region(8, 8);
    let rank = k.one(Op::Special(Special::CtaRank), &[], Type::U32);
    let one = k.u32(1);
    let peer = k.one(Op::Binary(BinaryOp::Xor), &[rank, one], Type::U32);
    let remote = k.one(Op::MapShared, &[barrier, peer], Type::ClusterSmem);
    k.run(Op::ClusterArrive { relaxed: true }, &[]);
    k.run(Op::ClusterWait, &[]);
    k.run(Op::MbarrierArriveCluster, &[remote]);
    k.run(Op::ClusterArrive { relaxed: false }, &[]);
    k.run(Op::ClusterWait, &[]);
    k.finish()
}

pub fn tma() -> Kernel {
    let mut k = Ops::new("tma", 1).cluster(2);
    let map = k.map("a_map", Element::Bf16, &[64, 128]);
    let tile = k.region(1024, 16384);
    let barrier = k.region(0, 8);
    let m = k.param("m", Type::U32);
    let given = k.param("policy", Type::U64);
    let zero = k.u32(0);
    k.run(Op::PrefetchMap, &[map]);
    let elected = k.one(Op::Elect, &[], Type::Bool);
    let then = k.block(&[], |k, _| {
        for rank in 1..=5 {
            let coordinates = [zero, m, zero, zero, m];
            let args = [&[map, tile, barrier], &coordinates[..rank as usize]].concat();
            k.run(Op::TmaLoad { rank, im2col: false, multicast: false, policy: false }, &args);
            let args = [&[map, tile], &coordinates[..rank as usize]].concat();
            k.run(Op::TmaStore { rank, policy: false }, &args);
            let args = [&[map], &coordinates[..rank as usize]].concat();
            k.run(Op::TmaPrefetch { rank, im2col: false, policy: false }, &args);
        }
        let mask = k.u32(3);
        let multicast = Op::TmaLoad { rank: 2, im2col: false, multicast: true, policy: false };
        k.run(multicast.clone(), &[map, tile, barrier, zero, m, mask]);
        k.run(multicast, &[map, tile, barrier, zero, m, m]);
        let keep = k.constant(Constant::U64(0x14f0_0000_0000_0000));
        for policy in [keep, given] {
            let load = |multicast| Op::TmaLoad { rank: 2, im2col: false, multicast, policy: true };
            k.run(load(false), &[map, tile, barrier, zero, m, policy]);
            k.run(load(true), &[map, tile, barrier, zero, m, mask, policy]);
            k.run(Op::TmaStore { rank: 2, policy: true }, &[map, tile, zero, m, policy]);
            k.run(
                Op::TmaPrefetch { rank: 2, im2col: false, policy: true },
                &[map, zero, m, policy],
            );
        }
        let two = k.u32(2);
        for rank in 3..=5 {
            let place = [&[zero, m, zero, zero, m][..rank], &[two, m, zero][..rank - 2]].concat();
            let rank = rank as u32;
            let load = Op::TmaLoad { rank, im2col: true, multicast: false, policy: false };
            k.run(load, &[&[map, tile, barrier], &place[..]].concat());
            let prefetch = Op::TmaPrefetch { rank, im2col: true, policy: false };
            k.run(prefetch, &[&[map], &place[..]].concat());
        }
        k.run(Op::BulkCommit, &[]);
        k.run(Op::BulkWait { pending: 1, read: true }, &[]);
        k.run(Op::BulkWait { pending: 0, read: false }, &[]);
        vec![]
    });
    let otherwise = k.block(&[], |_, _| vec![]);
    k.control(Op::If, &[elected], &[], vec![then, otherwise]);
    k.finish()
}

/// Tensor maps in memory with their fences, the clock and sleep.
pub fn maps_in_memory() -> Kernel {
    let mut k = Ops::new("maps_in_memory", 1);
    let (maps, flag) = (k.param("maps", Type::U64), k.param("flag", Type::U64));
    let (zero, rest) = (k.u32(0), k.u32(100));
    let tile = k.region(1024, 16384);
    let barrier = k.region(0, 8);
    let map = k.one(Op::MapAt, &[maps], Type::MapPtr);
    let fixed = k.constant(Constant::U64(1 << 40));
    let fixed = k.one(Op::MapAt, &[fixed], Type::MapPtr);
    for scope in [Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::System] {
        k.run(Op::FenceMapRelease(scope), &[]);
        let word = |order| Access { order, scope, ..weak(Space::Global, Type::U64, 1) };
        let now = k.one(Op::Clock, &[], Type::U64);
        k.run(Op::Store(word(Order::Release)), &[flag, now]);
        k.run(Op::Fence(Order::SequentiallyConsistent, scope), &[]);
        k.one(Op::Load(word(Order::Acquire)), &[flag], Type::U64);
        k.run(Op::FenceMapAcquire(scope), &[map]);
    }
    k.run(Op::FenceMapAcquire(Scope::Gpu), &[fixed]);
    k.run(Op::Sleep, &[zero]);
    k.run(Op::Sleep, &[rest]);
    for map in [map, fixed] {
        k.run(Op::PrefetchMap, &[map]);
        let load = Op::TmaLoad { rank: 2, im2col: false, multicast: false, policy: false };
        k.run(load, &[map, tile, barrier, zero, zero]);
        k.run(Op::TmaStore { rank: 2, policy: false }, &[map, tile, zero, zero]);
    }
    k.finish()
}

//! Small kernels that together hold every operation and attribute.

use pgemm_ir::{
    ASource, Access, AtomicOp, BinaryOp, CompareOp, Constant, DescriptorLayout, Element, Half,
    Kernel, Op, OperandMajor, Order, ProxyFence, RegisterChange, Scope, Space, Special,
    SwizzleMode, Type, UnaryOp, WarpMma, Wgmma,
};

use crate::support::{Ops, weak};

/// Every kernel.
pub fn all() -> Vec<Kernel> {
    vec![
        specials(),
        integers(),
        floats(),
        predicates(),
        conversions(),
        loads_and_stores(),
        elements(),
        atomics(),
        dependent(),
        matrices(),
        barriers(),
        cluster(),
        tma(),
        maps_in_memory(),
        for_loops(),
        while_loop(),
        branches(),
        wgmma_kinds(),
        mixed_integers(),
        sums_in_f16(),
        accumulator_writes(),
        doubles(),
        registers(),
        resident_pair(),
        mini_gemm(),
    ]
}

pub fn specials() -> Kernel {
    let mut k = Ops::new("specials", 2);
    for special in [
        Special::Thread,
        Special::Lane,
        Special::Warp,
        Special::Warpgroup,
        Special::Cta,
        Special::CtaCount,
        Special::CtaRank,
        Special::Cluster,
        Special::ClusterCount,
    ] {
        k.one(Op::Special(special), &[], Type::U32);
    }
    k.finish()
}

pub fn integers() -> Kernel {
    let mut k = Ops::new("integers", 1);
    let m = k.param("m", Type::U32);
    let s = k.one(Op::Bitcast(Type::S32), &[m], Type::S32);
    let wide = k.param("wide", Type::U64);
    let constants = [
        (m, Constant::U32(4_000_000_000)),
        (s, Constant::S32(-7)),
        (wide, Constant::U64(u64::MAX)),
    ];
    for (value, constant) in constants {
        let ty = constant.ty();
        let c = k.constant(constant);
        for op in [
            BinaryOp::Add,
            BinaryOp::Sub,
            BinaryOp::Mul,
            BinaryOp::Div,
            BinaryOp::Rem,
            BinaryOp::Min,
            BinaryOp::Max,
            BinaryOp::And,
            BinaryOp::Or,
            BinaryOp::Xor,
        ] {
            k.one(Op::Binary(op), &[value, c], ty);
        }
        // Divisors that could be zero.
        k.one(Op::Binary(BinaryOp::Div), &[c, value], ty);
        k.one(Op::Binary(BinaryOp::Rem), &[c, value], ty);
        let amount = k.u32(3);
        k.one(Op::Binary(BinaryOp::Shl), &[value, amount], ty);
        k.one(Op::Binary(BinaryOp::Shr), &[value, m], ty);
        k.one(Op::Unary(UnaryOp::Not), &[value], ty);
    }
    k.one(Op::Unary(UnaryOp::Neg), &[s], Type::S32);
    k.one(Op::Binary(BinaryOp::MulHigh), &[m, m], Type::U32);
    k.finish()
}

pub fn floats() -> Kernel {
    let mut k = Ops::new("floats", 1);
    let alpha = k.param("alpha", Type::F32);
    let one = k.constant(Constant::F32(1.0));
    for op in
        [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Min, BinaryOp::Max]
    {
        k.one(Op::Binary(op), &[alpha, one], Type::F32);
    }
    for op in [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Exp2, UnaryOp::Reciprocal] {
        k.one(Op::Unary(op), &[alpha], Type::F32);
    }
    k.one(Op::Binary(BinaryOp::MaxNan), &[alpha, one], Type::F32);
    k.one(Op::Fma, &[alpha, one, alpha], Type::F32);
    k.finish()
}

/// Arithmetic, moves and MMAs of binary64.
pub fn doubles() -> Kernel {
    let mut k = Ops::new("doubles", 1);
    let (alpha, out) = (k.param("alpha", Type::F64), k.param("out", Type::U64));
    let one = k.constant(Constant::F64(1.0));
    let mut values = vec![];
    for op in
        [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Min, BinaryOp::Max]
    {
        values.push(k.one(Op::Binary(op), &[alpha, one], Type::F64));
    }
    for op in [UnaryOp::Neg, UnaryOp::Abs] {
        values.push(k.one(Op::Unary(op), &[alpha], Type::F64));
    }
    let word = k.one(Op::Bitcast(Type::U64), &[alpha], Type::U64);
    values.push(k.one(Op::Bitcast(Type::F64), &[word], Type::F64));
    values.push(k.one(Op::Fma, &[alpha, one, alpha], Type::F64));
    let differ = k.one(Op::Compare(CompareOp::Ne), &[alpha, one], Type::Bool);
    k.one(Op::Compare(CompareOp::Lt), &[alpha, one], Type::Bool);
    values.push(k.one(Op::Select, &[differ, alpha, one], Type::F64));
    let shared = k.region(256, 256);
    for (space, address) in [(Space::Global, out), (Space::Shared, shared)] {
        for vector in [1, 2] {
            let access = weak(space, Type::F64, vector);
            let types = vec![Type::F64; vector as usize];
            values.extend(k.many(Op::Load(access), &[address], &types));
            let args = [&[address], &values[..vector as usize]].concat();
            k.run(Op::Store(access), &args);
        }
    }
    let mut sums = vec![one; 4];
    for mma in WarpMma::ALL {
        let operands = (mma.a_values() + mma.b_values()) as usize;
        let operands = values.iter().cycle().take(operands).copied();
        let args: Vec<_> = operands.chain(sums).collect();
        sums = k.many(Op::WarpMma(mma), &args, &[Type::F64; 4]);
    }
    k.run(Op::Store(weak(Space::Global, Type::F64, 2)), &[out, sums[0], sums[3]]);
    k.finish()
}

pub fn predicates() -> Kernel {
    let mut k = Ops::new("predicates", 1);
    let m = k.param("m", Type::U32);
    let alpha = k.param("alpha", Type::F32);
    let wide = k.param("wide", Type::U64);
    let s = k.one(Op::Bitcast(Type::S32), &[m], Type::S32);
    let zero = k.constant(Constant::F32(0.0));
    let minus = k.constant(Constant::S32(-1));
    let four = k.u32(4);
    let mut tests = vec![];
    for op in
        [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge]
    {
        tests.push(k.one(Op::Compare(op), &[alpha, zero], Type::Bool));
        tests.push(k.one(Op::Compare(op), &[s, minus], Type::Bool));
        tests.push(k.one(Op::Compare(op), &[m, four], Type::Bool));
        tests.push(k.one(Op::Compare(op), &[wide, wide], Type::Bool));
    }
    let (p, q) = (tests[0], tests[1]);
    let yes = k.constant(Constant::Bool(true));
    for op in [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor] {
        k.one(Op::Binary(op), &[p, q], Type::Bool);
        k.one(Op::Binary(op), &[p, yes], Type::Bool);
    }
    k.one(Op::Unary(UnaryOp::Not), &[p], Type::Bool);
    k.one(Op::Compare(CompareOp::Eq), &[p, q], Type::Bool);
    k.one(Op::Compare(CompareOp::Ne), &[p, yes], Type::Bool);
    k.one(Op::Select, &[p, m, four], Type::U32);
    k.one(Op::Select, &[p, alpha, zero], Type::F32);
    k.one(Op::Select, &[p, wide, wide], Type::U64);
    k.one(Op::Select, &[p, q, yes], Type::Bool);
    k.finish()
}

pub fn conversions() -> Kernel {
    let mut k = Ops::new("conversions", 1);
    let m = k.param("m", Type::U32);
    let alpha = k.param("alpha", Type::F32);
    let s = k.one(Op::Bitcast(Type::S32), &[m], Type::S32);
    let wide = k.one(Op::Convert(Type::U64), &[m], Type::U64);
    k.one(Op::Convert(Type::U64), &[s], Type::U64);
    k.one(Op::Convert(Type::U32), &[wide], Type::U32);
    k.one(Op::Convert(Type::S32), &[wide], Type::S32);
    k.one(Op::Convert(Type::F32), &[m], Type::F32);
    k.one(Op::Convert(Type::F32), &[s], Type::F32);
    k.one(Op::Bitcast(Type::U32), &[alpha], Type::U32);
    k.one(Op::Bitcast(Type::F32), &[m], Type::F32);
    let one = k.constant(Constant::F32(1.0));
    let bits = k.one(Op::Bitcast(Type::B32), &[one], Type::B32);
    let bits = k.one(Op::Bitcast(Type::U32), &[bits], Type::U32);
    k.one(Op::Binary(BinaryOp::Add), &[m, bits], Type::U32);
    for element in PACKED {
        let packed = k.one(Op::Pack(element), &[alpha, one], Type::B32);
        k.one(Op::Unpack(element, Half::Low), &[packed], Type::F32);
        k.one(Op::Unpack(element, Half::High), &[packed], Type::F32);
    }
    k.finish()
}

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

/// The types of the packed conversions from two binary32 values.
const PACKED: [Element; 5] =
    [Element::F16, Element::Bf16, Element::E4m3, Element::E5m2, Element::S8];

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
        let old = k.one(Op::Atomic { op, order, scope }, &[counter, m], Type::U32);
        k.one(Op::Atomic { op, order, scope }, &[counter, one], Type::U32);
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
            k.run(Op::TmaLoad { rank, multicast: false, policy: false }, &args);
            let args = [&[map, tile], &coordinates[..rank as usize]].concat();
            k.run(Op::TmaStore { rank, policy: false }, &args);
            let args = [&[map], &coordinates[..rank as usize]].concat();
            k.run(Op::TmaPrefetch { rank, policy: false }, &args);
        }
        let mask = k.u32(3);
        let multicast = Op::TmaLoad { rank: 2, multicast: true, policy: false };
        k.run(multicast.clone(), &[map, tile, barrier, zero, m, mask]);
        k.run(multicast, &[map, tile, barrier, zero, m, m]);
        let keep = k.constant(Constant::U64(0x14f0_0000_0000_0000));
        for policy in [keep, given] {
            let load = |multicast| Op::TmaLoad { rank: 2, multicast, policy: true };
            k.run(load(false), &[map, tile, barrier, zero, m, policy]);
            k.run(load(true), &[map, tile, barrier, zero, m, mask, policy]);
            k.run(Op::TmaStore { rank: 2, policy: true }, &[map, tile, zero, m, policy]);
            k.run(Op::TmaPrefetch { rank: 2, policy: true }, &[map, zero, m, policy]);
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
        let load = Op::TmaLoad { rank: 2, multicast: false, policy: false };
        k.run(load, &[map, tile, barrier, zero, zero]);
        k.run(Op::TmaStore { rank: 2, policy: false }, &[map, tile, zero, zero]);
    }
    k.finish()
}

/// Nested loops. The back edge of the outer loop swaps two carried values.
pub fn for_loops() -> Kernel {
    let mut k = Ops::new("for_loops", 1);
    let out = k.param("out", Type::U64);
    let n = k.param("n", Type::U32);
    let (zero, one, two, eight) = (k.u32(0), k.u32(1), k.u32(2), k.u32(8));
    let u = Type::U32;
    let body = k.block(&[u, u, u, u], |k, outer| {
        let inner = k.block(&[u, u], |k, inner| {
            vec![k.one(Op::Binary(BinaryOp::Add), &[inner[1], outer[0]], u)]
        });
        let sum = k.control(Op::For, &[zero, eight, two, outer[3]], &[u], vec![inner]);
        vec![outer[2], outer[1], sum[0]]
    });
    let results = k.control(Op::For, &[zero, n, one, zero, n, one], &[u, u, u], vec![body]);
    k.run(Op::Store(weak(Space::Global, u, 2)), &[out, results[0], results[1]]);
    k.run(Op::Store(weak(Space::Global, u, 1)), &[out, results[2]]);
    k.finish()
}

pub fn while_loop() -> Kernel {
    let mut k = Ops::new("while_loop", 1);
    let out = k.param("out", Type::U64);
    let n = k.param("n", Type::U32);
    let zero = k.u32(0);
    let u = Type::U32;
    let condition = k.block(&[u, u], |k, carried| {
        vec![k.one(Op::Compare(CompareOp::Lt), &[carried[0], n], Type::Bool)]
    });
    let body = k.block(&[u, u], |k, carried| {
        let three = k.u32(3);
        let next = k.one(Op::Binary(BinaryOp::Add), &[carried[0], three], u);
        // The second value takes the old value of the first, so it must move first.
        vec![next, carried[0]]
    });
    let results = k.control(Op::While, &[zero, zero], &[u, u], vec![condition, body]);
    k.run(Op::Store(weak(Space::Global, u, 2)), &[out, results[0], results[1]]);
    k.finish()
}

pub fn branches() -> Kernel {
    let mut k = Ops::new("branches", 1);
    let out = k.param("out", Type::U64);
    let n = k.param("n", Type::U32);
    let four = k.u32(4);
    let less = k.one(Op::Compare(CompareOp::Lt), &[n, four], Type::Bool);
    let store = weak(Space::Global, Type::U32, 1);
    let empty = |k: &mut Ops| k.block(&[], |_, _| vec![]);
    let full = |k: &mut Ops| {
        k.block(&[], |k, _| {
            k.run(Op::Store(store), &[out, n]);
            vec![]
        })
    };
    let blocks = vec![full(&mut k), empty(&mut k)];
    k.control(Op::If, &[less], &[], blocks);
    let blocks = vec![empty(&mut k), full(&mut k)];
    k.control(Op::If, &[less], &[], blocks);
    let then = k.block(&[], |_, _| vec![four, less]);
    let otherwise = k.block(&[], |k, _| {
        let no = k.constant(Constant::Bool(false));
        vec![n, no]
    });
    let results = k.control(Op::If, &[less], &[Type::U32, Type::Bool], vec![then, otherwise]);
    let chosen = k.one(Op::Select, &[results[1], results[0], four], Type::U32);
    k.run(Op::Store(store), &[out, chosen]);
    k.finish()
}

fn descriptor(k: &mut Ops, offset: u32, layout: DescriptorLayout) -> pgemm_ir::ValueId {
    let smem = k.region(offset, 8192);
    k.one(Op::Descriptor(layout), &[smem], Type::Descriptor)
}

/// One wgmma of each kind, each in a batch of its own that is waited for.
pub fn wgmma_kinds() -> Kernel {
    let mut k = Ops::new("wgmma_kinds", 1);
    let float = k.accumulator(Type::F32, 4);
    let integer = k.accumulator(Type::S32, 8);
    let layout = |swizzle, leading_bytes, stride_bytes| DescriptorLayout {
        swizzle,
        leading_bytes,
        stride_bytes,
    };
    let a = descriptor(&mut k, 0, layout(SwizzleMode::B128, 0, 1024));
    let b = descriptor(&mut k, 8192, layout(SwizzleMode::B64, 4096, 512));
    descriptor(&mut k, 8192, layout(SwizzleMode::B32, 16, 256));
    descriptor(&mut k, 8192, layout(SwizzleMode::None, 128, 256));
    let b = k.one(Op::DescriptorAdvance(32), &[b], Type::Descriptor);
    let n = k.param("n", Type::U32);
    let four = k.u32(4);
    let accumulate = k.one(Op::Compare(CompareOp::Lt), &[n, four], Type::Bool);
    let no = k.constant(Constant::Bool(false));
    let fragment = [k.one(Op::Bitcast(Type::B32), &[n], Type::B32); 4];
    let (k_major, mn_major) = (OperandMajor::K, OperandMajor::Mn);
    let shared = ASource::Shared;
    for (acc, n, a_element, b_element, a_source, b_major) in [
        (float, 8, Element::Bf16, Element::Bf16, shared(k_major), k_major),
        (float, 8, Element::F16, Element::F16, shared(mn_major), k_major),
        (float, 8, Element::F16, Element::F16, shared(k_major), mn_major),
        (float, 8, Element::Bf16, Element::Bf16, ASource::Registers, mn_major),
        (float, 8, Element::Tf32, Element::Tf32, shared(k_major), k_major),
        (float, 8, Element::Tf32, Element::Tf32, ASource::Registers, k_major),
        (float, 8, Element::E4m3, Element::E4m3, shared(k_major), k_major),
        (float, 8, Element::E5m2, Element::E4m3, ASource::Registers, k_major),
        (integer, 16, Element::U8, Element::U8, ASource::Registers, k_major),
        (integer, 16, Element::S8, Element::S8, shared(k_major), k_major),
    ] {
        let mma = Wgmma { acc, n, a: a_element, b: b_element, a_source, b_major };
        let accumulate = if a_source == ASource::Registers { accumulate } else { no };
        let args = match a_source {
            ASource::Shared(_) => vec![a, b, accumulate],
            ASource::Registers => [&fragment[..], &[b, accumulate]].concat(),
        };
        k.run(Op::WgmmaFence, &[]);
        k.run(Op::Wgmma(mma), &args);
        k.run(Op::WgmmaCommit, &[]);
        k.run(Op::WgmmaWait { pending: 0 }, &[]);
    }
    let out = k.param("out", Type::U64);
    let values = [0, 3].map(|i| k.one(Op::AccGet(float, i), &[], Type::F32));
    k.run(Op::Store(weak(Space::Global, Type::F32, 2)), &[out, values[0], values[1]]);
    let sum = k.one(Op::AccGet(integer, 7), &[], Type::S32);
    let sum = k.one(Op::Bitcast(Type::U32), &[sum], Type::U32);
    k.run(Op::Store(weak(Space::Global, Type::U32, 1)), &[out, sum]);
    k.finish()
}

pub fn mixed_integers() -> Kernel {
    let mut k = Ops::new("mixed_integers", 1);
    let acc = k.accumulator(Type::S32, 4);
    let layout =
        DescriptorLayout { swizzle: SwizzleMode::B128, leading_bytes: 0, stride_bytes: 1024 };
    let a = descriptor(&mut k, 0, layout);
    let b = descriptor(&mut k, 8192, layout);
    let no = k.constant(Constant::Bool(false));
    let a_source = ASource::Shared(OperandMajor::K);
    let b_major = OperandMajor::K;
    let mma = Wgmma { acc, n: 8, a: Element::S8, b: Element::U8, a_source, b_major };
    k.run(Op::WgmmaFence, &[]);
    k.run(Op::Wgmma(mma), &[a, b, no]);
    k.run(Op::WgmmaCommit, &[]);
    k.run(Op::WgmmaWait { pending: 0 }, &[]);
    k.finish()
}

/// f16 accumulators, two in a register.
pub fn sums_in_f16() -> Kernel {
    let mut k = Ops::new("sums_in_f16", 1);
    let acc = k.accumulator(Type::B32, 4);
    let layout =
        DescriptorLayout { swizzle: SwizzleMode::B128, leading_bytes: 0, stride_bytes: 1024 };
    let a = descriptor(&mut k, 0, layout);
    let b = descriptor(&mut k, 8192, layout);
    let yes = k.constant(Constant::Bool(true));
    let a_source = ASource::Shared(OperandMajor::Mn);
    let b_major = OperandMajor::K;
    let mma = Wgmma { acc, n: 16, a: Element::F16, b: Element::F16, a_source, b_major };
    k.run(Op::WgmmaFence, &[]);
    k.run(Op::Wgmma(mma), &[a, b, yes]);
    k.run(Op::WgmmaCommit, &[]);
    k.run(Op::WgmmaWait { pending: 0 }, &[]);
    let out = k.param("out", Type::U64);
    let pair = k.one(Op::AccGet(acc, 3), &[], Type::B32);
    let halves = [Half::Low, Half::High]
        .map(|half| k.one(Op::Unpack(Element::F16, half), &[pair], Type::F32));
    k.run(Op::Store(weak(Space::Global, Type::F32, 2)), &[out, halves[0], halves[1]]);
    k.finish()
}

/// Accumulators that ordinary code writes before a loop of batches adds to them. One set is written
/// in full, one in part, one under a condition. Only the first needs no initialisation.
pub fn accumulator_writes() -> Kernel {
    let mut k = Ops::new("accumulator_writes", 1);
    let sets =
        [k.accumulator(Type::F32, 4), k.accumulator(Type::B32, 2), k.accumulator(Type::F32, 4)];
    let layout =
        DescriptorLayout { swizzle: SwizzleMode::B128, leading_bytes: 0, stride_bytes: 1024 };
    let a = descriptor(&mut k, 0, layout);
    let b = descriptor(&mut k, 8192, layout);
    let alpha = k.param("alpha", Type::F32);
    let one = k.constant(Constant::F32(1.0));
    for index in 0..4 {
        k.run(Op::AccSet(sets[0], index), &[if index % 2 == 0 { alpha } else { one }]);
    }
    let pair = k.one(Op::Pack(Element::F16), &[alpha, one], Type::B32);
    k.run(Op::AccSet(sets[1], 1), &[pair]);
    let positive = k.one(Op::Compare(CompareOp::Gt), &[alpha, one], Type::Bool);
    let then = k.block(&[], |k, _| {
        (0..4).for_each(|index| k.run(Op::AccSet(sets[2], index), &[alpha]));
        vec![]
    });
    let otherwise = k.block(&[], |_, _| vec![]);
    k.control(Op::If, &[positive], &[], vec![then, otherwise]);
    let (zero, count, step) = (k.u32(0), k.param("count", Type::U32), k.u32(1));
    let yes = k.constant(Constant::Bool(true));
    let body = k.block(&[Type::U32], |k, _| {
        k.run(Op::WgmmaFence, &[]);
        for acc in sets {
            let a_source = ASource::Shared(OperandMajor::K);
            let (element, b_major) = (Element::F16, OperandMajor::K);
            let mma = Wgmma { acc, n: 8, a: element, b: element, a_source, b_major };
            k.run(Op::Wgmma(mma), &[a, b, yes]);
        }
        k.run(Op::WgmmaCommit, &[]);
        k.run(Op::WgmmaWait { pending: 0 }, &[]);
        vec![]
    });
    k.control(Op::For, &[zero, count, step], &[], vec![body]);
    let out = k.param("out", Type::U64);
    let sums = [0, 2].map(|set| k.one(Op::AccGet(sets[set], 3), &[], Type::F32));
    k.run(Op::Store(weak(Space::Global, Type::F32, 2)), &[out, sums[0], sums[1]]);
    let pair = k.one(Op::AccGet(sets[1], 0), &[], Type::B32);
    k.run(Op::Store(weak(Space::Global, Type::B32, 1)), &[out, pair]);
    k.finish()
}

/// The budgets of a producer and a consumer as legalisation writes them.
pub fn registers() -> Kernel {
    budgets(Ops::new("register_budgets", 2), 40, 232)
}

/// Two CTAs of 384 threads on an SM: threads enter with 80 registers.
pub fn resident_pair() -> Kernel {
    budgets(Ops::new("resident_pair", 3).ctas_per_sm(2), 24, 104)
}

/// The first warpgroup lowers its registers, the others raise theirs.
pub fn budgets(mut k: Ops, producer: u32, consumer: u32) -> Kernel {
    let warpgroup = k.one(Op::Special(Special::Warpgroup), &[], Type::U32);
    let one = k.u32(1);
    let first = k.one(Op::Compare(CompareOp::Lt), &[warpgroup, one], Type::Bool);
    let then = k.block(&[], |k, _| {
        k.run(Op::SetMaxRegisters { count: producer, change: RegisterChange::Decrease }, &[]);
        vec![]
    });
    let otherwise = k.block(&[], |k, _| {
        k.run(Op::SetMaxRegisters { count: consumer, change: RegisterChange::Increase }, &[]);
        vec![]
    });
    k.control(Op::If, &[first], &[], vec![then, otherwise]);
    k.finish()
}

/// D = A·B of one 64×64 tile per CTA: one warpgroup loads 64×64 boxes by TMA, multiplies them by
/// wgmma and stores bf16 through shared memory.
pub fn mini_gemm() -> Kernel {
    let mut k = Ops::new("mini_gemm", 1);
    let a_map = k.map("a_map", Element::Bf16, &[64, 64]);
    let b_map = k.map("b_map", Element::Bf16, &[64, 64]);
    let d_map = k.map("d_map", Element::Bf16, &[64, 64]);
    let k_tiles = k.param("k_tiles", Type::U32);
    let acc = k.accumulator(Type::F32, 32);
    let a_tile = k.region(0, 8192);
    let b_tile = k.region(8192, 8192);
    let full = k.region(16384, 8);
    let u = Type::U32;
    let (zero, one, sixty_four) = (k.u32(0), k.u32(1), k.u32(64));
    let empty = |k: &mut Ops| k.block(&[], |_, _| vec![]);

    let thread = k.one(Op::Special(Special::Thread), &[], u);
    let first = k.one(Op::Compare(CompareOp::Eq), &[thread, zero], Type::Bool);
    let row = k.one(Op::Special(Special::Cta), &[], u);
    let row = k.one(Op::Binary(BinaryOp::Mul), &[row, sixty_four], u);
    let init = k.block(&[], |k, _| {
        k.run(Op::PrefetchMap, &[a_map]);
        k.run(Op::MbarrierInit { count: 1 }, &[full]);
        k.run(Op::FenceMbarrierInit, &[]);
        vec![]
    });
    let nothing = empty(&mut k);
    k.control(Op::If, &[first], &[], vec![init, nothing]);
    k.run(Op::BarrierSync { threads: 128 }, &[zero]);

    let layout =
        DescriptorLayout { swizzle: SwizzleMode::B128, leading_bytes: 0, stride_bytes: 1024 };
    let a = k.one(Op::Descriptor(layout), &[a_tile], Type::Descriptor);
    let b = k.one(Op::Descriptor(layout), &[b_tile], Type::Descriptor);
    let mainloop = k.block(&[u, u], |k, carried| {
        let (index, phase) = (carried[0], carried[1]);
        let load = k.block(&[], |k, _| {
            let column = k.one(Op::Binary(BinaryOp::Mul), &[index, sixty_four], u);
            k.run(Op::MbarrierArriveExpect { bytes: 16384 }, &[full]);
            let op = Op::TmaLoad { rank: 2, multicast: false, policy: false };
            k.run(op.clone(), &[a_map, a_tile, full, column, row]);
            k.run(op, &[b_map, b_tile, full, column, zero]);
            vec![]
        });
        let nothing = empty(k);
        k.control(Op::If, &[first], &[], vec![load, nothing]);
        k.run(Op::MbarrierWait, &[full, phase]);
        let later = k.one(Op::Compare(CompareOp::Ne), &[index, zero], Type::Bool);
        let always = k.constant(Constant::Bool(true));
        let mma = Wgmma {
            acc,
            n: 64,
            a: Element::Bf16,
            b: Element::Bf16,
            a_source: ASource::Shared(OperandMajor::K),
            b_major: OperandMajor::K,
        };
        k.run(Op::WgmmaFence, &[]);
        for step in 0..4 {
            let a = k.one(Op::DescriptorAdvance(step * 32), &[a], Type::Descriptor);
            let b = k.one(Op::DescriptorAdvance(step * 32), &[b], Type::Descriptor);
            let accumulate = if step == 0 { later } else { always };
            k.run(Op::Wgmma(mma), &[a, b, accumulate]);
        }
        k.run(Op::WgmmaCommit, &[]);
        k.run(Op::WgmmaWait { pending: 0 }, &[]);
        // All warps must have read the tiles before the next copy overwrites them.
        k.run(Op::BarrierSync { threads: 128 }, &[zero]);
        vec![k.one(Op::Binary(BinaryOp::Xor), &[phase, one], u)]
    });
    k.control(Op::For, &[zero, k_tiles, one, zero], &[u], vec![mainloop]);

    // Lane l of warp w addresses row 16w + l % 16 and 16-byte chunk l / 16 of each matrix pair.
    let lane = k.one(Op::Special(Special::Lane), &[], u);
    let warp = k.one(Op::Special(Special::Warp), &[], u);
    let constant = |k: &mut Ops, value| k.u32(value);
    let (four, seven, fifteen) = (constant(&mut k, 4), constant(&mut k, 7), constant(&mut k, 15));
    let low = k.one(Op::Binary(BinaryOp::And), &[lane, fifteen], u);
    let high = k.one(Op::Binary(BinaryOp::Shr), &[lane, four], u);
    let base = k.one(Op::Binary(BinaryOp::Shl), &[warp, four], u);
    let tile_row = k.one(Op::Binary(BinaryOp::Or), &[base, low], u);
    let row_bytes = k.one(Op::Binary(BinaryOp::Shl), &[tile_row, seven], u);
    let swizzle = k.one(Op::Binary(BinaryOp::And), &[tile_row, seven], u);
    let row_address = k.one(Op::SmemOffset, &[a_tile, row_bytes], Type::Smem);
    for pair in 0..4 {
        let mut packed = vec![];
        for i in 0..4 {
            let get = |k: &mut Ops, j| k.one(Op::AccGet(acc, pair * 8 + i * 2 + j), &[], Type::F32);
            let (low, high) = (get(&mut k, 0), get(&mut k, 1));
            packed.push(k.one(Op::Pack(Element::Bf16), &[low, high], Type::B32));
        }
        let chunk = k.u32(pair * 2);
        let chunk = k.one(Op::Binary(BinaryOp::Or), &[chunk, high], u);
        let chunk = k.one(Op::Binary(BinaryOp::Xor), &[chunk, swizzle], u);
        let bytes = k.one(Op::Binary(BinaryOp::Shl), &[chunk, four], u);
        let address = k.one(Op::SmemOffset, &[row_address, bytes], Type::Smem);
        let args = [vec![address], packed].concat();
        k.run(Op::StoreMatrix { count: 4, transpose: false }, &args);
    }
    k.run(Op::FenceProxy(ProxyFence::SharedCta), &[]);
    k.run(Op::BarrierSync { threads: 128 }, &[zero]);
    let store = k.block(&[], |k, _| {
        k.run(Op::TmaStore { rank: 2, policy: false }, &[d_map, a_tile, zero, row]);
        k.run(Op::BulkCommit, &[]);
        k.run(Op::BulkWait { pending: 0, read: false }, &[]);
        vec![]
    });
    let nothing = empty(&mut k);
    k.control(Op::If, &[first], &[], vec![store, nothing]);
    k.finish()
}

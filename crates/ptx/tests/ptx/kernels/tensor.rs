//! Warpgroup MMA, register budgets, and a small GEMM.

use pgemm_ir::{
    ASource, BinaryOp, CompareOp, Constant, DescriptorLayout, Element, Half, Kernel, Op,
    OperandMajor, ProxyFence, RegisterChange, Space, Special, SwizzleMode, Type, Wgmma,
};

use crate::support::{Ops, weak};

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
            let op = Op::TmaLoad { rank: 2, im2col: false, multicast: false, policy: false };
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

//! Kernels that cannot be emitted. Each gets an error with the value and the possible values, never
//! a panic.

use crate::support::{Ops, weak};
use pgemm_ir::{
    ASource, Access, AtomicOp, BinaryOp, DescriptorLayout, Element, Kernel, Op, OperandMajor,
    Order, ParamKind, RegionId, RegisterChange, RoleId, Scope, Space, SwizzleMode, Type, ValueId,
    WarpMma, Wgmma,
};
use pgemm_ptx::{EmitError, emit};

fn error(build: impl FnOnce(&mut Ops)) -> EmitError {
    let mut k = Ops::new("broken", 1);
    build(&mut k);
    emit(&k.finish()).unwrap_err()
}

#[test]
fn roles_must_be_legalised() {
    let found = error(|k| {
        k.control(Op::Roles(vec![RoleId(0)]), &[], &[], vec![]);
    });
    assert!(matches!(found, EmitError::RolesNotLowered { .. }), "{found}");
    assert!(found.to_string().contains("legalise"), "{found}");
    assert!(found.to_string().contains("kernel.rs:1"), "{found}");
}

#[test]
fn names_are_checked() {
    for name in ["", "2fast", "a-b", "_", "größe"] {
        let found = emit(&Ops::new(name, 1).finish()).unwrap_err();
        assert!(matches!(found, EmitError::BadIdentifier { .. }), "{name}: {found}");
    }
    let long = "a".repeat(1025);
    assert!(matches!(emit(&Ops::new(&long, 1).finish()), Err(EmitError::BadIdentifier { .. })));
    assert!(emit(&Ops::new(&long[1..], 1).finish()).is_ok());
    for name in ["smem", "broken"] {
        let found = error(|k| {
            k.param(name, Type::U32);
        });
        assert!(matches!(found, EmitError::DuplicateName { .. }), "{name}: {found}");
    }
}

#[test]
fn launch_shapes_are_checked() {
    for warpgroups in [0, 9, u32::MAX] {
        let found = emit(&Ops::new("wide", warpgroups).finish()).unwrap_err();
        assert!(matches!(found, EmitError::Threads { .. }), "{warpgroups}: {found}");
    }
    for ctas in [0, 17] {
        let found = emit(&Ops::new("clustered", 1).cluster(ctas).finish()).unwrap_err();
        assert!(matches!(found, EmitError::Cluster { .. }), "{ctas}: {found}");
    }
    for ctas in [0, 5, u32::MAX] {
        let found = emit(&Ops::new("crowded", 4).ctas_per_sm(ctas).finish()).unwrap_err();
        assert!(matches!(found, EmitError::CtasPerSm { .. }), "{ctas}: {found}");
    }
    let found = error(|k| {
        k.declare("flag", ParamKind::Scalar(Type::Bool));
    });
    assert!(matches!(found, EmitError::ParameterType { .. }), "{found}");
}

/// An accumulator group has the sums of 64 rows and of 8 to 256 columns, as wgmma does, in f32 or
/// in 32-bit integers.
#[test]
fn accumulators_are_those_of_an_instruction() {
    for (ty, registers) in
        [(Type::F32, 2), (Type::F32, 132), (Type::S32, 0), (Type::F64, 8), (Type::U32, 8)]
    {
        let found = error(|k| {
            k.accumulator(ty, registers);
        });
        assert!(matches!(found, EmitError::Accumulator { .. }), "{ty:?} {registers}: {found}");
    }
    for (ty, registers) in [(Type::F32, 4), (Type::F32, 128), (Type::S32, 4), (Type::B32, 64)] {
        let mut k = Ops::new("whole", 1);
        k.accumulator(ty, registers);
        emit(&k.finish()).unwrap();
    }
}

#[test]
fn broken_structure_is_found() {
    let undefined = error(|k| {
        k.one(Op::Fma, &[ValueId(7), ValueId(8), ValueId(9)], Type::F32);
    });
    assert!(matches!(undefined, EmitError::UndefinedValue { .. }), "{undefined}");
    let arity = error(|k| {
        let m = k.param("m", Type::U32);
        k.one(Op::Binary(BinaryOp::Add), &[m], Type::U32);
    });
    assert!(matches!(arity, EmitError::Arity { .. }), "{arity}");
    let stray = error(|k| k.run(Op::Yield, &[]));
    assert!(matches!(stray, EmitError::MisplacedYield { .. }), "{stray}");
    let headless = error(|k| {
        k.control(Op::For, &[], &[], vec![]);
    });
    assert!(matches!(headless, EmitError::Arity { .. }), "{headless}");
    let region = error(|k| {
        k.one(Op::SmemAddress(RegionId(3)), &[], Type::Smem);
    });
    assert!(matches!(region, EmitError::UnknownRegion { .. }), "{region}");
    let register = error(|k| {
        let acc = k.accumulator(Type::F32, 4);
        let value = k.param("v", Type::F32);
        k.run(Op::AccSet(acc, 4), &[value]);
    });
    assert!(matches!(register, EmitError::UnknownAccumulator { .. }), "{register}");
    let integer = error(|k| {
        let acc = k.accumulator(Type::F32, 4);
        let value = k.param("v", Type::U32);
        k.run(Op::AccSet(acc, 0), &[value]);
    });
    assert!(matches!(integer, EmitError::UnsupportedType { .. }), "{integer}");
    let kind = error(|k| {
        let id = k.declare("m", ParamKind::Scalar(Type::U32));
        k.one(Op::MapParam(id), &[], Type::MapPtr);
    });
    assert!(matches!(kind, EmitError::ParameterKind { .. }), "{kind}");
}

#[test]
fn constant_im2col_offsets_are_checked() {
    for (rank, most) in [(3, 65535), (4, 255), (5, 31)] {
        for (offset, fits) in [(most, true), (most + 1, false)] {
            let mut k = Ops::new("im2col", 1);
            let map = k.map("map", Element::Bf16, &[64, 128]);
            let (zero, offset) = (k.u32(0), k.u32(offset));
            let args = [vec![map], vec![zero; rank], vec![offset; rank - 2]].concat();
            let rank = rank as u32;
            k.run(Op::TmaPrefetch { rank, im2col: true, policy: false }, &args);
            let emitted = emit(&k.finish());
            assert_eq!(emitted.is_ok(), fits, "{emitted:?}");
            if let Err(error) = emitted {
                assert!(error.to_string().contains("31 for three"), "{error}");
            }
        }
    }
}

#[test]
fn attributes_are_checked() {
    let attempts: [(Op, &str); 15] = [
        (Op::MbarrierInit { count: 1 << 20 }, "1048576"),
        (Op::WgmmaWait { pending: 8 }, "wgmma_wait: pending is 8: use 0 to 7"),
        (Op::SetMaxRegisters { count: 100, change: RegisterChange::Increase }, "steps of 8"),
        (Op::Fence(Order::Relaxed, Scope::Gpu), "order is relaxed: use acquire_release"),
        (Op::TmaLoad { rank: 6, im2col: false, multicast: false, policy: false }, "1 to 5"),
        (Op::TmaLoad { rank: 2, im2col: true, multicast: false, policy: false }, "3 to 5"),
        (Op::TmaPrefetch { rank: 6, im2col: true, policy: false }, "3 to 5"),
        (Op::TmaPrefetch { rank: 0, im2col: false, policy: false }, "1 to 5"),
        (Op::Reduce { vector: 3 }, "1, 2 or 4"),
        (
            Op::Atomic {
                op: AtomicOp::Add,
                space: Space::Global,
                order: Order::Weak,
                scope: Scope::Gpu,
            },
            "order is weak",
        ),
        (Op::LoadElement(Element::Tf32), "element is tf32"),
        (Op::StoreElement(Element::U8), "use f16, bf16, f32"),
        (Op::LoadNarrow { space: Space::Global, bytes: 3 }, "bytes is 3: use 1 or 2"),
        (Op::BarrierSync { threads: 48 }, "in steps of 32"),
        (Op::DescriptorAdvance(8), "in steps of 16"),
    ];
    for (op, says) in attempts {
        let kernel: Kernel = {
            let mut k = Ops::new("broken", 1);
            let args = match op {
                Op::MbarrierInit { .. } => vec![k.region(0, 8)],
                Op::BarrierSync { .. } => vec![k.u32(1)],
                Op::Atomic { .. } => vec![k.param("a", Type::U64), k.u32(1)],
                Op::LoadElement(_) | Op::LoadNarrow { .. } => vec![k.param("a", Type::U64)],
                Op::StoreElement(_) => vec![k.param("a", Type::U64), k.param("v", Type::F32)],
                Op::DescriptorAdvance(_) => vec![k.param("d", Type::U64)],
                _ => vec![],
            };
            k.many(op.clone(), &args, &[]);
            k.finish()
        };
        let found = emit(&kernel).unwrap_err();
        assert!(found.to_string().contains(says), "{op:?}: {found}");
    }
}

#[test]
fn accesses_are_checked() {
    for (ty, vector, order) in [
        (Type::U64, 4, Order::Weak),
        (Type::U32, 3, Order::Weak),
        (Type::Bool, 1, Order::Weak),
        (Type::U32, 1, Order::Release),
    ] {
        error(|k| {
            let address = k.param("at", Type::U64);
            let access = Access { ty, order, scope: Scope::Gpu, ..weak(Space::Global, ty, vector) };
            k.many(Op::Load(access), &[address], &vec![ty; vector as usize]);
        });
    }
}

#[test]
fn wgmma_is_checked() {
    let attempt = |acc_type, registers, n, a, b, b_major| {
        error(|k| {
            let acc = k.accumulator(acc_type, registers);
            let smem = k.region(0, 1024);
            let layout =
                DescriptorLayout { swizzle: SwizzleMode::None, leading_bytes: 0, stride_bytes: 0 };
            let tile = k.one(Op::Descriptor(layout), &[smem], Type::Descriptor);
            let accumulate = k.constant(pgemm_ir::Constant::Bool(false));
            let a_source = ASource::Shared(OperandMajor::K);
            let mma = Wgmma { acc, n, a, b, a_source, b_major };
            k.run(Op::Wgmma(mma), &[tile, tile, accumulate]);
        })
    };
    use Element::{Bf16, E4m3, F16, S8, Tf32};
    let (k, mn) = (OperandMajor::K, OperandMajor::Mn);
    for (a, b, major) in [(Bf16, F16, k), (Tf32, Tf32, mn), (E4m3, E4m3, mn)] {
        let found = attempt(Type::F32, 4, 8, a, b, major);
        assert!(matches!(found, EmitError::Attribute { .. }), "{found}");
    }
    for (ty, n, element) in [(Type::F32, 12, Bf16), (Type::F32, 264, Bf16), (Type::S32, 40, S8)] {
        let found = attempt(ty, n / 2, n, element, element, k);
        assert!(matches!(found, EmitError::Attribute { .. }), "n {n}: {found}");
    }
    for (ty, registers, element) in [(Type::F32, 4, S8), (Type::B32, 2, Bf16), (Type::U64, 4, Bf16)]
    {
        let found = attempt(ty, registers, 8, element, element, k);
        assert!(matches!(found, EmitError::UnsupportedAccumulator { .. }), "{found}");
    }
    for (ty, registers, element) in [(Type::F32, 4, Bf16), (Type::B32, 8, F16)] {
        let found = attempt(ty, registers, 16, element, element, k);
        assert!(matches!(found, EmitError::OutOfRange { .. }), "{found}");
    }
}

#[test]
fn warp_mmas_are_checked() {
    let attempt = |mma: WarpMma, operands: usize, results: usize| {
        error(|k| {
            let one = k.constant(pgemm_ir::Constant::F64(1.0));
            k.many(Op::WarpMma(mma), &vec![one; operands], &vec![Type::F64; results]);
        })
    };
    let mma = WarpMma::f64(8);
    for unknown in [WarpMma::f64(5), WarpMma { n: 16, ..mma }] {
        let found = attempt(unknown, 10, 4);
        assert!(matches!(found, EmitError::Attribute { .. }), "{found}");
        assert!(found.to_string().contains("m16n8k16"), "{found}");
    }
    for (operands, results) in [(9, 4), (11, 4), (10, 3)] {
        let found = attempt(mma, operands, results);
        assert!(matches!(found, EmitError::Arity { .. }), "{found}");
    }
}

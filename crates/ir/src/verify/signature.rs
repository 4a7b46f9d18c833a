//! Rule 6: operands and results against the signature that each operation documents.

use super::structure::list;
use super::{Report, Rule};
use crate::text::operation_name;
use crate::{ASource, BinaryOp, Inst, Kernel, Op, ParamKind, Space, Type, UnaryOp, WarpMma};

pub(super) fn check(report: &mut Report<'_>) {
    let kernel = report.kernel;
    kernel.visit(&mut |inst| {
        if let Err(wanted) = signature(kernel, inst) {
            let message = format!(
                "({}) -> ({}) does not match {}, which is {wanted}",
                list(&types(kernel, &inst.args)),
                list(&types(kernel, &inst.results)),
                operation_name(&inst.op),
            );
            report.at(Rule::Types, inst.loc, message);
        }
    });
}

fn types(kernel: &Kernel, values: &[crate::ValueId]) -> Vec<Option<Type>> {
    values.iter().map(|value| kernel.values.get(value.index()).copied()).collect()
}

const ARITHMETIC: &[Type] = &[Type::U32, Type::S32, Type::U64, Type::F32, Type::F64];
const FLOATS: &[Type] = &[Type::F32, Type::F64];
const INTEGERS: &[Type] = &[Type::U32, Type::S32, Type::U64];
const LOGICAL: &[Type] = &[Type::Bool, Type::U32, Type::S32, Type::U64];
const BITS_32: &[Type] = &[Type::U32, Type::S32, Type::F32, Type::B32];

/// `Err` holds the signature in words.
fn signature(kernel: &Kernel, inst: &Inst) -> Result<(), String> {
    use Type::{B32, Bool, ClusterSmem, Descriptor, F32, MapPtr, Smem, U32, U64};

    let args: Option<Vec<Type>> = types(kernel, &inst.args).into_iter().collect();
    let results: Option<Vec<Type>> = types(kernel, &inst.results).into_iter().collect();
    // Values that do not exist are reported as such.
    let (Some(args), Some(results)) = (args, results) else { return Ok(()) };

    let exactly = |wanted_args: &[Type], wanted_results: &[Type]| {
        if args == wanted_args && results == wanted_results {
            Ok(())
        } else {
            let some = |types: &[Type]| types.iter().copied().map(Some).collect::<Vec<_>>();
            Err(format!("({}) -> ({})", list(&some(wanted_args)), list(&some(wanted_results))))
        }
    };
    // T, the type of the first operand, from a set.
    let first = |set: &[Type], shape: &str| match args.first() {
        Some(ty) if set.contains(ty) => Ok(*ty),
        _ => {
            let names: Vec<&str> = set.iter().map(|ty| ty.name()).collect();
            Err(format!("{shape} with T one of {}", names.join(", ")))
        }
    };
    let with = |head: &[Type], tail: Type, count: u32| {
        let mut types = head.to_vec();
        types.extend((0..count.min(64)).map(|_| tail));
        types
    };
    let address = |space: Space| match space {
        Space::Global => U64,
        Space::Shared => Smem,
    };

    match &inst.op {
        Op::Const(constant) => exactly(&[], &[constant.ty()]),
        Op::Param(id) => match kernel.params.get(id.index()).map(|param| &param.kind) {
            Some(ParamKind::Scalar(ty)) => exactly(&[], &[*ty]),
            Some(ParamKind::TensorMap(_)) => Err(format!("for scalars, and {id} is a tensor map")),
            None => Ok(()),
        },
        Op::MapParam(id) => match kernel.params.get(id.index()).map(|param| &param.kind) {
            Some(ParamKind::TensorMap(_)) => exactly(&[], &[MapPtr]),
            Some(ParamKind::Scalar(_)) => Err(format!("for tensor maps, and {id} is a scalar")),
            None => Ok(()),
        },
        Op::MapAt => exactly(&[U64], &[MapPtr]),
        Op::Special(_) => exactly(&[], &[U32]),
        Op::Clock => exactly(&[], &[U64]),
        Op::SmemAddress(_) => exactly(&[], &[Smem]),
        Op::Unary(op) => {
            let set = match op {
                UnaryOp::Not => LOGICAL,
                UnaryOp::Neg => &[Type::S32, Type::F32, Type::F64],
                UnaryOp::Abs => FLOATS,
                UnaryOp::Exp2 | UnaryOp::Reciprocal => &[Type::F32],
            };
            let ty = first(set, "(T) -> T")?;
            exactly(&[ty], &[ty])
        }
        Op::Binary(op) => {
            let (set, shift) = match op {
                BinaryOp::Add
                | BinaryOp::Sub
                | BinaryOp::Mul
                | BinaryOp::Div
                | BinaryOp::Min
                | BinaryOp::Max => (ARITHMETIC, false),
                BinaryOp::MulHigh => (&[U32][..], false),
                BinaryOp::MaxNan => (&[Type::F32][..], false),
                BinaryOp::Rem => (INTEGERS, false),
                BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => (LOGICAL, false),
                BinaryOp::Shl | BinaryOp::Shr => (INTEGERS, true),
            };
            let ty = first(set, if shift { "(T, u32) -> T" } else { "(T, T) -> T" })?;
            exactly(&[ty, if shift { U32 } else { ty }], &[ty])
        }
        Op::Fma => {
            let ty = first(FLOATS, "(T, T, T) -> T")?;
            exactly(&[ty, ty, ty], &[ty])
        }
        Op::Compare(_) => {
            let ty = first(ARITHMETIC, "(T, T) -> bool")?;
            exactly(&[ty, ty], &[Bool])
        }
        Op::Select => match args.get(1) {
            Some(&ty) => exactly(&[Bool, ty, ty], &[ty]),
            None => Err("(bool, T, T) -> T".into()),
        },
        Op::Convert(to) => {
            let integer = |ty| matches!(ty, Type::U32 | Type::S32);
            match (args.first(), *to) {
                (Some(&from), U64 | F32) if integer(from) => exactly(&[from], &[*to]),
                (Some(U64), Type::U32 | Type::S32) => exactly(&[U64], &[*to]),
                _ => Err("u32 or s32 to u64 and back, or u32 or s32 to f32".into()),
            }
        }
        Op::Bitcast(to) => {
            let sets = [BITS_32, &[Type::U64, Type::F64]];
            let Some(set) = sets.into_iter().find(|set| set.contains(to)) else {
                return Err(format!(
                    "among u32, s32, f32, b32, or of u64 and f64, and {to} is none of them"
                ));
            };
            let ty = first(set, "(T) -> U")?;
            exactly(&[ty], &[*to])
        }
        Op::Pack(_) => exactly(&[F32, F32], &[B32]),
        Op::Unpack(..) => exactly(&[B32], &[F32]),
        Op::PermuteBytes => exactly(&[U32, U32, U32], &[U32]),
        Op::SmemOffset => exactly(&[Smem, U32], &[Smem]),
        Op::MapShared => exactly(&[Smem, U32], &[ClusterSmem]),
        Op::Descriptor(_) => exactly(&[Smem], &[Descriptor]),
        Op::DescriptorAdvance(_) => exactly(&[Descriptor], &[Descriptor]),
        Op::Elect => exactly(&[], &[Bool]),
        Op::AccGet(acc, _) => match kernel.accumulators.get(acc.index()) {
            Some(acc) => exactly(&[], &[acc.ty]),
            None => Ok(()),
        },
        Op::Load(access) => exactly(&[address(access.space)], &with(&[], access.ty, access.vector)),
        Op::Store(access) => {
            exactly(&with(&[address(access.space)], access.ty, access.vector), &[])
        }
        Op::ShuffleFirst | Op::AssumeUniform => exactly(&[U32], &[U32]),
        Op::Atomic { .. } => exactly(&[U64, U32], &[U32]),
        Op::Reduce { vector } => exactly(&with(&[U64], F32, *vector), &[]),
        Op::LoadElement(_) => exactly(&[U64], &[F32]),
        Op::StoreElement(_) => exactly(&[U64, F32], &[]),
        Op::LoadNarrow { space, .. } => exactly(&[address(*space)], &[U32]),
        Op::StoreNarrow { space, .. } => exactly(&[address(*space), U32], &[]),
        Op::LoadMatrix { count, .. } => exactly(&[Smem], &with(&[], B32, *count)),
        Op::StoreMatrix { count, .. } => exactly(&with(&[Smem], B32, *count), &[]),
        Op::MbarrierInit { .. } | Op::MbarrierArrive | Op::MbarrierArriveExpect { .. } => {
            exactly(&[Smem], &[])
        }
        Op::MbarrierArriveCluster => exactly(&[ClusterSmem], &[]),
        Op::MbarrierWait => exactly(&[Smem, U32], &[]),
        Op::FenceMbarrierInit
        | Op::FenceProxy(_)
        | Op::Fence(..)
        | Op::FenceMapRelease(_)
        | Op::ClusterArrive { .. }
        | Op::ClusterWait
        | Op::WarpSync
        | Op::GridDependencyWait
        | Op::GridDependencyLaunch
        | Op::BulkCommit
        | Op::BulkWait { .. }
        | Op::WgmmaFence
        | Op::WgmmaCommit
        | Op::WgmmaWait { .. }
        | Op::SetMaxRegisters { .. }
        | Op::Roles(_) => exactly(&[], &[]),
        Op::BarrierSync { .. } | Op::BarrierArrive { .. } => exactly(&[U32], &[]),
        Op::Sleep => exactly(&[U32], &[]),
        Op::PrefetchLine => exactly(&[U64], &[]),
        Op::PrefetchMap | Op::FenceMapAcquire(_) => exactly(&[MapPtr], &[]),
        Op::TmaLoad { rank, multicast, policy } => {
            let mask = u32::from(*multicast);
            let mut wanted = with(&[MapPtr, Smem, Smem], U32, rank.saturating_add(mask));
            wanted.extend(policy.then_some(U64));
            exactly(&wanted, &[])
        }
        Op::TmaStore { rank, policy } => {
            let mut wanted = with(&[MapPtr, Smem], U32, *rank);
            wanted.extend(policy.then_some(U64));
            exactly(&wanted, &[])
        }
        Op::TmaPrefetch { rank, policy } => {
            let mut wanted = with(&[MapPtr], U32, *rank);
            wanted.extend(policy.then_some(U64));
            exactly(&wanted, &[])
        }
        Op::Wgmma(wgmma) => match wgmma.a_source {
            ASource::Shared(_) => exactly(&[Descriptor, Descriptor, Bool], &[]),
            ASource::Registers => exactly(&[B32, B32, B32, B32, Descriptor, Bool], &[]),
        },
        Op::WarpMma(mma) if mma.exists() => {
            let operands = with(&[], mma.accumulator, mma.a_values() + mma.b_values());
            let sums = with(&[], mma.accumulator, mma.c_values());
            exactly(&[operands, sums.clone()].concat(), &sums)
        }
        Op::WarpMma(_) => {
            let known: Vec<_> = WarpMma::ALL.iter().map(WarpMma::to_string).collect();
            Err(format!("one of {}", known.join(", ")))
        }
        Op::For => {
            let mut wanted = vec![U32, U32, U32];
            wanted.extend_from_slice(args.get(3..).unwrap_or_default());
            let carried = wanted.get(3..).unwrap_or_default().to_vec();
            exactly(&wanted, &carried)
        }
        Op::While => exactly(&args, &args),
        Op::If => exactly(&[Bool], &results),
        // Its operands are matched by the operation around it.
        Op::Yield => exactly(&args, &[]),
    }
}

//! The PTX of every form of every operation: each attribute and each type that the kernel language
//! allows. The list is computed from the language, so that a form that is added later changes the
//! snapshot or does not compile here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use pgemm_ir::{
    ASource, AccId, Access, Accumulator, AtomicOp, BinaryOp, CompareOp, Constant,
    CustomInstruction, CustomValues, DescriptorLayout, Element, Half, Instruction, Kernel, Op,
    OperandMajor, Order, ParamId, ParamKind, ProxyFence, ReductionOp, RegionId, RegisterChange,
    Rule, Scope, Shuffle, Space, Special, SwizzleMode, TensorMapSpec, Type, UnaryOp, ValueId,
    VerifyError, Vote, WarpMma, Wgmma, verify,
};
use pgemm_ptx::emit;
use pgemm_ptx_reader::compare;
use pgemm_ptx_reader::mutants::{Random, mutate};

use crate::reader::assert_read;
use crate::support::{Ops, assemblers, weak};

/// Accumulators of the kernels in which operations with accumulators stand: one of each type.
const ACCUMULATORS: [Type; 3] = [Type::F32, Type::S32, Type::B32];

/// One operation with the types of its operands and results.
struct Form {
    op: Op,
    operands: Vec<Type>,
    results: Vec<Type>,
}

/// Every operation with every attribute. The parts of an access are words of their own in PTX, so
/// spaces and vectors vary with the type, and memory orders and scopes vary with the space. Numbers
/// that are plain operands of the instruction have one value.
fn operations() -> Vec<Op> {
    let mut ops = vec![
        Op::Const(Constant::F32(1.0)),
        Op::MapAt,
        Op::Clock,
        Op::SmemAddress(RegionId(0)),
        Op::Fma,
        Op::Select,
        Op::PermuteBytes,
        Op::SmemOffset,
        Op::MapShared,
        Op::Elect,
        Op::ShuffleFirst,
        Op::AssumeUniform,
        Op::Ballot,
        Op::Match,
        Op::MbarrierInit { count: 1 },
        Op::MbarrierArrive,
        Op::MbarrierArriveExpect { bytes: 128 },
        Op::MbarrierArriveCluster,
        Op::MbarrierWait,
        Op::FenceMbarrierInit,
        Op::Sleep,
        Op::Trap,
        Op::Print,
        Op::BarrierSync { threads: 128 },
        Op::BarrierArrive { threads: 128 },
        Op::WarpSync,
        Op::ClusterWait,
        Op::GridDependencyWait,
        Op::GridDependencyLaunch,
        Op::PrefetchLine,
        Op::PrefetchMap,
        Op::CopyCommit,
        Op::CopyWait { pending: 1 },
        Op::CopyArrive,
        Op::BulkCommit,
        Op::WgmmaFence,
        Op::WgmmaCommit,
        Op::WgmmaWait { pending: 1 },
    ];
    // The parameters that `kernel` declares first.
    ops.extend([Op::Param(ParamId(0)), Op::MapParam(ParamId(1))]);
    ops.extend(Special::ALL.map(Op::Special));
    ops.extend(UnaryOp::ALL.map(Op::Unary));
    ops.extend(BinaryOp::ALL.map(Op::Binary));
    ops.extend(BinaryOp::ALL.map(Op::WarpReduce));
    ops.extend(Vote::ALL.map(Op::Vote));
    for (shuffle, width) in product(&Shuffle::ALL, &[8, 32]) {
        ops.push(Op::Shuffle { shuffle, width });
    }
    ops.extend(CompareOp::ALL.map(Op::Compare));
    ops.extend(Type::ALL.map(Op::Convert));
    ops.extend(Type::ALL.map(Op::Bitcast));
    ops.extend(WarpMma::ALL.map(Op::WarpMma));
    ops.extend(ProxyFence::ALL.map(Op::FenceProxy));
    ops.extend(RegisterChange::ALL.map(|change| Op::SetMaxRegisters { count: 40, change }));
    for element in Element::ALL {
        ops.extend([Op::Pack(element), Op::LoadElement(element), Op::StoreElement(element)]);
        ops.extend(Half::ALL.map(|half| Op::Unpack(element, half)));
    }
    for acc in [AccId(0), AccId(1), AccId(2)] {
        ops.extend([Op::AccGet(acc, 1), Op::AccSet(acc, 1)]);
    }
    for swizzle in SwizzleMode::ALL {
        let layout = DescriptorLayout { swizzle, leading_bytes: 32, stride_bytes: 1024 };
        ops.push(Op::Descriptor(layout));
    }
    ops.push(Op::DescriptorAdvance(48));
    for space in Space::ALL {
        for (ty, vector) in product(&Type::ALL, &[1, 2, 3, 4]) {
            ops.extend([Op::Load(weak(space, ty, vector)), Op::Store(weak(space, ty, vector))]);
        }
        for (order, scope) in product(&Order::ALL, &Scope::ALL) {
            let access = Access { order, scope, ..weak(space, Type::U32, 1) };
            ops.extend([Op::Load(access), Op::Store(access)]);
        }
        ops.push(Op::Load(Access { once: true, ..weak(space, Type::F32, 4) }));
        for bytes in [1, 2] {
            ops.extend([Op::LoadNarrow { space, bytes }, Op::StoreNarrow { space, bytes }]);
        }
    }
    for (order, scope) in product(&Order::ALL, &Scope::ALL) {
        ops.push(Op::Fence(order, scope));
        let (space, add) = (Space::Global, AtomicOp::Add);
        ops.push(Op::Atomic { op: add, space, order, scope });
        ops.push(Op::CompareExchange { space, order, scope });
    }
    for space in Space::ALL {
        let (order, scope) = (Order::AcquireRelease, Scope::Cta);
        ops.extend(AtomicOp::ALL.map(|op| Op::Atomic { op, space, order, scope }));
        ops.push(Op::CompareExchange { space, order, scope });
    }
    for scope in Scope::ALL {
        ops.extend([Op::FenceMapRelease(scope), Op::FenceMapAcquire(scope)]);
    }
    ops.extend([1, 2, 4].map(|vector| Op::Reduce { vector }));
    ops.extend([4, 8, 16].map(|bytes| Op::CopyAsync { bytes }));
    for (count, transpose) in product(&[1, 2, 4], &[false, true]) {
        ops.push(Op::LoadMatrix { count, transpose });
        ops.push(Op::StoreMatrix { count, transpose });
    }
    ops.extend([false, true].map(|relaxed| Op::ClusterArrive { relaxed }));
    ops.extend([false, true].map(|read| Op::BulkWait { pending: 1, read }));
    for (rank, policy) in product(&[1, 2, 3, 4, 5], &[false, true]) {
        for im2col in [false, true] {
            let load = |multicast| Op::TmaLoad { rank, im2col, multicast, policy };
            ops.extend([false, true].map(load));
            ops.push(Op::TmaPrefetch { rank, im2col, policy });
        }
        ops.push(Op::TmaStore { rank, policy });
        ops.extend(ReductionOp::ALL.map(|op| Op::TmaReduce { op, rank, policy }));
    }
    for policy in [false, true] {
        ops.extend([false, true].map(|multicast| Op::BulkLoad { multicast, policy }));
        ops.push(Op::BulkStore { policy });
        for (op, element) in product(&ReductionOp::ALL, &Element::ALL) {
            if op.combines(element, false) {
                ops.push(Op::BulkReduce { op, element, policy });
            }
        }
    }
    ops.extend(wgmmas());
    ops.extend(customs().into_iter().map(Op::Custom));
    ops.retain(|op| op.attribute_errors().is_empty());
    ops
}

/// Instructions that the language lacks, with every kind of operand of a template.
fn customs() -> Vec<CustomInstruction> {
    use pgemm_ir::ty::{B32, Bool, F32, S32, Smem, U32, U64};

    fn own<A: CustomValues, R: CustomValues>(name: &str, ptx: &str) -> Instruction<A, R> {
        Instruction::new(name, ptx)
    }
    let matching = own::<U32, (U32, Bool)>("match_all", "match.all.sync.b32 $r0|$r1, $0, -1");
    let shuffle = "shfl.sync.bfly.b32 $r0|$r1, $0, $1, 0x1f, 0xffffffff";
    let pair = "ld.shared.v2.f32 {$r1, $r0}, [$0+8]";
    vec![
        own::<(U32, U32, U32), U32>("majority", "lop3.b32 $r0, $0, $1, $2, 0xe8")
            .description()
            .clone(),
        // These are computations that the reader knows of other operations too.
        own::<(U32, U32), U64>("wide", "mul.wide.u32 $r0, $1, $0").description().clone(),
        own::<F32, F32>("twice", "fma.rz.f32 $r0, $0, 0f40000000, $0").description().clone(),
        own::<S32, S32>("field", "bfe.s32 $r0, $0, 4, 8").description().clone(),
        own::<(), U32>("lanes_below", "mov.u32 $r0, %lanemask_lt").reads().description().clone(),
        own::<(), U64>("cycles", "mov.u64 $r0, %clock64").reads().description().clone(),
        matching.reads().by_warp().description().clone(),
        own::<(B32, U32), (B32, Bool)>("butterfly", shuffle)
            .reads()
            .by_warp()
            .description()
            .clone(),
        own::<Smem, (F32, F32)>("pair", pair).reads().description().clone(),
        own::<U64, ()>("discard", "discard.global.L2 [$0], 128").acts().description().clone(),
        own::<(), ()>("spin", "fence.proxy.alias").acts().description().clone(),
    ]
}

/// Every pair of types, accumulator and place of the operands at one width.
fn wgmmas() -> Vec<Op> {
    let sources =
        [ASource::Shared(OperandMajor::K), ASource::Shared(OperandMajor::Mn), ASource::Registers];
    let mut ops = vec![];
    for (a, b) in product(&Element::ALL, &Element::ALL) {
        for &ty in a.accumulators_with(b) {
            let acc = ACCUMULATORS.iter().position(|&own| own == ty).expect("a type of sums");
            for (a_source, b_major) in product(&sources, &OperandMajor::ALL) {
                let acc = AccId(acc as u32);
                ops.push(Op::Wgmma(Wgmma { acc, n: 16, a, b, a_source, b_major }));
            }
        }
    }
    ops
}

fn product<A: Copy, B: Copy>(left: &[A], right: &[B]) -> Vec<(A, B)> {
    left.iter().flat_map(|&a| right.iter().map(move |&b| (a, b))).collect()
}

/// The operand and result types of an operation, where `t` is the type that varies. A new
/// operation does not compile until its types stand here.
fn form(op: &Op, t: Type) -> Option<Form> {
    use Type::{B32, Bool, ClusterSmem, Descriptor, F32, MapPtr, Smem, U32, U64};

    let many = |ty, count: u32| vec![ty; count as usize];
    let acc = |acc: AccId| ACCUMULATORS[acc.index()];
    let (operands, results) = match op {
        Op::Const(constant) => (vec![], vec![constant.ty()]),
        Op::Param(_) => (vec![], vec![U32]),
        Op::MapParam(_) => (vec![], vec![MapPtr]),
        Op::MapAt => (vec![U64], vec![MapPtr]),
        Op::Special(_) => (vec![], vec![U32]),
        Op::Clock => (vec![], vec![U64]),
        Op::SmemAddress(_) => (vec![], vec![Smem]),
        Op::Unary(_) => (vec![t], vec![t]),
        Op::Binary(BinaryOp::Shl | BinaryOp::Shr) => (vec![t, U32], vec![t]),
        Op::Binary(_) => (vec![t, t], vec![t]),
        Op::Fma => (vec![t; 3], vec![t]),
        Op::Compare(_) => (vec![t, t], vec![Bool]),
        Op::Select => (vec![Bool, t, t], vec![t]),
        Op::Convert(to) | Op::Bitcast(to) => (vec![t], vec![*to]),
        Op::Pack(_) => (vec![F32, F32], vec![B32]),
        Op::Unpack(..) => (vec![B32], vec![F32]),
        Op::PermuteBytes => (vec![U32; 3], vec![U32]),
        Op::SmemOffset => (vec![Smem, U32], vec![Smem]),
        Op::MapShared => (vec![Smem, U32], vec![ClusterSmem]),
        Op::Descriptor(_) => (vec![Smem], vec![Descriptor]),
        Op::DescriptorAdvance(_) => (vec![Descriptor], vec![Descriptor]),
        Op::Elect => (vec![], vec![Bool]),
        Op::ShuffleFirst | Op::AssumeUniform => (vec![U32], vec![U32]),
        Op::Shuffle { .. } => (vec![t, U32], vec![t]),
        Op::Vote(_) => (vec![Bool], vec![Bool]),
        Op::Ballot => (vec![Bool], vec![U32]),
        Op::Match => (vec![t], vec![U32]),
        Op::WarpReduce(_) => (vec![t], vec![t]),
        Op::AccGet(id, _) => (vec![], vec![acc(*id)]),
        Op::AccSet(id, _) => (vec![acc(*id)], vec![]),
        Op::Load(access) => (vec![access.space.address()], many(access.ty, access.vector)),
        Op::Store(access) => {
            ([vec![access.space.address()], many(access.ty, access.vector)].concat(), vec![])
        }
        Op::Atomic { space, .. } => (vec![space.address(), t], vec![t]),
        Op::CompareExchange { space, .. } => (vec![space.address(), t, t], vec![t]),
        Op::Reduce { vector } => ([vec![U64], many(F32, *vector)].concat(), vec![]),
        Op::LoadElement(_) => (vec![U64], vec![F32]),
        Op::StoreElement(_) => (vec![U64, F32], vec![]),
        Op::LoadNarrow { space, .. } => (vec![space.address()], vec![U32]),
        Op::StoreNarrow { space, .. } => (vec![space.address(), U32], vec![]),
        Op::LoadMatrix { count, .. } => (vec![Smem], many(B32, *count)),
        Op::StoreMatrix { count, .. } => ([vec![Smem], many(B32, *count)].concat(), vec![]),
        Op::MbarrierInit { .. } | Op::MbarrierArrive | Op::MbarrierArriveExpect { .. } => {
            (vec![Smem], vec![])
        }
        Op::CopyAsync { .. } => (vec![Smem, U64, U32], vec![]),
        Op::CopyArrive => (vec![Smem], vec![]),
        Op::MbarrierArriveCluster => (vec![ClusterSmem], vec![]),
        Op::MbarrierWait => (vec![Smem, U32], vec![]),
        Op::FenceMapAcquire(_) | Op::PrefetchMap => (vec![MapPtr], vec![]),
        Op::Print => (vec![t], vec![]),
        Op::Sleep | Op::BarrierSync { .. } | Op::BarrierArrive { .. } => (vec![U32], vec![]),
        Op::PrefetchLine => (vec![U64], vec![]),
        Op::TmaLoad { rank, im2col, multicast, policy } => {
            let place = rank + if *im2col { rank - 2 } else { 0 };
            let mut operands = [vec![MapPtr, Smem, Smem], many(U32, place)].concat();
            operands.extend(multicast.then_some(U32));
            operands.extend(policy.then_some(U64));
            (operands, vec![])
        }
        Op::TmaStore { rank, policy } | Op::TmaReduce { rank, policy, .. } => {
            let mut operands = [vec![MapPtr, Smem], many(U32, *rank)].concat();
            operands.extend(policy.then_some(U64));
            (operands, vec![])
        }
        Op::TmaPrefetch { rank, im2col, policy } => {
            let place = rank + if *im2col { rank - 2 } else { 0 };
            let mut operands = [vec![MapPtr], many(U32, place)].concat();
            operands.extend(policy.then_some(U64));
            (operands, vec![])
        }
        Op::BulkLoad { multicast, policy } => {
            let mut operands = vec![U64, Smem, Smem, U32];
            operands.extend(multicast.then_some(U32));
            operands.extend(policy.then_some(U64));
            (operands, vec![])
        }
        Op::BulkStore { policy } | Op::BulkReduce { policy, .. } => {
            let mut operands = vec![U64, Smem, U32];
            operands.extend(policy.then_some(U64));
            (operands, vec![])
        }
        Op::Wgmma(mma) => {
            let a = if mma.a_registers() > 0 { vec![B32; 4] } else { vec![Descriptor] };
            ([a, vec![Descriptor, Bool]].concat(), vec![])
        }
        Op::WarpMma(mma) => {
            let operands = many(mma.operand_type(), mma.a_values() + mma.b_values());
            let sums = many(mma.accumulator, mma.c_values());
            ([operands, sums.clone()].concat(), sums)
        }
        Op::Custom(own) => (own.operands().to_vec(), own.results().to_vec()),
        Op::FenceMbarrierInit
        | Op::FenceProxy(_)
        | Op::Fence(..)
        | Op::FenceMapRelease(_)
        | Op::Trap
        | Op::WarpSync
        | Op::ClusterArrive { .. }
        | Op::ClusterWait
        | Op::GridDependencyWait
        | Op::GridDependencyLaunch
        | Op::CopyCommit
        | Op::CopyWait { .. }
        | Op::BulkCommit
        | Op::BulkWait { .. }
        | Op::WgmmaFence
        | Op::WgmmaCommit
        | Op::WgmmaWait { .. }
        | Op::SetMaxRegisters { .. } => (vec![], vec![]),
        // Control flow has kernels of its own.
        Op::For | Op::While | Op::If | Op::Roles(_) | Op::Yield => return None,
    };
    Some(Form { op: op.clone(), operands, results })
}

/// A value of a type that is in a register, and different from every other.
fn value(k: &mut Ops, ty: Type, index: usize) -> ValueId {
    let scalar = |k: &mut Ops, ty| k.param(&format!("x{index}"), ty);
    match ty {
        Type::U32 | Type::U64 | Type::F32 | Type::F64 => scalar(k, ty),
        Type::S32 | Type::B32 => {
            let word = scalar(k, Type::U32);
            k.one(Op::Bitcast(ty), &[word], ty)
        }
        Type::Bool => {
            let (number, limit) = (scalar(k, Type::U32), k.u32(7));
            k.one(Op::Compare(CompareOp::Lt), &[number, limit], Type::Bool)
        }
        Type::Smem => {
            let (base, offset) = (k.one(REGION, &[], Type::Smem), scalar(k, Type::U32));
            k.one(Op::SmemOffset, &[base, offset], Type::Smem)
        }
        Type::ClusterSmem => {
            let (base, rank) = (k.one(REGION, &[], Type::Smem), scalar(k, Type::U32));
            k.one(Op::MapShared, &[base, rank], Type::ClusterSmem)
        }
        Type::MapPtr => k.one(Op::MapParam(ParamId(1)), &[], Type::MapPtr),
        Type::Descriptor => {
            let smem = value(k, Type::Smem, index);
            let layout = DescriptorLayout {
                swizzle: SwizzleMode::B128,
                leading_bytes: 0,
                stride_bytes: 1024,
            };
            k.one(Op::Descriptor(layout), &[smem], Type::Descriptor)
        }
    }
}

/// The region that the kernels declare.
const REGION: Op = Op::SmemAddress(RegionId(0));

/// A kernel that computes the operands of forms, and executes each form if `complete`.
fn kernel(forms: &[Form], complete: bool) -> Kernel {
    let mut k = Ops::new("form", 1).cluster(2);
    k.param("number", Type::U32);
    k.map("map", Element::Bf16, &[8, 8]);
    k.region(0, 65536);
    // The warp and warpgroup indices are computed at entry.
    for special in [Special::Warp, Special::Warpgroup] {
        k.one(Op::Special(special), &[], Type::U32);
    }
    for ty in ACCUMULATORS {
        let acc = k.accumulator(ty, Accumulator::registers_for(ty, 16));
        // The first use initialises all registers.
        k.one(Op::AccGet(acc, 0), &[], ty);
    }
    let mut index = 0;
    for form in forms {
        let mut operands = vec![];
        for &ty in &form.operands {
            operands.push(value(&mut k, ty, index));
            index += 1;
        }
        if complete {
            k.many(form.op.clone(), &operands, &form.results);
        }
    }
    k.finish()
}

/// The instructions of a kernel's body.
fn body(kernel: &Kernel) -> Vec<String> {
    let text = emit(kernel).unwrap();
    let body = text.split_once("\n{\n").expect("a body").1;
    let lines = body.lines().filter(|line| !line.trim_start().starts_with(".reg"));
    let lines = lines.map(str::trim).filter(|line| !["", "}", "ret;"].contains(line));
    lines.map(str::to_owned).collect()
}

/// Whether the types of the operands and results are those of the operation.
fn has_these_types(kernel: &Kernel) -> bool {
    let Err(VerifyError { violations, .. }) = verify(kernel) else { return true };
    !violations.iter().any(|violation| violation.rule == Rule::Types)
}

/// Every form that the verifier accepts.
fn forms() -> Vec<Form> {
    let mut forms = vec![];
    for op in operations() {
        let mut seen = BTreeSet::new();
        for form in Type::ALL.into_iter().filter_map(|t| form(&op, t)) {
            let types = (form.operands.clone(), form.results.clone());
            if seen.insert(types) && has_these_types(&kernel(std::slice::from_ref(&form), true)) {
                forms.push(form);
            }
        }
    }
    forms
}

#[test]
fn every_form_has_its_ptx() {
    let mut text = String::new();
    for form in forms() {
        let alone = std::slice::from_ref(&form);
        let (before, complete) = (body(&kernel(alone, false)), body(&kernel(alone, true)));
        // An operand that an accumulator takes is computed in its register, and differs too.
        let same = before.iter().zip(&complete).take_while(|(left, right)| left == right).count();
        let names = |types: &[Type]| types.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(" ");
        let (operands, results) = (names(&form.operands), names(&form.results));
        writeln!(text, "{} ({operands}) -> ({results})", form.op.name()).unwrap();
        for line in &complete[same..] {
            writeln!(text, "    {line}").unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

/// A kernel that executes a form and uses its results, so that nobody may leave them out.
fn used(form: &Form) -> Kernel {
    let mut k = Ops::new("used", 1).cluster(2);
    // Parameters that are not used have no instructions.
    let (element, swizzle) = (Element::Bf16, SwizzleMode::B128);
    let spec = TensorMapSpec::tiled(element, vec![8, 8], swizzle);
    k.declare("number", ParamKind::Scalar(Type::U32));
    k.declare("map", ParamKind::TensorMap(spec));
    k.region(0, 65536);
    for (number, ty) in (100..).step_by(10).zip(ACCUMULATORS) {
        let registers = Accumulator::registers_for(ty, 16);
        let acc = k.accumulator(ty, registers);
        for index in (0..registers).filter(|_| matches!(form.op, Op::AccGet(own, _) if own == acc))
        {
            let sum = value(&mut k, ty, number + index as usize);
            k.run(Op::AccSet(acc, index), &[sum]);
        }
    }
    let operands: Vec<ValueId> =
        form.operands.iter().enumerate().map(|(index, &ty)| value(&mut k, ty, index)).collect();
    let results = k.many(form.op.clone(), &operands, &form.results);
    let out = (!results.is_empty()).then(|| k.param("out", Type::U64));
    for (result, &ty) in results.into_iter().zip(&form.results) {
        let store = |k: &mut Ops, value, ty| {
            k.run(Op::Store(weak(Space::Global, ty, 1)), &[out.expect("there is a result"), value]);
        };
        match ty {
            Type::Bool => {
                let (one, zero) = (k.u32(1), k.u32(0));
                let word = k.one(Op::Select, &[result, one, zero], Type::U32);
                store(&mut k, word, Type::U32);
            }
            Type::Smem => k.run(Op::MbarrierArrive, &[result]),
            Type::ClusterSmem => k.run(Op::MbarrierArriveCluster, &[result]),
            Type::MapPtr => k.run(Op::PrefetchMap, &[result]),
            Type::Descriptor => {
                let no = k.constant(Constant::Bool(false));
                let k_major = OperandMajor::K;
                let (a, a_source) = (Element::Bf16, ASource::Shared(k_major));
                let wgmma = Wgmma { acc: AccId(0), n: 16, a, b: a, a_source, b_major: k_major };
                k.run(Op::Wgmma(wgmma), &[result, result, no]);
            }
            _ => store(&mut k, result, ty),
        }
    }
    // What an accumulator holds counts at a fence.
    k.run(Op::WgmmaFence, &[]);
    k.finish()
}

#[test]
fn every_form_is_read_as_it_was_meant() {
    for form in forms() {
        assert_read(&used(&form), &form.op.name());
    }
}

/// Few changes have no effect: another register may hold the same value.
#[test]
fn a_form_with_another_token_is_not_read() {
    let mut random = Random(1);
    let (mut judged, mut survivors) = (0, vec![]);
    // A print is no instruction, so that nothing uses its operand.
    for form in forms().into_iter().filter(|form| form.op != Op::Print) {
        let kernel = used(&form);
        let text = emit(&kernel).unwrap();
        let mutants = (0..24).filter_map(|_| mutate(&text, &mut random));
        for mutant in mutants.filter(|mutant| !mutant.is_equivalent()) {
            judged += 1;
            if compare(&kernel, &mutant.text).is_ok() {
                survivors.push(format!(
                    "{}: {} -> {}",
                    form.op.name(),
                    mutant.before,
                    mutant.after
                ));
            }
        }
    }
    assert!(
        judged > 5000 && survivors.len() * 1000 <= judged,
        "{} of {judged}: {survivors:#?}",
        survivors.len()
    );
}

/// Without this test an operation that is missing in `operations` would have no snapshot.
#[test]
fn every_operation_has_a_form() {
    let forms = forms();
    let seen: BTreeSet<&str> = forms.iter().map(|form| form.op.mnemonic()).collect();
    let control = ["for", "while", "if", "roles", "yield"];
    let all = Op::mnemonics().into_iter().filter(|mnemonic| !control.contains(mnemonic));
    let missing: Vec<&str> = all.filter(|mnemonic| !seen.contains(mnemonic)).collect();
    assert!(missing.is_empty(), "no form of {missing:?}");
}

/// The forms of an operation are assembled together. Kernels of so little sense are not free of
/// warnings.
#[test]
fn every_form_assembles() {
    let mut by_operation: BTreeMap<&str, Vec<Form>> = BTreeMap::new();
    for form in forms() {
        by_operation.entry(form.op.mnemonic()).or_default().push(form);
    }
    for ptxas in &assemblers("every_form_assembles") {
        for (name, forms) in &by_operation {
            let text = emit(&kernel(forms, true)).unwrap();
            if let Err(error) = ptxas.assemble(&text) {
                panic!("{name} with {}: {error}", ptxas.path().display());
            }
        }
    }
}

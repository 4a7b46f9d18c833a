//! What each operation of the IR is in PTX, by the documentation of the operation and the PTX ISA.
//! Nothing here is shared with the code that emits PTX.
//!
//! # To add an operation
//!
//! Without a row in [`rule`], a new operation does not compile. The row says what kind it is:
//!
//! - It only computes: [`Rule::Values`] with the terms of its results. [`Context::computed`] makes
//!   a term of an opcode and operands. Where the instructions stand, in which order, and in which
//!   registers is free; [`crate::isa::signature`] must know their opcodes.
//! - It has a place in the order of the program: [`step`] with the opcode and the operands as
//!   they are written. `x.value(i)` is operand `i` of the IR, `x.address(i)` the same in brackets,
//!   and [`Expected::Result`] a register that the instruction writes, in the order of the results.
//!   `structure::results` lists the opcodes without results. If more instructions make the results
//!   of the IR from those of this instruction, [`Step::then`] says how.
//! - It waits in a loop until an instruction gives true: [`Rule::Wait`].
//! - Everything else is for `walk.rs`: accumulators as registers, and control flow.

mod custom;
mod elements;
mod lanes;
mod names;
mod tensor;
mod values;

use pgemm_ir::{AccId, Kernel, Op, ProxyFence, RegisterChange, Special, Type, Vote};

use crate::isa::{B32, B64, F32, F64, Format, PREDICATE};
use crate::syntax::Operand;
use crate::terms::{Term, Terms};

/// What an operation is in PTX.
pub(crate) enum Rule {
    /// It only computes, or is nothing but another name of a value. The results.
    Values(Vec<Term>),
    /// An instruction at this place.
    Step(Step),
    /// A loop that repeats an instruction until its result holds.
    Wait(Step),
    /// A copy of a register of an accumulator group.
    ReadAccumulator(AccId, u32),
    /// A write of such a register.
    WriteAccumulator(AccId, u32),
    /// Control flow.
    Control,
}

/// One instruction.
pub(crate) struct Step {
    pub(crate) opcode: String,
    pub(crate) operands: Vec<Expected>,
    pub(crate) then: Option<Then>,
}

/// Makes the results of an operation from those of its instruction.
pub(crate) type Then = Box<dyn FnOnce(&mut Terms, &[Term]) -> Vec<Term>>;

/// An operand that an instruction must have.
pub(crate) enum Expected {
    /// A register of a format, which takes the next result.
    Result(Format),
    /// `_`.
    Sink,
    /// `_|%p`, where the predicate takes the next result.
    SinkAndPredicate,
    /// A register that holds this, or a literal.
    Value(Term, Format),
    /// An address of this many bits in brackets.
    Address(Term, u32),
    /// A literal.
    Number(u64),
    /// A list in braces.
    List(Vec<Expected>),
    /// Two registers that take the next results.
    Pair(Format, Format),
    /// This operand.
    Literal(Operand),
    /// `[map, {coordinates}]`.
    Box(Term, Vec<Term>),
    /// All registers of an accumulator group, and whether their contents are ignored.
    Accumulators(AccId, bool),
}

impl Step {
    /// The same step, whose results need more instructions.
    fn then(self, then: impl FnOnce(&mut Terms, &[Term]) -> Vec<Term> + 'static) -> Step {
        Step { then: Some(Box::new(then)), ..self }
    }
}

/// The operands of an operation.
pub(crate) struct Context<'a> {
    pub(crate) terms: &'a mut Terms,
    pub(crate) kernel: &'a Kernel,
    /// What the indices of warp and warpgroup are, if the kernel uses them.
    pub(crate) uniform: &'a [(Special, Term)],
    pub(crate) operands: Vec<Term>,
    pub(crate) types: Vec<Type>,
}

impl Context<'_> {
    fn operand(&self, index: usize) -> Term {
        self.operands[index]
    }

    fn ty(&self, index: usize) -> Type {
        self.types[index]
    }

    fn computed(&mut self, opcode: &str, operands: &[Term]) -> Term {
        self.terms.computed(opcode, operands)
    }

    fn constant(&mut self, bits: u64) -> Term {
        self.terms.constant(bits)
    }

    /// Operand `index` in a register or as a literal.
    fn value(&self, index: usize) -> Expected {
        Expected::Value(self.operand(index), format_of(self.ty(index)))
    }

    /// Operands from `first` on in registers or as literals.
    fn values(&self, first: usize) -> Vec<Expected> {
        (first..self.operands.len()).map(|index| self.value(index)).collect()
    }

    /// Operand `index` as an address in brackets.
    fn address(&self, index: usize) -> Expected {
        Expected::Address(self.operand(index), format_of(self.ty(index)).bits)
    }
}

/// The registers that hold values of a type.
pub(crate) fn format_of(ty: Type) -> Format {
    match ty {
        Type::Bool => PREDICATE,
        Type::U32 | Type::S32 | Type::B32 | Type::Smem | Type::ClusterSmem => B32,
        Type::U64 | Type::MapPtr | Type::Descriptor => B64,
        Type::F32 => F32,
        Type::F64 => F64,
    }
}

fn one(term: Term) -> Rule {
    Rule::Values(vec![term])
}

fn instruction(opcode: impl Into<String>, operands: Vec<Expected>) -> Step {
    Step { opcode: opcode.into(), operands, then: None }
}

fn step(opcode: impl Into<String>, operands: impl Into<Vec<Expected>>) -> Rule {
    Rule::Step(instruction(opcode, operands.into()))
}

/// All 32 lanes of a warp.
const ALL_LANES: u64 = 0xffff_ffff;

/// What an operation is in PTX.
pub(crate) fn rule(op: &Op, x: &mut Context<'_>) -> Rule {
    use Expected::{List, Number, Result, Sink, SinkAndPredicate};

    match op {
        Op::Const(constant) => one(x.constant(constant.bits())),
        Op::Param(id) => one(values::parameter(x, *id)),
        Op::MapParam(id) => one(values::map_parameter(x, *id)),
        // Global addresses are generic addresses (PTX ISA, "Generic Addressing").
        Op::MapAt => one(x.operand(0)),
        Op::Special(special) => one(values::special(x, *special)),
        Op::Clock => {
            let clock = x.terms.name("%globaltimer");
            step("mov.u64", [Result(B64), Expected::Value(clock, B64)])
        }
        Op::SmemAddress(region) => one(values::region(x, *region)),
        Op::Unary(op) => one(values::unary(x, *op)),
        Op::Binary(op) => one(values::binary(x, *op)),
        Op::Fma => {
            let opcode = format!("fma.rn.{}", names::ty(x.ty(0)));
            let operands = x.operands.clone();
            one(x.computed(&opcode, &operands))
        }
        Op::Compare(op) => one(values::compare(x, *op)),
        Op::Select => one(values::select(x)),
        Op::Convert(to) => one(values::convert(x, *to)),
        Op::Bitcast(_) => one(x.operand(0)),
        Op::Pack(element) => one(elements::pack(x, *element)),
        Op::Unpack(element, half) => one(elements::unpack(x, *element, *half)),
        Op::PermuteBytes => {
            let operands = x.operands.clone();
            one(x.computed("prmt.b32", &operands))
        }
        Op::SmemOffset => {
            let operands = x.operands.clone();
            one(x.computed("add.u32", &operands))
        }
        Op::MapShared => {
            let operands = x.operands.clone();
            one(x.computed("mapa.shared::cluster.u32", &operands))
        }
        Op::Descriptor(layout) => one(tensor::descriptor(x, layout)),
        // The address is in units of 16 bytes (PTX ISA, "Matrix descriptor").
        Op::DescriptorAdvance(bytes) => {
            let start = x.operand(0);
            one(x.terms.sum(64, start, u64::from(bytes / 16)))
        }
        Op::Elect => step("elect.sync", [SinkAndPredicate, Number(ALL_LANES)]),
        Op::ShuffleFirst | Op::AssumeUniform => {
            let lanes = [Number(0), Number(31), Number(ALL_LANES)];
            let operands = [Result(B32), x.value(0)].into_iter().chain(lanes);
            step("shfl.sync.idx.b32", operands.collect::<Vec<_>>())
        }
        Op::Shuffle { shuffle, width } => Rule::Step(lanes::shuffle(x, *shuffle, *width)),
        Op::Vote(Vote::Any) => lanes::ask(x, "vote.sync.any.pred", PREDICATE),
        Op::Vote(Vote::All) => lanes::ask(x, "vote.sync.all.pred", PREDICATE),
        Op::Ballot => lanes::ask(x, "vote.sync.ballot.b32", B32),
        Op::Match => {
            let opcode = format!("match.any.sync.{}", names::plain(x.ty(0)));
            lanes::ask(x, &opcode, B32)
        }
        Op::WarpReduce(op) => lanes::reduce(x, *op),
        Op::AccGet(acc, index) => Rule::ReadAccumulator(*acc, *index),
        Op::AccSet(acc, index) => Rule::WriteAccumulator(*acc, *index),

        Op::Load(access) => {
            let results = vector(access.vector, || Result(format_of(access.ty)));
            step(format!("ld{}", names::access(access)), [results, x.address(0)])
        }
        Op::Store(access) => {
            let values = braced(x.values(1));
            step(format!("st{}", names::access(access)), [x.address(0), values])
        }
        Op::Atomic { op, space, order, scope } => {
            let (order, scope) = (names::order(*order), names::scope(*scope));
            let (space, op) = (names::space(*space), names::atomic(*op, x.ty(1)));
            let opcode = format!("atom.{order}.{scope}.{space}.{op}");
            step(opcode, [Result(format_of(x.ty(1))), x.address(0), x.value(1)])
        }
        Op::CompareExchange { space, order, scope } => {
            let (order, scope) = (names::order(*order), names::scope(*scope));
            let (space, bits) = (names::space(*space), names::plain(x.ty(1)));
            let opcode = format!("atom.{order}.{scope}.{space}.cas.{bits}");
            step(opcode, [Result(format_of(x.ty(1))), x.address(0), x.value(1), x.value(2)])
        }
        Op::Reduce { vector } => {
            let vector = names::vector(*vector);
            let opcode = format!("red.relaxed.gpu.global.add{vector}.f32");
            step(opcode, [x.address(0), braced(x.values(1))])
        }
        Op::LoadElement(element) => Rule::Step(elements::load(x, *element)),
        Op::StoreElement(element) => Rule::Step(elements::store(x, *element)),
        Op::LoadNarrow { space, bytes } => {
            let opcode = format!("ld.{}.u{}", names::space(*space), bytes * 8);
            step(opcode, [Result(B32), x.address(0)])
        }
        Op::StoreNarrow { space, bytes } => {
            let opcode = format!("st.{}.u{}", names::space(*space), bytes * 8);
            step(opcode, [x.address(0), x.value(1)])
        }
        Op::LoadMatrix { count, transpose } => {
            let results = List((0..*count).map(|_| Result(B32)).collect());
            let opcode = format!("ldmatrix{}", names::matrices(*count, *transpose));
            step(opcode, [results, x.address(0)])
        }
        Op::StoreMatrix { count, transpose } => {
            let opcode = format!("stmatrix{}", names::matrices(*count, *transpose));
            step(opcode, [x.address(0), List(x.values(1))])
        }

        Op::CopyAsync { bytes } => {
            // Only copies of 16 bytes can leave the first-level cache out (PTX ISA, "cp.async").
            let cache = if *bytes == 16 { "cg" } else { "ca" };
            let opcode = format!("cp.async.{cache}.shared::cta.global");
            step(opcode, [x.address(0), x.address(1), Number((*bytes).into()), x.value(2)])
        }
        Op::CopyCommit => step("cp.async.commit_group", []),
        Op::CopyWait { pending } => step("cp.async.wait_group", [Number((*pending).into())]),
        Op::CopyArrive => step("cp.async.mbarrier.arrive.noinc.shared::cta.b64", [x.address(0)]),

        Op::MbarrierInit { count } => {
            step("mbarrier.init.shared::cta.b64", [x.address(0), Number((*count).into())])
        }
        Op::MbarrierArrive => step("mbarrier.arrive.shared::cta.b64", [Sink, x.address(0)]),
        Op::MbarrierArriveExpect { bytes } => {
            let operands = [Sink, x.address(0), Number((*bytes).into())];
            step("mbarrier.arrive.expect_tx.shared::cta.b64", operands)
        }
        Op::MbarrierArriveCluster => {
            step("mbarrier.arrive.shared::cluster.b64", [Sink, x.address(0)])
        }
        Op::MbarrierWait => {
            let operands = vec![Result(PREDICATE), x.address(0), x.value(1)];
            let opcode = "mbarrier.try_wait.parity.shared::cta.b64";
            Rule::Wait(instruction(opcode, operands))
        }
        Op::FenceMbarrierInit => step("fence.mbarrier_init.release.cluster", []),
        Op::FenceProxy(ProxyFence::SharedCta) => step("fence.proxy.async.shared::cta", []),
        Op::FenceProxy(ProxyFence::Global) => step("fence.proxy.async.global", []),
        Op::Fence(order, scope) => {
            step(format!("fence.{}.{}", names::order(*order), names::scope(*scope)), [])
        }
        Op::FenceMapRelease(scope) => {
            step(format!("fence.proxy.tensormap::generic.release.{}", names::scope(*scope)), [])
        }
        Op::FenceMapAcquire(scope) => {
            let opcode = format!("fence.proxy.tensormap::generic.acquire.{}", names::scope(*scope));
            step(opcode, [x.address(0), Number(128)])
        }
        Op::Custom(instruction) => custom::rule(x, instruction),
        Op::Trap => step("trap", []),
        // Only the emulator prints.
        Op::Print => Rule::Values(vec![]),
        Op::Sleep => step("nanosleep.u32", [x.value(0)]),
        Op::BarrierSync { threads } => step("bar.sync", [x.value(0), Number((*threads).into())]),
        Op::BarrierArrive { threads } => {
            step("bar.arrive", [x.value(0), Number((*threads).into())])
        }
        Op::WarpSync => step("bar.warp.sync", [Number(ALL_LANES)]),
        Op::ClusterArrive { relaxed: true } => step("barrier.cluster.arrive.relaxed.aligned", []),
        Op::ClusterArrive { relaxed: false } => step("barrier.cluster.arrive.release.aligned", []),
        Op::ClusterWait => step("barrier.cluster.wait.acquire.aligned", []),
        Op::GridDependencyWait => step("griddepcontrol.wait", []),
        Op::GridDependencyLaunch => step("griddepcontrol.launch_dependents", []),
        Op::PrefetchLine => step("prefetch.global.L2", [x.address(0)]),

        Op::PrefetchMap => step("prefetch.tensormap", [x.address(0)]),
        Op::TmaLoad { rank, im2col, multicast, policy } => {
            Rule::Step(tensor::load(x, (*rank, *im2col), *multicast, *policy))
        }
        Op::TmaStore { rank, policy } => Rule::Step(tensor::store(x, None, *rank, *policy)),
        Op::TmaReduce { op, rank, policy } => {
            Rule::Step(tensor::store(x, Some(*op), *rank, *policy))
        }
        Op::BulkLoad { multicast, policy } => Rule::Step(tensor::bulk_load(x, *multicast, *policy)),
        Op::BulkStore { policy } => Rule::Step(tensor::bulk_store(x, None, *policy)),
        Op::BulkReduce { op, element, policy } => {
            Rule::Step(tensor::bulk_store(x, Some((*op, *element)), *policy))
        }
        Op::TmaPrefetch { rank, im2col, policy } => {
            Rule::Step(tensor::prefetch(x, (*rank, *im2col), *policy))
        }
        Op::BulkCommit => step("cp.async.bulk.commit_group", []),
        Op::BulkWait { pending, read: true } => {
            step("cp.async.bulk.wait_group.read", [Number((*pending).into())])
        }
        Op::BulkWait { pending, read: false } => {
            step("cp.async.bulk.wait_group", [Number((*pending).into())])
        }

        Op::WgmmaFence => step("wgmma.fence.sync.aligned", []),
        Op::Wgmma(wgmma) => Rule::Step(tensor::wgmma(x, wgmma)),
        Op::WgmmaCommit => step("wgmma.commit_group.sync.aligned", []),
        Op::WgmmaWait { pending } => {
            step("wgmma.wait_group.sync.aligned", [Number((*pending).into())])
        }
        Op::WarpMma(mma) => Rule::Step(tensor::warp_mma(x, mma)),

        Op::SetMaxRegisters { count, change: RegisterChange::Increase } => {
            step("setmaxnreg.inc.sync.aligned.u32", [Number((*count).into())])
        }
        Op::SetMaxRegisters { count, change: RegisterChange::Decrease } => {
            step("setmaxnreg.dec.sync.aligned.u32", [Number((*count).into())])
        }
        Op::For | Op::While | Op::If | Op::Roles(_) | Op::Yield => Rule::Control,
    }
}

/// Results of a load: a list in braces, or one register.
fn vector(count: u32, result: impl Fn() -> Expected) -> Expected {
    braced((0..count).map(|_| result()).collect())
}

/// Braces around more than one operand.
fn braced(mut list: Vec<Expected>) -> Expected {
    if list.len() == 1 { list.remove(0) } else { Expected::List(list) }
}

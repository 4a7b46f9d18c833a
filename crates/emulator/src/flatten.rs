//! Flattens a kernel's tree of blocks to a list of steps, in which each value still has a place of
//! its own.

use pgemm_ir::{
    Access, BinaryOp, Block, CompareOp, Element, Inst, Kernel, LocId, Op, Order, ReductionOp,
    Scope, Space, Type, ValueId, Wgmma,
};

use crate::collective::Collective;
use crate::error::SetupError;
use crate::program::CustomStep;
use crate::program::{
    BulkLoad, SMEM_BASE, Slot, Step, TmaLoad, Update, WEAK_WORD, WarpMmaStep, WgmmaStep,
};
use crate::value::Function;
use crate::{loaded, uniform};

/// A flat kernel.
pub(crate) struct Flat {
    pub(crate) steps: Vec<Step>,
    pub(crate) locations: Vec<LocId>,
    pub(crate) constants: Vec<u64>,
    /// First and last step of each loop.
    pub(crate) loops: Vec<(usize, usize)>,
    /// Number of values that are registers of A of a wgmma.
    pub(crate) fragments: usize,
}

/// Flattens a legalised kernel; `constants` starts with its parameters.
pub(crate) fn flatten(kernel: &Kernel, constants: Vec<u64>) -> Result<Flat, SetupError> {
    let uniform = uniform::analyse(kernel);
    let mut fragments = vec![None; kernel.values.len()];
    let mut fragment_count = 0;
    kernel.visit(&mut |inst| {
        for value in inst.fragments() {
            fragments[value.index()].get_or_insert_with(|| {
                fragment_count += 1;
                fragment_count - 1
            });
        }
    });
    let mut flatten = Flatten {
        kernel,
        places: (0..kernel.values.len() as u32)
            .map(|value| match uniform[value as usize] {
                true => Slot::Uniform(value),
                false => Slot::Varying(value),
            })
            .collect(),
        next: kernel.values.len() as u32,
        fragments,
        loaded: loaded::analyse(kernel),
        steps: Vec::new(),
        locations: Vec::new(),
        constants,
        loops: Vec::new(),
    };
    flatten.block(&kernel.body)?;
    flatten.push(Step::Exit, kernel.body.insts.last().map_or(LocId(0), |inst| inst.loc));
    let Flatten { steps, locations, constants, loops, .. } = flatten;
    Ok(Flat { steps, locations, constants, loops, fragments: fragment_count as usize })
}

struct Flatten<'k> {
    kernel: &'k Kernel,
    /// By value.
    places: Vec<Slot>,
    next: u32,
    /// By value: its number among the registers of A.
    fragments: Vec<Option<u32>>,
    /// By value: whether it is computed from loads of shared memory.
    loaded: Vec<bool>,
    steps: Vec<Step>,
    locations: Vec<LocId>,
    constants: Vec<u64>,
    /// First and last step of each loop.
    loops: Vec<(usize, usize)>,
}

impl Flatten<'_> {
    fn push(&mut self, step: Step, loc: LocId) -> usize {
        self.steps.push(step);
        self.locations.push(loc);
        self.steps.len() - 1
    }

    fn here(&self) -> u32 {
        self.steps.len() as u32
    }

    fn constant(&mut self, bits: u64) -> Slot {
        self.constants.push(bits);
        Slot::Constant(self.constants.len() as u32 - 1)
    }

    fn place(&self, value: ValueId) -> Slot {
        self.places[value.index()]
    }

    fn place_all(&self, values: &[ValueId]) -> Box<[Slot]> {
        values.iter().map(|&value| self.place(value)).collect()
    }

    /// Notes that fragments among `values` were written.
    fn touch(&mut self, values: &[ValueId], loc: LocId) {
        let touched: Box<[u32]> =
            values.iter().filter_map(|value| self.fragments[value.index()]).collect();
        if !touched.is_empty() {
            self.push(Step::TouchFragments(touched), loc);
        }
    }

    fn copy(&mut self, from: &[ValueId], to: &[ValueId], loc: LocId) {
        let pairs: Box<[_]> = from
            .iter()
            .zip(to)
            .map(|(&from, &to)| (self.place(from), self.place(to)))
            .filter(|(from, to)| from != to)
            .collect();
        if !pairs.is_empty() {
            self.push(Step::Copy(pairs), loc);
        }
        self.touch(to, loc);
    }

    /// Flattens a block without its `Yield` and returns what it yields.
    fn block<'b>(&mut self, block: &'b Block) -> Result<&'b [ValueId], SetupError> {
        for inst in &block.insts {
            if inst.op == Op::Yield {
                return Ok(&inst.args);
            }
            self.inst(inst)?;
        }
        Ok(&[])
    }

    fn for_loop(&mut self, inst: &Inst) -> Result<(), SetupError> {
        let (loc, body) = (inst.loc, &inst.blocks[0]);
        let [begin, end, step] = [0, 1, 2].map(|i| self.place(inst.args[i]));
        let (index, carried) = (body.params[0], &body.params[1..]);
        self.share(carried, &inst.results);
        self.copy(&inst.args[3..], carried, loc);
        let index = self.place(index);
        self.push(Step::Copy([(begin, index)].into()), loc);
        let condition = match (index, end) {
            (Slot::Varying(_), _) | (_, Slot::Varying(_)) => Slot::Varying(self.next),
            _ => Slot::Uniform(self.next),
        };
        self.next += 1;
        // If the step varies, so does the index.
        let divergent = matches!(condition, Slot::Varying(_));
        if divergent {
            self.push(Step::EnterLoop, loc);
        }
        let head = self.here();
        let compare = Function::Compare(CompareOp::Lt, Type::U32);
        let zero = self.constant(0);
        self.push(
            Step::Evaluate { function: compare, args: [index, end, zero], dest: condition },
            loc,
        );
        let test = self.push(Step::LoopTest { condition, exit: 0 }, loc);
        let outs = self.block(body)?;
        self.copy(outs, carried, loc);
        let add = Function::Binary(BinaryOp::Add, Type::U32);
        self.push(Step::Evaluate { function: add, args: [index, step, zero], dest: index }, loc);
        self.close_loop(head, test, divergent, condition, loc);
        Ok(())
    }

    fn while_loop(&mut self, inst: &Inst) -> Result<(), SetupError> {
        let (loc, test_block, body) = (inst.loc, &inst.blocks[0], &inst.blocks[1]);
        self.share(&test_block.params, &body.params);
        self.share(&test_block.params, &inst.results);
        self.copy(&inst.args, &test_block.params, loc);
        let entry = self.push(Step::EnterLoop, loc);
        let head = self.here();
        let condition = self.block(test_block)?[0];
        let condition = self.place(condition);
        let divergent = matches!(condition, Slot::Varying(_));
        if !divergent {
            self.steps[entry] = Step::Copy([].into());
        }
        let test = self.push(Step::LoopTest { condition, exit: 0 }, loc);
        let outs = self.block(body)?;
        self.copy(outs, &test_block.params, loc);
        self.close_loop(head, test, divergent, condition, loc);
        Ok(())
    }

    fn close_loop(&mut self, head: u32, test: usize, divergent: bool, condition: Slot, loc: LocId) {
        let back = self.push(Step::Jump(head), loc);
        self.loops.push((head as usize, back));
        self.steps[test] = Step::LoopTest { condition, exit: self.here() };
        if divergent {
            self.push(Step::ExitLoop, loc);
        }
    }

    fn branch(&mut self, inst: &Inst) -> Result<(), SetupError> {
        let (loc, condition) = (inst.loc, self.place(inst.args[0]));
        let divergent = matches!(condition, Slot::Varying(_));
        let test = self.push(Step::Exit, loc);
        let outs = self.block(&inst.blocks[0])?;
        self.copy(outs, &inst.results, loc);
        let middle = self.push(Step::Exit, loc);
        let otherwise = self.here();
        let outs = self.block(&inst.blocks[1])?;
        self.copy(outs, &inst.results, loc);
        let end = self.here();
        if divergent {
            self.steps[test] = Step::Split { condition, otherwise: middle as u32 };
            self.steps[middle] = Step::Else { end };
            self.push(Step::EndSplit, loc);
        } else {
            self.steps[test] = Step::Branch { condition, otherwise };
            self.steps[middle] = Step::Jump(end);
        }
        Ok(())
    }

    /// Gives `others` the places of `values`.
    fn share(&mut self, values: &[ValueId], others: &[ValueId]) {
        for (&value, &other) in values.iter().zip(others) {
            self.places[other.index()] = self.place(value);
        }
    }

    /// Flattens one instruction. Every operation is listed: a new one does not compile until the
    /// emulator runs it.
    fn inst(&mut self, inst: &Inst) -> Result<(), SetupError> {
        let loc = inst.loc;
        let arg = |index: usize| self.place(inst.args[index]);
        let ty = |index: usize| self.kernel.ty(inst.args[index]);
        let pure = |function: Function| {
            let unused = Slot::Constant(0);
            let mut args = [inst.args.first().map_or(unused, |&value| self.place(value)); 3];
            for (arg, &value) in args.iter_mut().zip(&inst.args) {
                *arg = self.place(value);
            }
            Step::Evaluate { function, args, dest: self.place(inst.results[0]) }
        };
        let dest = || self.place(inst.results[0]);
        let atomic = |update: Update, (space, order, scope): (Space, Order, Scope)| Step::Atomic {
            update,
            access: Access { space, ty: ty(1), order, scope, ..WEAK_WORD },
            address: arg(0),
            values: self.place_all(&inst.args[1..]),
            dest: dest(),
            loaded: inst.args[1..].iter().any(|value| self.loaded[value.index()]),
        };
        let tma_store = |rank: u32, reduction: Option<ReductionOp>| Step::TmaStore {
            map: arg(0),
            source: arg(1),
            coordinates: self.place_all(&inst.args[2..2 + rank as usize]),
            reduction,
        };
        let bulk_store = |reduction: Option<(ReductionOp, Element)>| Step::BulkStore {
            destination: arg(0),
            source: arg(1),
            bytes: arg(2),
            reduction,
        };
        let collective = |collective: Collective| {
            let value = self.place(inst.args[0]);
            let amount = inst.args.get(1).map_or(value, |&amount| self.place(amount));
            Step::Collective { collective, args: [value, amount], dest: dest() }
        };
        let step = match &inst.op {
            Op::Roles(_) => {
                return Err(SetupError::NotLegalised {
                    location: self.kernel.location(loc).clone(),
                });
            }
            Op::For => return self.for_loop(inst),
            Op::While => return self.while_loop(inst),
            Op::If => return self.branch(inst),
            // The block ends before it.
            Op::Yield => return Ok(()),
            Op::Const(constant) => {
                self.places[inst.results[0].index()] = self.constant(constant.bits());
                self.touch(&inst.results, loc);
                return Ok(());
            }
            Op::Param(param) | Op::MapParam(param) => {
                self.places[inst.results[0].index()] = Slot::Constant(param.0);
                return Ok(());
            }
            Op::SmemAddress(region) => {
                let address = SMEM_BASE + self.kernel.region(*region).offset;
                self.places[inst.results[0].index()] = self.constant(u64::from(address));
                return Ok(());
            }
            // The emulator has no other grids.
            Op::GridDependencyLaunch => return Ok(()),
            Op::PrefetchLine => Step::PrefetchLine { address: arg(0) },
            Op::Special(special) => Step::Special { special: *special, dest: dest() },
            Op::Unary(op) => pure(Function::Unary(*op, ty(0))),
            Op::Binary(op) => pure(Function::Binary(*op, ty(0))),
            Op::Fma => pure(Function::Fma(ty(0))),
            Op::Compare(op) => pure(Function::Compare(*op, ty(0))),
            Op::Select => pure(Function::Select),
            Op::Convert(to) => pure(Function::Convert(ty(0), *to)),
            Op::Bitcast(_) | Op::MapAt => pure(Function::Copy),
            Op::Pack(element) => pure(Function::Pack(*element)),
            Op::Unpack(element, half) => pure(Function::Unpack(*element, *half)),
            Op::PermuteBytes => pure(Function::PermuteBytes),
            Op::SmemOffset => pure(Function::Binary(BinaryOp::Add, Type::U32)),
            Op::MapShared => pure(Function::MapShared),
            Op::Descriptor(layout) => pure(Function::Descriptor(*layout)),
            Op::DescriptorAdvance(bytes) => pure(Function::DescriptorAdvance(*bytes)),
            Op::Clock => Step::Clock { dest: dest() },
            Op::Elect => Step::Elect { dest: dest() },
            Op::AccGet(acc, index) => Step::AccGet { acc: *acc, index: *index, dest: dest() },
            Op::AccSet(acc, index) => Step::AccSet { acc: *acc, index: *index, value: arg(0) },
            Op::Load(access) => Step::Load {
                access: *access,
                size: access.ty.bytes().unwrap_or(4),
                address: arg(0),
                dests: self.place_all(&inst.results),
            },
            Op::Store(access) => Step::Store {
                access: *access,
                size: access.ty.bytes().unwrap_or(4),
                address: arg(0),
                values: self.place_all(&inst.args[1..]),
            },
            Op::ShuffleFirst | Op::AssumeUniform => collective(Collective::First),
            Op::Shuffle { shuffle, width } => collective(Collective::Shuffle(*shuffle, *width)),
            Op::Vote(vote) => collective(Collective::Vote(*vote)),
            Op::Ballot => collective(Collective::Ballot),
            Op::Match => collective(Collective::Match),
            Op::WarpReduce(op) => collective(Collective::Reduce(*op, ty(0))),
            Op::Atomic { op, space, order, scope } => {
                atomic(Update::Op(*op), (*space, *order, *scope))
            }
            Op::CompareExchange { space, order, scope } => {
                atomic(Update::CompareExchange, (*space, *order, *scope))
            }
            Op::Reduce { .. } => {
                Step::Reduce { address: arg(0), values: self.place_all(&inst.args[1..]) }
            }
            // A binary32 moves as a word.
            Op::LoadElement(element) if element.bits() == 32 => Step::Load {
                access: WEAK_WORD,
                size: 4,
                address: arg(0),
                dests: self.place_all(&inst.results),
            },
            Op::StoreElement(element) if element.bits() == 32 => Step::Store {
                access: WEAK_WORD,
                size: 4,
                address: arg(0),
                values: self.place_all(&inst.args[1..]),
            },
            Op::LoadElement(element) => {
                Step::LoadElement { element: *element, address: arg(0), dest: dest() }
            }
            Op::StoreElement(element) => {
                Step::StoreElement { element: *element, address: arg(0), value: arg(1) }
            }
            Op::LoadNarrow { space, bytes } => Step::Load {
                access: Access { space: *space, ..WEAK_WORD },
                size: *bytes,
                address: arg(0),
                dests: self.place_all(&inst.results),
            },
            Op::StoreNarrow { space, bytes } => Step::Store {
                access: Access { space: *space, ..WEAK_WORD },
                size: *bytes,
                address: arg(0),
                values: self.place_all(&inst.args[1..]),
            },
            Op::LoadMatrix { transpose, .. } => Step::LoadMatrix {
                transpose: *transpose,
                address: arg(0),
                dests: self.place_all(&inst.results),
            },
            Op::StoreMatrix { transpose, .. } => Step::StoreMatrix {
                transpose: *transpose,
                address: arg(0),
                values: self.place_all(&inst.args[1..]),
            },
            Op::MbarrierInit { count } => Step::MbarrierInit { address: arg(0), count: *count },
            Op::MbarrierArrive => Step::MbarrierArrive { address: arg(0) },
            Op::MbarrierArriveExpect { bytes } => {
                Step::MbarrierArriveExpect { address: arg(0), bytes: *bytes }
            }
            Op::MbarrierArriveCluster => Step::MbarrierArriveCluster { address: arg(0) },
            Op::MbarrierWait => Step::MbarrierWait { address: arg(0), parity: arg(1) },
            Op::FenceMbarrierInit => Step::FenceMbarrierInit,
            Op::FenceProxy(fence) => Step::FenceProxy(*fence),
            Op::Fence(order, scope) => Step::Fence(*order, *scope),
            Op::FenceMapRelease(_) => Step::FenceMapRelease,
            Op::FenceMapAcquire(scope) => Step::FenceMapAcquire { map: arg(0), scope: *scope },
            Op::Sleep => Step::Sleep,
            Op::Custom(instruction) => {
                let Some(emulation) = instruction.emulation() else {
                    let location = self.kernel.location(loc).clone();
                    let name = instruction.name().to_owned();
                    return Err(SetupError::NoEmulation { name, location });
                };
                Step::Custom(Box::new(CustomStep {
                    instruction: instruction.clone(),
                    emulation: emulation.clone(),
                    args: self.place_all(&inst.args),
                    dests: self.place_all(&inst.results),
                }))
            }
            Op::Trap => Step::Trap,
            Op::Print => Step::Print { value: arg(0), ty: ty(0) },
            Op::BarrierSync { threads } => Step::BarrierSync { id: arg(0), threads: *threads },
            Op::BarrierArrive { threads } => Step::BarrierArrive { id: arg(0), threads: *threads },
            Op::ClusterArrive { relaxed } => Step::ClusterArrive { relaxed: *relaxed },
            Op::ClusterWait => Step::ClusterWait,
            Op::WarpSync => Step::WarpSync,
            Op::GridDependencyWait => Step::GridDependencyWait,
            Op::PrefetchMap => Step::PrefetchMap { map: arg(0) },
            // Cache policies change no value.
            Op::TmaLoad { rank, im2col, multicast, .. } => {
                let offsets = 3 + *rank as usize;
                let end = offsets + if *im2col { rank.saturating_sub(2) as usize } else { 0 };
                Step::TmaLoad(Box::new(TmaLoad {
                    map: arg(0),
                    destination: arg(1),
                    barrier: arg(2),
                    coordinates: self.place_all(&inst.args[3..offsets]),
                    offsets: self.place_all(&inst.args[offsets..end]),
                    mask: multicast.then(|| arg(end)),
                }))
            }
            Op::TmaStore { rank, .. } => tma_store(*rank, None),
            Op::TmaReduce { op, rank, .. } => tma_store(*rank, Some(*op)),
            Op::BulkLoad { multicast, .. } => Step::BulkLoad(Box::new(BulkLoad {
                source: arg(0),
                destination: arg(1),
                barrier: arg(2),
                bytes: arg(3),
                mask: multicast.then(|| arg(4)),
            })),
            Op::BulkStore { .. } => bulk_store(None),
            Op::BulkReduce { op, element, .. } => bulk_store(Some((*op, *element))),
            // No value changes, so only the number of dimensions is checked.
            Op::TmaPrefetch { rank, im2col, .. } => {
                Step::TmaPrefetch { map: arg(0), coordinates: *rank, im2col: *im2col }
            }
            Op::CopyAsync { bytes } => {
                Step::CopyAsync { bytes: *bytes, args: [arg(0), arg(1), arg(2)] }
            }
            Op::CopyCommit => Step::CopyCommit,
            Op::CopyWait { pending } => Step::CopyWait { pending: *pending },
            Op::CopyArrive => Step::CopyArrive { address: arg(0) },
            Op::BulkCommit => Step::BulkCommit,
            Op::BulkWait { pending, read } => Step::BulkWait { pending: *pending, read: *read },
            Op::WgmmaFence => Step::WgmmaFence,
            Op::Wgmma(op) => {
                let b = inst.args.len() - 2;
                let fragments = inst.fragments().iter();
                Step::Wgmma(Box::new(WgmmaStep {
                    op: *op,
                    misuse: misuse(self.kernel, inst, op),
                    a: self.place_all(&inst.args[..b]),
                    fragments: fragments.filter_map(|v| self.fragments[v.index()]).collect(),
                    b: arg(b),
                    accumulate: arg(b + 1),
                }))
            }
            Op::WgmmaCommit => Step::WgmmaCommit,
            Op::WgmmaWait { pending } => Step::WgmmaWait { pending: *pending },
            Op::WarpMma(mma) => {
                let (args, results) = (self.place_all(&inst.args), self.place_all(&inst.results));
                Step::WarpMma(Box::new(WarpMmaStep::new(mma, &args, &results)))
            }
            Op::SetMaxRegisters { count, change } => {
                Step::SetMaxRegisters { count: *count, change: *change }
            }
        };
        self.push(step, loc);
        self.touch(&inst.results, loc);
        Ok(())
    }
}

/// The reason why the hardware has no such wgmma, if it has none.
fn misuse(kernel: &Kernel, inst: &Inst, op: &Wgmma) -> Option<String> {
    if let Some(error) = inst.op.attribute_errors().first() {
        return Some(error.to_string());
    }
    let group = kernel.accumulator(op.acc);
    let fits = group.columns() == op.n && op.a.accumulators_with(op.b).contains(&group.ty);
    let message =
        || format!("n = {} and {} inputs do not fit the registers of {}", op.n, op.a, op.acc);
    (!fits).then(message)
}

//! The flat form that warps execute: a kernel's tree of blocks as a list of steps with jumps, so that a warp can stop
//! before any step and go on later. Values live in slots: one number where they are the same in all lanes of a warp.

use pgemm_ir::{
    AccId, Access, Argument, Block, Inst, Kernel, Launch, LocId, Op, Order, ParamKind, ProxyFence,
    RegionKind, Scope, Special, TensorMapArgument, TensorMapSpec, Type, ValueId, Wgmma,
};

use crate::error::SetupError;
use crate::slots;
use crate::uniform;
use crate::value::Function;

/// Where shared memory starts: the hardware keeps the first KiB for itself.
pub(crate) const SMEM_BASE: u32 = 1024;

/// Where a value lives. While compiling, the number of a value; afterwards, of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// In the program's table.
    Constant(u32),
    /// The same in all lanes.
    Uniform(u32),
    /// One value for each lane.
    Varying(u32),
}

/// One operation of a warp.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Evaluate {
        function: Function,
        args: [Slot; 3],
        dest: Slot,
    },
    Special {
        special: Special,
        dest: Slot,
    },
    Elect {
        dest: Slot,
    },
    AccGet {
        acc: AccId,
        index: u32,
        dest: Slot,
    },
    /// Copies in the active lanes, all reads before all writes.
    Copy(Box<[(Slot, Slot)]>),
    /// These registers, fragments of a later wgmma, were just written.
    TouchFragments(Box<[u32]>),

    Jump(u32),
    /// Goes on where the uniform condition holds, else jumps.
    Branch {
        condition: Slot,
        otherwise: u32,
    },
    /// Splits the active lanes.
    Split {
        condition: Slot,
        otherwise: u32,
    },
    /// Turns to the other lanes of the split.
    Else {
        end: u32,
    },
    EndSplit,
    EnterLoop,
    /// Leaves with the lanes whose condition does not hold.
    LoopTest {
        condition: Slot,
        exit: u32,
    },
    ExitLoop,
    Exit,

    Load {
        access: Access,
        address: Slot,
        dests: Box<[Slot]>,
    },
    Store {
        access: Access,
        address: Slot,
        values: Box<[Slot]>,
    },
    LoadMatrix {
        transpose: bool,
        address: Slot,
        dests: Box<[Slot]>,
    },
    StoreMatrix {
        transpose: bool,
        address: Slot,
        values: Box<[Slot]>,
    },

    MbarrierInit {
        address: Slot,
        count: u32,
    },
    MbarrierArrive {
        address: Slot,
    },
    MbarrierArriveExpect {
        address: Slot,
        bytes: u32,
    },
    MbarrierArriveCluster {
        address: Slot,
    },
    MbarrierWait {
        address: Slot,
        parity: Slot,
    },
    FenceMbarrierInit,
    FenceProxy(ProxyFence),
    Fence(Order, Scope),
    BarrierSync {
        id: Slot,
        threads: u32,
    },
    BarrierArrive {
        id: Slot,
        threads: u32,
    },
    ClusterArrive {
        relaxed: bool,
    },
    ClusterWait,

    PrefetchMap {
        map: Slot,
    },
    TmaLoad(Box<TmaLoad>),
    TmaStore {
        map: Slot,
        source: Slot,
        coordinates: Box<[Slot]>,
    },
    BulkCommit,
    BulkWait {
        pending: u32,
        read: bool,
    },

    WgmmaFence,
    Wgmma(Box<WgmmaStep>),
    WgmmaCommit,
    WgmmaWait {
        pending: u32,
    },
    SetMaxRegisters {
        count: u32,
        increase: bool,
    },
}

/// The operands of a TMA load.
#[derive(Clone, Debug)]
pub(crate) struct TmaLoad {
    pub(crate) map: Slot,
    pub(crate) destination: Slot,
    pub(crate) barrier: Slot,
    pub(crate) coordinates: Box<[Slot]>,
    pub(crate) mask: Option<Slot>,
}

/// The operands of a wgmma.
#[derive(Clone, Debug)]
pub(crate) struct WgmmaStep {
    pub(crate) op: Wgmma,
    /// One descriptor or four registers.
    pub(crate) a: Box<[Slot]>,
    /// Numbers of the registers of A among all fragments of the kernel.
    pub(crate) fragments: Box<[u32]>,
    pub(crate) b: Slot,
    pub(crate) accumulate: Slot,
}

impl Step {
    /// Calls `visit` for every slot, with whether it is written.
    pub(crate) fn visit_slots(&mut self, visit: &mut dyn FnMut(&mut Slot, bool)) {
        match self {
            Step::Evaluate { args, dest, .. } => {
                args.iter_mut().for_each(|arg| visit(arg, false));
                visit(dest, true);
            }
            Step::Special { dest, .. } | Step::Elect { dest } | Step::AccGet { dest, .. } => {
                visit(dest, true);
            }
            Step::Copy(pairs) => {
                for (from, to) in pairs.iter_mut() {
                    visit(from, false);
                    visit(to, true);
                }
            }
            Step::Branch { condition, .. }
            | Step::Split { condition, .. }
            | Step::LoopTest { condition, .. } => visit(condition, false),
            Step::Load { address, dests, .. } | Step::LoadMatrix { address, dests, .. } => {
                visit(address, false);
                dests.iter_mut().for_each(|dest| visit(dest, true));
            }
            Step::Store { address, values, .. } | Step::StoreMatrix { address, values, .. } => {
                visit(address, false);
                values.iter_mut().for_each(|value| visit(value, false));
            }
            Step::MbarrierInit { address, .. }
            | Step::MbarrierArrive { address }
            | Step::MbarrierArriveExpect { address, .. }
            | Step::MbarrierArriveCluster { address } => visit(address, false),
            Step::MbarrierWait { address, parity } => {
                visit(address, false);
                visit(parity, false);
            }
            Step::BarrierSync { id, .. } | Step::BarrierArrive { id, .. } => visit(id, false),
            Step::PrefetchMap { map } => visit(map, false),
            Step::TmaLoad(load) => {
                visit(&mut load.map, false);
                visit(&mut load.destination, false);
                visit(&mut load.barrier, false);
                load.coordinates.iter_mut().chain(&mut load.mask).for_each(|s| visit(s, false));
            }
            Step::TmaStore { map, source, coordinates } => {
                visit(map, false);
                visit(source, false);
                coordinates.iter_mut().for_each(|slot| visit(slot, false));
            }
            Step::Wgmma(wgmma) => {
                wgmma.a.iter_mut().for_each(|slot| visit(slot, false));
                visit(&mut wgmma.b, false);
                visit(&mut wgmma.accumulate, false);
            }
            Step::TouchFragments(_)
            | Step::Jump(_)
            | Step::Else { .. }
            | Step::EndSplit
            | Step::EnterLoop
            | Step::ExitLoop
            | Step::Exit
            | Step::FenceMbarrierInit
            | Step::FenceProxy(_)
            | Step::Fence(..)
            | Step::ClusterArrive { .. }
            | Step::ClusterWait
            | Step::BulkCommit
            | Step::BulkWait { .. }
            | Step::WgmmaFence
            | Step::WgmmaCommit
            | Step::WgmmaWait { .. }
            | Step::SetMaxRegisters { .. } => {}
        }
    }
}

/// A tensor map as the emulator reads it.
#[derive(Clone, Debug)]
pub(crate) struct TensorMap {
    pub(crate) name: String,
    pub(crate) spec: TensorMapSpec,
    pub(crate) argument: TensorMapArgument,
}

/// A kernel with its arguments, ready to run.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
    pub(crate) locations: Vec<LocId>,
    pub(crate) constants: Vec<u64>,
    pub(crate) uniform_slots: usize,
    pub(crate) varying_slots: usize,
    pub(crate) fragments: usize,
    /// By parameter.
    pub(crate) maps: Vec<Option<TensorMap>>,
    /// First byte and number of the mbarriers of each region, by address.
    pub(crate) mbarriers: Vec<(u32, u32)>,
}

impl Program {
    /// Flattens a legalised kernel and binds the launch's arguments.
    pub(crate) fn compile(kernel: &Kernel, launch: &Launch) -> Result<Program, SetupError> {
        if kernel.params.len() != launch.arguments.len() {
            return Err(SetupError::ArgumentCount {
                asked: launch.arguments.len(),
                parameters: kernel.params.len(),
            });
        }
        let mut constants = Vec::new();
        let mut maps = Vec::new();
        for (index, (param, argument)) in kernel.params.iter().zip(&launch.arguments).enumerate() {
            let mut map = None;
            constants.push(match (&param.kind, argument) {
                (ParamKind::Scalar(Type::U32), Argument::U32(value)) => u64::from(*value),
                (ParamKind::Scalar(Type::U64), Argument::U64(value)) => *value,
                (ParamKind::Scalar(Type::F32), Argument::F32(value)) => u64::from(value.to_bits()),
                (ParamKind::TensorMap(spec), Argument::TensorMap(argument)) => {
                    check_map(&param.name, spec, argument)?;
                    map = Some(TensorMap {
                        name: param.name.clone(),
                        spec: spec.clone(),
                        argument: argument.clone(),
                    });
                    index as u64
                }
                _ => return Err(SetupError::ArgumentType { name: param.name.clone() }),
            });
            maps.push(map);
        }

        let uniform = uniform::analyse(kernel);
        let mut fragments = vec![None; kernel.values.len()];
        let mut fragment_count = 0;
        kernel.visit(&mut |inst| {
            if let Op::Wgmma(op) = &inst.op
                && op.a_source == pgemm_ir::ASource::Registers
            {
                for value in inst.args.iter().take(4) {
                    fragments[value.index()].get_or_insert_with(|| {
                        fragment_count += 1;
                        fragment_count - 1
                    });
                }
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
            steps: Vec::new(),
            locations: Vec::new(),
            constants,
            loops: Vec::new(),
        };
        flatten.block(&kernel.body)?;
        flatten.push(Step::Exit, kernel.body.insts.last().map_or(LocId(0), |inst| inst.loc));
        let Flatten { mut steps, locations, constants, loops, .. } = flatten;
        let (uniform_slots, varying_slots) = slots::assign(&mut steps, &loops);
        let mut mbarriers: Vec<_> = kernel
            .regions
            .iter()
            .filter(|region| region.kind == RegionKind::Mbarrier)
            .map(|region| (SMEM_BASE + region.offset, region.bytes / 8))
            .collect();
        mbarriers.sort_unstable();
        Ok(Program {
            steps,
            locations,
            constants,
            uniform_slots,
            varying_slots,
            fragments: fragment_count as usize,
            maps,
            mbarriers,
        })
    }
}

fn check_map(
    name: &str,
    spec: &TensorMapSpec,
    argument: &TensorMapArgument,
) -> Result<(), SetupError> {
    let rank = spec.rank();
    let element = u64::from(spec.element.bytes());
    let inner = spec.box_extents.first().map_or(0, |&extent| u64::from(extent) * element);
    let rule = if !(1..=5).contains(&rank) {
        "its rank must be 1 to 5"
    } else if argument.extents.len() != rank || argument.strides.len() != rank - 1 {
        "it needs as many extents as its box has dimensions, and one stride fewer"
    } else if argument.address % 16 != 0 || argument.strides.iter().any(|stride| stride % 16 != 0) {
        "its address and strides must be multiples of 16 bytes"
    } else if spec.box_extents.iter().any(|extent| !(1..=256).contains(extent)) {
        "its box extents must be 1 to 256"
    } else if argument.extents.iter().any(|&extent| extent == 0 || extent > 1 << 32) {
        "its extents must be 1 to 2^32"
    } else if argument.strides.iter().any(|&stride| stride >= 1 << 40) {
        "its strides must be less than 2^40 bytes"
    } else if inner % 16 != 0 {
        "the innermost extent of its box must be a multiple of 16 bytes"
    } else if spec.swizzle.span_bytes().is_some_and(|span| inner > u64::from(span)) {
        "the innermost extent of its box must not exceed the swizzle span"
    } else {
        return Ok(());
    };
    Err(SetupError::TensorMap { name: name.to_owned(), rule })
}

struct Flatten<'k> {
    kernel: &'k Kernel,
    /// By value.
    places: Vec<Slot>,
    next: u32,
    /// By value: its number among the registers of A.
    fragments: Vec<Option<u32>>,
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

    /// Says that fragments among `values` were written.
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

    fn inst(&mut self, inst: &Inst) -> Result<(), SetupError> {
        let loc = inst.loc;
        match &inst.op {
            Op::Roles(_) => {
                return Err(SetupError::NotLegalised {
                    location: self.kernel.location(loc).clone(),
                });
            }
            Op::For => self.for_loop(inst)?,
            Op::While => self.while_loop(inst)?,
            Op::If => self.branch(inst)?,
            Op::Const(constant) => {
                self.places[inst.results[0].index()] = self.constant(constant.bits());
                self.touch(&inst.results, loc);
            }
            Op::Param(param) | Op::MapParam(param) => {
                self.places[inst.results[0].index()] = Slot::Constant(param.0);
            }
            Op::SmemAddress(region) => {
                let address = SMEM_BASE + self.kernel.region(*region).offset;
                self.places[inst.results[0].index()] = self.constant(u64::from(address));
            }
            _ => {
                let step = self.step(inst);
                self.push(step, loc);
                self.touch(&inst.results, loc);
            }
        }
        Ok(())
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
        // The step too may vary, and then the index does.
        let divergent = matches!(condition, Slot::Varying(_));
        if divergent {
            self.push(Step::EnterLoop, loc);
        }
        let head = self.here();
        let compare = Function::Compare(pgemm_ir::CompareOp::Lt, Type::U32);
        let zero = self.constant(0);
        self.push(
            Step::Evaluate { function: compare, args: [index, end, zero], dest: condition },
            loc,
        );
        let test = self.push(Step::LoopTest { condition, exit: 0 }, loc);
        let outs = self.block(body)?;
        self.copy(outs, carried, loc);
        let add = Function::Binary(pgemm_ir::BinaryOp::Add, Type::U32);
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
        let condition = self.block(test_block)?.first().copied();
        let condition = condition
            .map(|value| self.place(value))
            .ok_or_else(|| SetupError::Malformed { location: self.kernel.location(loc).clone() })?;
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

    /// Lets `others` live where `values` do.
    fn share(&mut self, values: &[ValueId], others: &[ValueId]) {
        for (&value, &other) in values.iter().zip(others) {
            self.places[other.index()] = self.place(value);
        }
    }

    fn step(&mut self, inst: &Inst) -> Step {
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
        match &inst.op {
            Op::Special(special) => Step::Special { special: *special, dest: dest() },
            Op::Unary(op) => pure(Function::Unary(*op, ty(0))),
            Op::Binary(op) => pure(Function::Binary(*op, ty(0))),
            Op::Fma => pure(Function::Fma),
            Op::Compare(op) => pure(Function::Compare(*op, ty(0))),
            Op::Select => pure(Function::Select),
            Op::Convert(to) => pure(Function::Convert(ty(0), *to)),
            Op::Bitcast(_) => pure(Function::Copy),
            Op::Pack(element) => pure(Function::Pack(*element)),
            Op::Unpack(element, half) => pure(Function::Unpack(*element, *half)),
            Op::SmemOffset => pure(Function::Binary(pgemm_ir::BinaryOp::Add, Type::U32)),
            Op::MapShared => pure(Function::MapShared),
            Op::Descriptor(layout) => pure(Function::Descriptor(*layout)),
            Op::DescriptorAdvance(bytes) => pure(Function::DescriptorAdvance(*bytes)),
            Op::Elect => Step::Elect { dest: dest() },
            Op::AccGet(acc, index) => Step::AccGet { acc: *acc, index: *index, dest: dest() },
            Op::Load(access) => Step::Load {
                access: *access,
                address: arg(0),
                dests: self.place_all(&inst.results),
            },
            Op::Store(access) => Step::Store {
                access: *access,
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
            Op::BarrierSync { threads } => Step::BarrierSync { id: arg(0), threads: *threads },
            Op::BarrierArrive { threads } => Step::BarrierArrive { id: arg(0), threads: *threads },
            Op::ClusterArrive { relaxed } => Step::ClusterArrive { relaxed: *relaxed },
            Op::ClusterWait => Step::ClusterWait,
            Op::PrefetchMap => Step::PrefetchMap { map: arg(0) },
            Op::TmaLoad { rank, multicast } => {
                let end = 3 + *rank as usize;
                Step::TmaLoad(Box::new(TmaLoad {
                    map: arg(0),
                    destination: arg(1),
                    barrier: arg(2),
                    coordinates: self.place_all(&inst.args[3..end]),
                    mask: multicast.then(|| arg(end)),
                }))
            }
            Op::TmaStore { .. } => Step::TmaStore {
                map: arg(0),
                source: arg(1),
                coordinates: self.place_all(&inst.args[2..]),
            },
            Op::BulkCommit => Step::BulkCommit,
            Op::BulkWait { pending, read } => Step::BulkWait { pending: *pending, read: *read },
            Op::WgmmaFence => Step::WgmmaFence,
            Op::Wgmma(op) => {
                let registers = inst.args.len() - 2;
                let a = &inst.args[..registers];
                Step::Wgmma(Box::new(WgmmaStep {
                    op: *op,
                    a: self.place_all(a),
                    fragments: a.iter().filter_map(|v| self.fragments[v.index()]).collect(),
                    b: arg(registers),
                    accumulate: arg(registers + 1),
                }))
            }
            Op::WgmmaCommit => Step::WgmmaCommit,
            Op::WgmmaWait { pending } => Step::WgmmaWait { pending: *pending },
            Op::SetMaxRegisters { count, increase } => {
                Step::SetMaxRegisters { count: *count, increase: *increase }
            }
            Op::Const(_)
            | Op::Param(_)
            | Op::MapParam(_)
            | Op::SmemAddress(_)
            | Op::For
            | Op::While
            | Op::If
            | Op::Roles(_)
            | Op::Yield => unreachable!("handled by inst and block"),
        }
    }
}

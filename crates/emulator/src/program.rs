//! The flat form that warps execute: a kernel's tree of blocks as a list of steps with jumps, so
//! that a warp can stop before any step and go on later. Values are in slots. A value that is the
//! same in all lanes of a warp is one number.

use std::rc::Rc;

use pgemm_ir::{
    AccId, Access, AtomicOp, CustomEmulation, CustomInstruction, Element, LocId, Order, ProxyFence,
    ReductionOp, RegisterChange, Scope, Space, Special, TensorMapArgument, TensorMapSpec, Type,
    WarpMma, Wgmma,
};

use crate::collective::Collective;
use crate::lanes::LANES;
use crate::value::Function;

/// The first address of shared memory. The hardware keeps the KiB below.
pub(crate) const SMEM_BASE: u32 = 1024;

/// Address of the first parameter, if it is a tensor map. No allocation lies there; the addresses
/// of the others follow, one apart.
pub(crate) const PARAMETER_MAPS: u64 = 1 << 63;

/// A weak access of a word in global memory.
pub(crate) const WEAK_WORD: Access = Access {
    space: Space::Global,
    ty: Type::U32,
    vector: 1,
    order: Order::Weak,
    scope: Scope::Cta,
    once: false,
};

/// The place of a value. During compilation the number is that of the value, afterwards that of the
/// slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// In the program's table.
    Constant(u32),
    /// One value for all lanes.
    Uniform(u32),
    /// One value for each lane.
    Varying(u32),
}

/// What an atomic operation writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Update {
    /// What the operation computes from the old value and its own.
    Op(AtomicOp),
    /// The second value, if the old one is the first.
    CompareExchange,
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
    Clock {
        dest: Slot,
    },
    Elect {
        dest: Slot,
    },
    Collective {
        collective: Collective,
        /// The value, and the amount of a shuffle.
        args: [Slot; 2],
        dest: Slot,
    },
    Custom(Box<CustomStep>),
    AccGet {
        acc: AccId,
        index: u32,
        dest: Slot,
    },
    AccSet {
        acc: AccId,
        index: u32,
        value: Slot,
    },
    /// Copies in the active lanes, all reads before all writes.
    Copy(Box<[(Slot, Slot)]>),
    /// Notes that these registers of A of a later wgmma were written.
    TouchFragments(Box<[u32]>),

    Jump(u32),
    /// Goes on if the uniform condition holds, else jumps.
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
    /// Deactivates the lanes whose condition does not hold. Leaves the loop if none is left.
    LoopTest {
        condition: Slot,
        exit: u32,
    },
    ExitLoop,
    Exit,

    Load {
        access: Access,
        /// Bytes of each value.
        size: u32,
        address: Slot,
        dests: Box<[Slot]>,
    },
    Store {
        access: Access,
        /// Bytes of each value.
        size: u32,
        address: Slot,
        values: Box<[Slot]>,
    },
    Atomic {
        update: Update,
        access: Access,
        address: Slot,
        values: Box<[Slot]>,
        dest: Slot,
        /// Whether the value is computed from loads of shared memory.
        loaded: bool,
    },
    Reduce {
        address: Slot,
        values: Box<[Slot]>,
    },
    /// Loads an element of 16 or 8 bits.
    LoadElement {
        element: Element,
        address: Slot,
        dest: Slot,
    },
    /// Stores an element of 16 or 8 bits.
    StoreElement {
        element: Element,
        address: Slot,
        value: Slot,
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
    FenceMapRelease,
    FenceMapAcquire {
        map: Slot,
        scope: Scope,
    },
    Sleep,
    Trap,
    Print {
        value: Slot,
        ty: Type,
    },
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
    WarpSync,
    GridDependencyWait,

    PrefetchLine {
        address: Slot,
    },
    PrefetchMap {
        map: Slot,
    },
    TmaLoad(Box<TmaLoad>),
    TmaStore {
        map: Slot,
        source: Slot,
        coordinates: Box<[Slot]>,
        reduction: Option<ReductionOp>,
    },
    BulkLoad(Box<BulkLoad>),
    BulkStore {
        destination: Slot,
        source: Slot,
        bytes: Slot,
        reduction: Option<(ReductionOp, Element)>,
    },
    TmaPrefetch {
        map: Slot,
        coordinates: u32,
        im2col: bool,
    },
    CopyAsync {
        bytes: u32,
        /// Destination, source, and bytes of the source.
        args: [Slot; 3],
    },
    CopyCommit,
    CopyWait {
        pending: u32,
    },
    CopyArrive {
        address: Slot,
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
    WarpMma(Box<WarpMmaStep>),
    SetMaxRegisters {
        count: u32,
        change: RegisterChange,
    },
}

/// The operands of a TMA load.
#[derive(Clone, Debug)]
pub(crate) struct TmaLoad {
    pub(crate) map: Slot,
    pub(crate) destination: Slot,
    pub(crate) barrier: Slot,
    pub(crate) coordinates: Box<[Slot]>,
    /// One for each axis of an im2col map.
    pub(crate) offsets: Box<[Slot]>,
    pub(crate) mask: Option<Slot>,
}

/// The operands of a bulk load.
#[derive(Clone, Debug)]
pub(crate) struct BulkLoad {
    pub(crate) source: Slot,
    pub(crate) destination: Slot,
    pub(crate) barrier: Slot,
    pub(crate) bytes: Slot,
    pub(crate) mask: Option<Slot>,
}

/// The operands of a wgmma.
#[derive(Clone, Debug)]
pub(crate) struct WgmmaStep {
    pub(crate) op: Wgmma,
    /// The reason why the hardware has no such instruction, if it has none.
    pub(crate) misuse: Option<String>,
    /// One descriptor or four registers.
    pub(crate) a: Box<[Slot]>,
    /// Numbers of the registers of A among all fragments of the kernel.
    pub(crate) fragments: Box<[u32]>,
    pub(crate) b: Slot,
    pub(crate) accumulate: Slot,
}

/// A warp MMA, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct WarpMmaStep {
    pub(crate) mma: WarpMma,
    pub(crate) a: Fragment,
    pub(crate) b: Fragment,
    pub(crate) c: Fragment,
    pub(crate) d: Box<[Slot]>,
}

/// One fragment: its values, and the position of each element of each lane in the matrix.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) values: Box<[Slot]>,
    /// By element and lane, column-major.
    pub(crate) positions: Box<[[u32; LANES]]>,
}

impl WarpMmaStep {
    /// Calls `visit` for every slot, with whether it is written.
    pub(crate) fn visit_slots(&mut self, visit: &mut dyn FnMut(&mut Slot, bool)) {
        for fragment in [&mut self.a, &mut self.b, &mut self.c] {
            fragment.values.iter_mut().for_each(|slot| visit(slot, false));
        }
        self.d.iter_mut().for_each(|slot| visit(slot, true));
    }
}

impl Step {
    /// Calls `visit` for every slot, with whether it is written.
    pub(crate) fn visit_slots(&mut self, visit: &mut dyn FnMut(&mut Slot, bool)) {
        match self {
            Step::Evaluate { args, dest, .. } => {
                args.iter_mut().for_each(|arg| visit(arg, false));
                visit(dest, true);
            }
            Step::CopyAsync { args, .. } => args.iter_mut().for_each(|arg| visit(arg, false)),
            Step::Collective { args, dest, .. } => {
                args.iter_mut().for_each(|arg| visit(arg, false));
                visit(dest, true);
            }
            Step::Custom(step) => {
                step.args.iter_mut().for_each(|arg| visit(arg, false));
                step.dests.iter_mut().for_each(|dest| visit(dest, true));
            }
            Step::Special { dest, .. }
            | Step::Clock { dest }
            | Step::Elect { dest }
            | Step::AccGet { dest, .. } => visit(dest, true),
            Step::Atomic { address, values, dest, .. } => {
                visit(address, false);
                values.iter_mut().for_each(|value| visit(value, false));
                visit(dest, true);
            }
            Step::LoadElement { address, dest, .. } => {
                visit(address, false);
                visit(dest, true);
            }
            Step::StoreElement { address, value, .. } => {
                visit(address, false);
                visit(value, false);
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
            Step::Store { address, values, .. }
            | Step::Reduce { address, values }
            | Step::StoreMatrix { address, values, .. } => {
                visit(address, false);
                values.iter_mut().for_each(|value| visit(value, false));
            }
            Step::MbarrierInit { address, .. }
            | Step::MbarrierArrive { address }
            | Step::MbarrierArriveExpect { address, .. }
            | Step::MbarrierArriveCluster { address }
            | Step::CopyArrive { address }
            | Step::PrefetchLine { address } => visit(address, false),
            Step::MbarrierWait { address, parity } => {
                visit(address, false);
                visit(parity, false);
            }
            Step::BarrierSync { id, .. } | Step::BarrierArrive { id, .. } => visit(id, false),
            Step::AccSet { value, .. } | Step::Print { value, .. } => visit(value, false),
            Step::PrefetchMap { map }
            | Step::TmaPrefetch { map, .. }
            | Step::FenceMapAcquire { map, .. } => visit(map, false),
            Step::TmaLoad(load) => {
                visit(&mut load.map, false);
                visit(&mut load.destination, false);
                visit(&mut load.barrier, false);
                let place = load.coordinates.iter_mut().chain(&mut load.offsets);
                place.chain(&mut load.mask).for_each(|slot| visit(slot, false));
            }
            Step::BulkLoad(load) => {
                let BulkLoad { source, destination, barrier, bytes, mask } = &mut **load;
                let operands = [source, destination, barrier, bytes].into_iter().chain(mask);
                operands.for_each(|slot| visit(slot, false));
            }
            Step::BulkStore { destination, source, bytes, .. } => {
                [destination, source, bytes].into_iter().for_each(|slot| visit(slot, false));
            }
            Step::TmaStore { map, source, coordinates, .. } => {
                visit(map, false);
                visit(source, false);
                coordinates.iter_mut().for_each(|slot| visit(slot, false));
            }
            Step::Wgmma(wgmma) => {
                wgmma.a.iter_mut().for_each(|slot| visit(slot, false));
                visit(&mut wgmma.b, false);
                visit(&mut wgmma.accumulate, false);
            }
            Step::WarpMma(mma) => mma.visit_slots(visit),
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
            | Step::FenceMapRelease
            | Step::Sleep
            | Step::Trap
            | Step::ClusterArrive { .. }
            | Step::ClusterWait
            | Step::WarpSync
            | Step::GridDependencyWait
            | Step::CopyCommit
            | Step::CopyWait { .. }
            | Step::BulkCommit
            | Step::BulkWait { .. }
            | Step::WgmmaFence
            | Step::WgmmaCommit
            | Step::WgmmaWait { .. }
            | Step::SetMaxRegisters { .. } => {}
        }
    }
}

/// A tensor map with its argument.
#[derive(Clone, Debug)]
pub(crate) struct TensorMap {
    /// What reports call it: the parameter or the address in memory, or the copy of bytes that it
    /// stands for.
    pub(crate) name: String,
    pub(crate) spec: TensorMapSpec,
    pub(crate) argument: TensorMapArgument,
}

/// A kernel with its arguments, ready to run.
#[derive(Debug)]
pub(crate) struct Program {
    /// CTAs along x, y and z.
    pub(crate) grid: [u32; 3],
    pub(crate) steps: Vec<Step>,
    pub(crate) locations: Vec<LocId>,
    pub(crate) constants: Vec<u64>,
    pub(crate) uniform_slots: usize,
    pub(crate) varying_slots: usize,
    pub(crate) fragments: usize,
    /// By parameter.
    pub(crate) maps: Vec<Option<Rc<TensorMap>>>,
    /// Whether the kernel waits for the grids that it depends on.
    pub(crate) depends_on_grids: bool,
    /// First byte and number of the mbarriers of each region, by address.
    pub(crate) mbarriers: Vec<(u32, u32)>,
}

/// An instruction with its emulation.
#[derive(Clone)]
pub(crate) struct CustomStep {
    pub(crate) instruction: CustomInstruction,
    pub(crate) emulation: CustomEmulation,
    pub(crate) args: Box<[Slot]>,
    pub(crate) dests: Box<[Slot]>,
}

impl std::fmt::Debug for CustomStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let CustomStep { instruction, args, dests, .. } = self;
        f.debug_tuple("CustomStep").field(instruction).field(args).field(dests).finish()
    }
}

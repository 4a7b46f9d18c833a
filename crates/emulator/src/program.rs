//! The flat form that warps execute: a kernel's tree of blocks as a list of steps with jumps, so
//! that a warp can stop before any step and go on later. Values are in slots. A value that is the
//! same in all lanes of a warp is one number.

use std::rc::Rc;

use pgemm_ir::{
    AccId, Access, Argument, AtomicOp, Element, Kernel, Launch, LocId, Order, ParamKind,
    ProxyFence, RegionKind, RegisterChange, Scope, Special, TensorMapArgument, TensorMapSpec, Type,
    Wgmma,
};

use crate::error::SetupError;
use crate::flatten::{self, Flat};
use crate::slots;
use crate::value::Function;
use crate::warp_mma::WarpMmaStep;

/// The first address of shared memory. The hardware keeps the KiB below.
pub(crate) const SMEM_BASE: u32 = 1024;

/// Address of the first parameter, if it is a tensor map. No allocation lies there; the addresses
/// of the others follow, one apart.
pub(crate) const PARAMETER_MAPS: u64 = 1 << 63;

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
    ShuffleFirst {
        value: Slot,
        dest: Slot,
    },
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
        op: AtomicOp,
        order: Order,
        scope: Scope,
        address: Slot,
        value: Slot,
        dest: Slot,
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

    PrefetchMap {
        map: Slot,
    },
    TmaLoad(Box<TmaLoad>),
    TmaStore {
        map: Slot,
        source: Slot,
        coordinates: Box<[Slot]>,
    },
    TmaPrefetch {
        map: Slot,
        coordinates: u32,
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

impl Step {
    /// Calls `visit` for every slot, with whether it is written.
    pub(crate) fn visit_slots(&mut self, visit: &mut dyn FnMut(&mut Slot, bool)) {
        match self {
            Step::Evaluate { args, dest, .. } => {
                args.iter_mut().for_each(|arg| visit(arg, false));
                visit(dest, true);
            }
            Step::Special { dest, .. }
            | Step::Clock { dest }
            | Step::Elect { dest }
            | Step::AccGet { dest, .. } => visit(dest, true),
            Step::ShuffleFirst { value, dest } => {
                visit(value, false);
                visit(dest, true);
            }
            Step::Atomic { address, value, dest, .. } => {
                visit(address, false);
                visit(value, false);
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
            | Step::MbarrierArriveCluster { address } => visit(address, false),
            Step::MbarrierWait { address, parity } => {
                visit(address, false);
                visit(parity, false);
            }
            Step::BarrierSync { id, .. } | Step::BarrierArrive { id, .. } => visit(id, false),
            Step::AccSet { value, .. } => visit(value, false),
            Step::PrefetchMap { map }
            | Step::TmaPrefetch { map, .. }
            | Step::FenceMapAcquire { map, .. } => visit(map, false),
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
            | Step::ClusterArrive { .. }
            | Step::ClusterWait
            | Step::WarpSync
            | Step::GridDependencyWait
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
    /// The name of the parameter in quotes, or the address in memory.
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

impl Program {
    /// Flattens a legalised kernel and binds the launch's arguments.
    pub(crate) fn compile(kernel: &Kernel, launch: &Launch) -> Result<Program, SetupError> {
        if kernel.params.len() != launch.arguments.len() {
            return Err(SetupError::ArgumentCount {
                arguments: launch.arguments.len(),
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
                (ParamKind::Scalar(Type::F64), Argument::F64(value)) => value.to_bits(),
                (ParamKind::TensorMap(spec), Argument::TensorMap(argument)) => {
                    check_map(&param.name, spec, argument)?;
                    map = Some(Rc::new(TensorMap {
                        name: format!("'{}'", param.name),
                        spec: spec.clone(),
                        argument: argument.clone(),
                    }));
                    PARAMETER_MAPS + index as u64
                }
                _ => return Err(SetupError::ArgumentType { name: param.name.clone() }),
            });
            maps.push(map);
        }

        let Flat { mut steps, locations, constants, loops, fragments } =
            flatten::flatten(kernel, constants)?;
        let (uniform_slots, varying_slots) = slots::assign(&mut steps, &loops);
        let depends_on_grids = steps.iter().any(|step| matches!(step, Step::GridDependencyWait));
        let mut mbarriers: Vec<_> = kernel
            .regions
            .iter()
            .filter(|region| region.kind == RegionKind::Mbarrier)
            .map(|region| (SMEM_BASE + region.offset, region.bytes / 8))
            .collect();
        mbarriers.sort_unstable();
        Ok(Program {
            grid: launch.grid,
            steps,
            locations,
            constants,
            uniform_slots,
            varying_slots,
            fragments,
            maps,
            depends_on_grids,
            mbarriers,
        })
    }
}

/// Fails if the hardware does not accept the tensor map.
pub(crate) fn check_map(
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
    } else if !argument.address.is_multiple_of(16)
        || argument.strides.iter().any(|stride| stride % 16 != 0)
    {
        "its address and strides must be multiples of 16 bytes"
    } else if spec.box_extents.iter().any(|extent| !(1..=256).contains(extent)) {
        "its box extents must be 1 to 256"
    } else if argument.extents.iter().any(|&extent| extent == 0 || extent > 1 << 32) {
        "its extents must be 1 to 2^32"
    } else if argument.strides.iter().any(|&stride| stride >= 1 << 40) {
        "its strides must be less than 2^40 bytes"
    } else if !inner.is_multiple_of(16) {
        "the innermost extent of its box must be a multiple of 16 bytes"
    } else if spec.swizzle.span_bytes().is_some_and(|span| inner > u64::from(span)) {
        "the innermost extent of its box must not exceed the swizzle span"
    } else {
        return Ok(());
    };
    Err(SetupError::TensorMap { name: name.to_owned(), rule })
}

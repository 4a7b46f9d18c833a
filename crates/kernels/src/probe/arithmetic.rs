//! Kernels that only multiply. Operands are loaded once, and the tensor cores then multiply them
//! over and over: those of wgmma from shared memory, those of f64 from registers. Their rate bounds
//! every GEMM that arithmetic limits.

use pgemm_cute::CuteError;
use pgemm_ir::{
    Argument, Element, Kernel, KernelBuilder, Launch, MmaAtom, Occupancy, OperandMajor, ParamKind,
    Pending, RegionId, RegionKind, Resident, SmemRequest, Special, TensorMap, TensorMapArgument,
    Type, Val, WARPGROUP_THREADS, WarpMma, ty,
};

use super::ProbeError;
use crate::compute::Sum;
use crate::{OperandTile, StageTile};

/// Consumer warpgroups, which multiply 64 rows each.
const WARPGROUPS: u32 = 2;
const M: u32 = 64 * WARPGROUPS;
const N: u32 = 256;
/// Bytes of a line of an operand in a stage.
const LINE_BYTES: u32 = 128;
/// Stages that are multiplied in turn, so that operands are not always the same.
const STAGES: u32 = 4;
/// Registers of a thread. All warpgroups have the same, and two have all of the SM's.
const REGISTERS: u32 = 240;

/// Blocks of rows and of columns whose sums a warp of the f64 probe has in registers.
const BLOCKS: (u32, u32) = (2, 4);
/// Depth of an MMA of the f64 probe.
const F64_DEPTH: u32 = 16;

/// A kernel that only multiplies.
#[derive(Clone, Debug)]
pub struct ArithmeticProbe {
    /// The type of A and B.
    pub element: Element,
    /// The code, verified and legalised.
    pub kernel: Kernel,
}

/// What a probe multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArithmeticWork {
    /// Address of [`ArithmeticProbe::operand_bytes`] bytes of A and B, a multiple of 16.
    pub operands: u64,
    /// Address of a word for each thread, which is set to the sum of the thread's elements of D: 4
    /// bytes, or 8 of f64.
    pub sums: u64,
    /// How often all operands are multiplied, at least once.
    pub rounds: u32,
    /// Number of CTAs to launch, which is the number of SMs of the device.
    pub ctas: u32,
}

impl ArithmeticProbe {
    /// The types that tensor cores multiply.
    pub const ELEMENTS: [Element; 6] =
        [Element::Bf16, Element::F16, Element::Tf32, Element::E4m3, Element::S8, Element::F64];

    /// Threads of a CTA.
    pub const THREADS: u32 = WARPGROUPS * WARPGROUP_THREADS;

    /// Builds, verifies and legalises the probe of a type.
    ///
    /// # Errors
    /// [`ProbeError::NoTensorCores`] for a type that no tensor core multiplies.
    pub fn build(element: Element) -> Result<ArithmeticProbe, ProbeError> {
        let name = format!("arithmetic_{}", element.name());
        let builder = KernelBuilder::new(name, 1);
        match element {
            Element::F64 => write_f64(&builder),
            _ => {
                let accumulator = element.accumulators_with(element).first();
                let accumulator = *accumulator.ok_or(ProbeError::NoTensorCores(element))?;
                let written = match accumulator {
                    Type::S32 => write_wgmma::<ty::S32>(&builder, element, accumulator),
                    _ => write_wgmma::<ty::F32>(&builder, element, accumulator),
                };
                written.map_err(|error| ProbeError::Layout(Box::new(error)))?;
            }
        }
        let kernel = builder.finish().map_err(|error| ProbeError::Build(Box::new(error)))?;
        let kernel =
            pgemm_ir::optimise(kernel).map_err(|error| ProbeError::Passes(Box::new(error)))?;
        Ok(ArithmeticProbe { element, kernel })
    }

    /// Rows of A, columns of B, and depth that a CTA multiplies in a round.
    pub fn extents(&self) -> [u32; 3] {
        match self.element {
            Element::F64 => {
                let mma = WarpMma::f64(F64_DEPTH);
                // Every warp multiplies the same operands.
                let warps = Self::THREADS / 32;
                [mma.m * BLOCKS.0 * warps, mma.n * BLOCKS.1, mma.k]
            }
            element => [M, N, STAGES * LINE_BYTES / element.bytes()],
        }
    }

    /// Multiplications and additions of a round of a CTA.
    pub fn operations(&self) -> f64 {
        self.extents().map(f64::from).into_iter().product::<f64>() * 2.0
    }

    /// Bytes of both operands. A comes first. Its lines and those of B are contiguous along k; each
    /// stage of wgmma has lines of its own, and those of f64 are in the order of lanes and values.
    pub fn operand_bytes(&self) -> u32 {
        match self.element {
            Element::F64 => {
                let mma = WarpMma::f64(F64_DEPTH);
                let values = BLOCKS.0 * mma.a_values() + BLOCKS.1 * mma.b_values();
                values * 32 * 8
            }
            _ => STAGES * (M + N) * LINE_BYTES,
        }
    }

    /// The launch of this kernel on `work`. The arguments are in the order of the kernel's
    /// parameters.
    pub fn bind(&self, work: &ArithmeticWork) -> Launch {
        let map = |first_line: u32, lines: u32| {
            Argument::TensorMap(TensorMapArgument {
                address: work.operands + u64::from(first_line * LINE_BYTES),
                extents: vec![(LINE_BYTES / self.element.bytes()).into(), lines.into()],
                strides: vec![LINE_BYTES.into()],
            })
        };
        let argument = |name: &str, kind: &ParamKind| match (name, kind) {
            ("a", ParamKind::TensorMap(_)) => map(0, STAGES * M),
            ("b", ParamKind::TensorMap(_)) => map(STAGES * M, STAGES * N),
            ("operands", _) => Argument::U64(work.operands),
            ("sums", _) => Argument::U64(work.sums),
            ("rounds", _) => Argument::U32(work.rounds),
            (name, _) => unreachable!("the probe declares no parameter {name}"),
        };
        let params = self.kernel.params.iter();
        let arguments = params.map(|param| argument(&param.name, &param.kind)).collect();
        Launch { grid: [work.ctas, 1, 1], arguments }
    }
}

/// An operand of wgmma: its tensor map, its tile, and the stages in shared memory.
struct Staged<'k> {
    map: TensorMap<'k>,
    tile: OperandTile,
    staged: StageTile,
    lines: u32,
    region: RegionId,
}

impl<'k> Staged<'k> {
    fn declare(
        b: &'k KernelBuilder,
        name: &str,
        element: Element,
        lines: u32,
    ) -> Result<Staged<'k>, CuteError> {
        let k = LINE_BYTES / element.bytes();
        let tile = OperandTile::new(element, OperandMajor::K, lines, k, 1);
        let staged = tile.staged()?;
        let map = b.tensor_map(name, staged.tensor_map.clone());
        let request = SmemRequest::whole(STAGES * staged.bytes, 1024);
        let region = b.region(format!("{name}_stages"), RegionKind::Data(element), request);
        Ok(Staged { map, tile, staged, lines, region })
    }

    fn stage(&self, b: &'k KernelBuilder, stage: u32) -> Val<'k, ty::Smem> {
        b.smem_address(self.region).offset(stage * self.staged.bytes)
    }
}

/// The probe of a type that warpgroups multiply. Sums have the type `S`.
fn write_wgmma<S: Sum>(
    b: &KernelBuilder,
    element: Element,
    accumulator: Type,
) -> Result<(), CuteError> {
    let major = OperandMajor::K;
    let atom =
        MmaAtom { n: N, a: element, b: element, a_major: major, b_major: major, accumulator };
    let [a, b_operand] =
        [Staged::declare(b, "a", element, M)?, Staged::declare(b, "b", element, N)?];
    let depths: Vec<u32> = (0..LINE_BYTES / element.bytes()).step_by(atom.k() as usize).collect();
    let (a_offsets, a_layout) = a.tile.operands([0].into_iter(), &depths)?;
    let (b_offsets, b_layout) = b_operand.tile.operands([0].into_iter(), &depths)?;
    let next_part = a.tile.operand_offset(64, 0)?;
    let (sums, rounds) = (b.param::<ty::U64>("sums"), b.param::<ty::U32>("rounds"));
    let full = b.region("full", RegionKind::Mbarrier, SmemRequest::whole(8, 8));

    b.scope("prologue", || {
        b.if_(b.special(Special::Thread).eq(0), || {
            b.smem_address(full).mbarrier_init(1);
            b.fence_mbarrier_init();
        });
        b.sync_cta();
        b.grid_dependency_launch();
        b.grid_dependency_wait();
    });
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("consumer", WARPGROUPS, REGISTERS, |part| {
            b.if_(b.special(Special::Warp).eq(0), || {
                b.if_(b.elect(), || {
                    b.smem_address(full).mbarrier_expect_copies(|copies| {
                        for operand in [&a, &b_operand] {
                            for stage in 0..STAGES {
                                let place = [b.constant(0), b.constant(stage * operand.lines)];
                                copies.load(&operand.map, operand.stage(b, stage), &place);
                            }
                        }
                    });
                });
            });
            b.smem_address(full).mbarrier_wait(b.constant(0));
            let round = |pending: &mut Pending<Resident>, accumulate: bool| {
                for stage in 0..STAGES {
                    let rows = a.stage(b, stage).offset(part * next_part);
                    let a_operand = b.descriptor(rows, a_layout);
                    let b_operand = b.descriptor(b_operand.stage(b, stage), b_layout);
                    pending.issue(b, Resident, |batch| {
                        for (step, (&a, &b)) in a_offsets[0].iter().zip(&b_offsets[0]).enumerate() {
                            let accumulate = accumulate || stage > 0 || step > 0;
                            batch.mma(0, a_operand.advance(a), b_operand.advance(b), accumulate);
                        }
                    });
                    if accumulate || stage > 0 {
                        pending.wait_until(b, 1);
                    }
                }
            };
            let mut pending = b.accumulators(atom, 1).start();
            round(&mut pending, false);
            let pending = b.for_carry(1, rounds, 1, pending, |_, mut pending| {
                round(&mut pending, true);
                pending
            });
            let (accumulators, _) = pending.finish(b);
            let values = (0..atom.registers()).map(|index| accumulators.get::<S>(b, 0, index));
            store_sum(b, sums, values);
        });
    });
    Ok(())
}

/// The probe of f64. Every warp multiplies the same operands.
fn write_f64(b: &KernelBuilder) {
    let mma = WarpMma::f64(F64_DEPTH);
    let (operands, sums) = (b.param::<ty::U64>("operands"), b.param::<ty::U64>("sums"));
    let rounds = b.param::<ty::U32>("rounds");
    b.scope("prologue", || {
        b.grid_dependency_launch();
        b.grid_dependency_wait();
    });
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("consumer", WARPGROUPS, REGISTERS, |_| {
            let lane = b.special(Special::Lane);
            let load = |index: u32| {
                let bytes = (lane + index * 32) * 8;
                let [value] = b.load_global::<ty::F64, 1>(operands.byte_offset(bytes));
                value
            };
            let [of_a, of_b, of_c] = [mma.a_values(), mma.b_values(), mma.c_values()];
            let a_values: Vec<_> = (0..BLOCKS.0 * of_a).map(load).collect();
            let b_values: Vec<_> =
                (0..BLOCKS.1 * of_b).map(|value| load(BLOCKS.0 * of_a + value)).collect();
            let zeros = vec![b.constant::<ty::F64>(0.0); (BLOCKS.0 * BLOCKS.1 * of_c) as usize];
            let products = b.for_carry(0, rounds, 1, zeros, |_, mut products| {
                let mut sums = products.chunks_mut(of_c as usize);
                for a in a_values.chunks(of_a as usize) {
                    for (columns, sums) in b_values.chunks(of_b as usize).zip(&mut sums) {
                        let added = b.warp_mma(mma, a, columns, sums);
                        sums.copy_from_slice(&added);
                    }
                }
                products
            });
            store_sum(b, sums, products.into_iter());
        });
    });
}

/// Stores the sum of these values as the running thread's word.
fn store_sum<'k, S: Sum>(
    b: &'k KernelBuilder,
    sums: Val<'k, ty::U64>,
    values: impl Iterator<Item = Val<'k, S>>,
) {
    let sum = values.fold(S::zero(b), S::add);
    let thread = b.special(Special::Cta) * ArithmeticProbe::THREADS + b.special(Special::Thread);
    b.store_global(sums.byte_offset(thread * S::TYPE.bytes().unwrap_or(4)), [sum]);
}

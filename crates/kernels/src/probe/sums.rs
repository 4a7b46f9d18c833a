//! A kernel that shows how tensor cores add up: D = A·B + C by one instruction, or by a chain of
//! them, on tiles whose bits are all given. It has an own A, B and C for each CTA.

mod offsets;

use std::fmt;

use pgemm_ir::{
    Argument, DescriptorLayout, Element, FragmentOfA, Kernel, KernelBuilder, Launch, MmaAtom,
    Occupancy, OperandMajor, RegionId, RegionKind, Resident, Scalar, SmemRequest, Special,
    SwizzleMode, Type, Val, WARPGROUP_THREADS, WarpMma, ty,
};

use self::offsets::{Offsets, bytes_of_warps};
use super::{CHUNK_BYTES, ProbeError, WARPS};

/// Rows of a tile: those of wgmma, or of four warps.
const M: u32 = 64;
/// Rows of A and D of a warp.
const WARP_M: u32 = M / WARPS;
/// Registers of a thread.
const REGISTERS: u32 = 240;
/// Bytes of a row of A, or of a column of B, that one wgmma reads.
const DEPTH_BYTES: u32 = 32;
/// Operands of wgmma are not swizzled: chunks of eight rows follow each other, then the second
/// chunks of these rows, then the next eight rows (PTX ISA, "Canonical layouts").
const LAYOUT: DescriptorLayout = DescriptorLayout {
    swizzle: SwizzleMode::None,
    leading_bytes: 8 * CHUNK_BYTES,
    stride_bytes: 8 * DEPTH_BYTES,
};

/// An instruction whose sums are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumInstruction {
    /// A wgmma of K-major operands.
    Wgmma {
        /// Element type of A.
        a: Element,
        /// Element type of B.
        b: Element,
        /// Type of the accumulators.
        accumulator: Type,
        /// Columns, a multiple of 64.
        n: u32,
        /// Whether A is in registers.
        a_in_registers: bool,
    },
    /// The MMA of a warp. Four warps have different rows of A, and the same B.
    Warp(WarpMma),
}

/// A kernel that adds up by one kind of instruction.
#[derive(Clone, Debug)]
pub struct SumProbe {
    /// The instruction.
    pub instruction: SumInstruction,
    /// How many of them follow each other.
    pub steps: u32,
    /// The code, verified and legalised.
    pub kernel: Kernel,
    offsets: Offsets,
}

/// Where a launch finds its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumWork {
    /// Addresses of A, B, C and D, each a multiple of 16. [`SumProbe`] arranges the bytes.
    pub operands: [u64; 4],
    /// Whether the first wgmma adds C. Otherwise C counts as zero. MMAs of warps always add it.
    pub accumulate: bool,
    /// Number of tiles, which is that of CTAs.
    pub tiles: u32,
}

impl SumInstruction {
    /// Element types of A and B.
    pub fn elements(&self) -> [Element; 2] {
        match *self {
            SumInstruction::Wgmma { a, b, .. } => [a, b],
            SumInstruction::Warp(mma) => [mma.operand; 2],
        }
    }

    /// Type of the sums: [`Type::B32`] stands for f16.
    pub fn accumulator(&self) -> Type {
        match *self {
            SumInstruction::Wgmma { accumulator, .. } => accumulator,
            SumInstruction::Warp(mma) => mma.accumulator,
        }
    }

    /// Columns of a tile.
    pub fn n(&self) -> u32 {
        match *self {
            SumInstruction::Wgmma { n, .. } => n,
            SumInstruction::Warp(mma) => mma.n,
        }
    }

    /// Depth of one instruction.
    pub fn k(&self) -> u32 {
        match *self {
            SumInstruction::Wgmma { a, .. } => a.wgmma_depth(),
            SumInstruction::Warp(mma) => mma.k,
        }
    }
}

impl fmt::Display for SumInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SumInstruction::Wgmma { a, b, accumulator, n, a_in_registers } => {
                let sums = if *accumulator == Type::B32 { "f16" } else { accumulator.name() };
                let source = if *a_in_registers { "_ra" } else { "" };
                write!(f, "wgmma_{a}_{b}_{sums}_n{n}{source}")
            }
            SumInstruction::Warp(mma) => write!(f, "mma_{}_k{}", mma.operand, mma.k),
        }
    }
}

impl SumProbe {
    /// Rows of a tile.
    pub const M: u32 = M;

    /// Builds, verifies and legalises the probe of a chain of `steps` instructions.
    ///
    /// # Errors
    /// [`ProbeError`] if there is no such instruction, or if `steps` of them need too much shared
    /// memory.
    pub fn build(instruction: SumInstruction, steps: u32) -> Result<SumProbe, ProbeError> {
        let builder = KernelBuilder::new(format!("sums_{instruction}_x{steps}"), 1);
        let offsets = match instruction {
            SumInstruction::Wgmma { a, b, accumulator, n, a_in_registers } => {
                let major = OperandMajor::K;
                let atom = MmaAtom { n, a, b, a_major: major, b_major: major, accumulator };
                write_wgmma(&builder, atom, steps, a_in_registers);
                Offsets::of_wgmma(&atom, steps)
            }
            SumInstruction::Warp(mma) => {
                let offsets = Offsets::of_warp(&mma, steps);
                let offsets = offsets.ok_or(ProbeError::NoTensorCores(mma.operand))?;
                match mma.operand {
                    Element::F64 => write_warp::<ty::F64, ty::F64>(&builder, mma, steps),
                    _ => write_warp::<ty::B32, ty::F32>(&builder, mma, steps),
                }
                offsets
            }
        };
        let kernel = builder.finish().map_err(|error| ProbeError::Build(Box::new(error)))?;
        let kernel =
            pgemm_ir::optimise(kernel).map_err(|error| ProbeError::Passes(Box::new(error)))?;
        Ok(SumProbe { instruction, steps, kernel, offsets })
    }

    /// Depth of a tile.
    pub fn depth(&self) -> u32 {
        self.steps * self.instruction.k()
    }

    /// The bytes of tiles of A from the bits of their elements: tile by tile, rows along k.
    pub fn bytes_of_a(&self, elements: &[u64]) -> Vec<u8> {
        let bytes = self.instruction.elements()[0].bytes();
        arrange(elements, &self.offsets.a, bytes as usize)
    }

    /// The bytes of tiles of B from the bits of their elements: tile by tile, columns along k.
    pub fn bytes_of_b(&self, elements: &[u64]) -> Vec<u8> {
        let bytes = self.instruction.elements()[1].bytes();
        arrange(elements, &self.offsets.b, bytes as usize)
    }

    /// The bytes of tiles of C from the bits of their elements: tile by tile, row by row. They are
    /// binary64 or binary32; f16 sums are converted, so C is to have no other numbers.
    pub fn bytes_of_c(&self, elements: &[u64]) -> Vec<u8> {
        arrange(elements, &self.offsets.c, sum_bytes(self.instruction.accumulator()) as usize)
    }

    /// The bits of the elements of D from its bytes, in the order and with the types of C.
    pub fn elements_of_d(&self, bytes: &[u8]) -> Vec<u64> {
        let size = sum_bytes(self.instruction.accumulator()) as usize;
        let tiles = bytes.chunks_exact(self.offsets.c.len() * size);
        let element = |tile: &[u8], offset: u32| {
            let mut word = [0; 8];
            word[..size].copy_from_slice(&tile[offset as usize..][..size]);
            u64::from_le_bytes(word)
        };
        tiles.flat_map(|tile| self.offsets.c.iter().map(move |&at| element(tile, at))).collect()
    }

    /// The launch of this kernel on `work`. The arguments are in the order of the kernel's
    /// parameters.
    pub fn bind(&self, work: &SumWork) -> Launch {
        let argument = |name: &str| match name {
            "accumulate" => Argument::U32(work.accumulate.into()),
            name => match NAMES.iter().position(|&other| other == name) {
                Some(operand) => Argument::U64(work.operands[operand]),
                None => unreachable!("the probe declares no parameter {name}"),
            },
        };
        let arguments = self.kernel.params.iter().map(|param| argument(&param.name)).collect();
        Launch { grid: [work.tiles, 1, 1], arguments }
    }
}

/// The bytes of tiles whose elements, of `size` bytes each, lie at the offsets.
fn arrange(elements: &[u64], offsets: &[u32], size: usize) -> Vec<u8> {
    let mut bytes = vec![0; elements.len() * size];
    let tiles = bytes.chunks_exact_mut(offsets.len() * size);
    for (tile, elements) in tiles.zip(elements.chunks_exact(offsets.len())) {
        for (&element, &offset) in elements.iter().zip(offsets) {
            tile[offset as usize..][..size].copy_from_slice(&element.to_le_bytes()[..size]);
        }
    }
    bytes
}

/// The parameters with the addresses of the operands.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn sum_bytes(accumulator: Type) -> u32 {
    if accumulator == Type::F64 { 8 } else { 4 }
}

/// The addresses of this CTA's tiles of A, B, C and D.
fn tiles<'k>(b: &'k KernelBuilder, bytes: [u32; 3]) -> [Val<'k, ty::U64>; 4] {
    let [a_bytes, b_bytes, c_bytes] = bytes;
    let cta = b.special(Special::Cta);
    let strides = [a_bytes, b_bytes, c_bytes, c_bytes];
    std::array::from_fn(|operand| {
        b.param::<ty::U64>(NAMES[operand]).byte_offset(cta * strides[operand])
    })
}

fn write_wgmma<'k>(b: &'k KernelBuilder, atom: MmaAtom, steps: u32, a_in_registers: bool) {
    let (a_step, b_step) = (M * DEPTH_BYTES, atom.n * DEPTH_BYTES);
    let c_bytes = M * atom.n * sum_bytes(atom.accumulator);
    let [a_tile, b_tile, c_tile, d_tile] = tiles(b, [steps * a_step, steps * b_step, c_bytes]);
    let accumulate = b.param::<ty::U32>("accumulate");
    let region = |name: &str, element, bytes| {
        b.region(name, RegionKind::Data(element), SmemRequest::whole(bytes, 1024))
    };
    let a_region = (!a_in_registers).then(|| region("a_tile", atom.a, steps * a_step));
    let b_region = region("b_tile", atom.b, steps * b_step);
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("consumer", 1, REGISTERS, |_| {
            let thread = b.special(Special::Thread);
            if let Some(region) = a_region {
                copy(b, a_tile, region, steps * a_step);
            }
            copy(b, b_tile, b_region, steps * b_step);
            b.fence_proxy_async();
            b.sync_cta();

            let place = |tile: Val<'k, ty::U64>, index: u32| {
                tile.byte_offset((thread + index * WARPGROUP_THREADS) * 4)
            };
            let mut sums = b.accumulators(atom, 1);
            let pairs = || (0..atom.n / 2).step_by(2);
            for index in pairs() {
                let pair = [index, index + 1].map(|index| {
                    let [value] = b.load_global::<ty::F32, 1>(place(c_tile, index));
                    value
                });
                sums.set_pair(b, 0, index, pair);
            }
            let fragments: Vec<_> = (0..if a_in_registers { steps } else { 0 })
                .map(|step| fragment_of_a(b, a_tile.byte_offset(b.constant(step * a_step))))
                .collect();
            let mut fragments = fragments.into_iter();
            let descriptor =
                |region, offset: u32| b.descriptor(b.smem_address(region).offset(offset), LAYOUT);
            let mut pending = sums.start();
            pending.issue(b, Resident, |batch| {
                for step in 0..steps {
                    let accumulate =
                        if step == 0 { accumulate.ne(0) } else { b.constant::<ty::Bool>(true) };
                    let b_operand = descriptor(b_region, step * b_step);
                    match (a_region, fragments.next()) {
                        (Some(region), _) => {
                            batch.mma(0, descriptor(region, step * a_step), b_operand, accumulate);
                        }
                        (None, Some(a)) => batch.mma_of_registers(0, a, b_operand, accumulate),
                        (None, None) => unreachable!("every step has a fragment"),
                    }
                }
            });
            let (sums, _) = pending.finish(b);
            for index in 0..atom.n / 2 {
                b.store_global(place(d_tile, index), [sums.get::<ty::F32>(b, 0, index)]);
            }
        });
    });
}

/// Copies a tile of a multiple of 2 KiB to shared memory by all threads.
fn copy<'k>(b: &'k KernelBuilder, from: Val<'k, ty::U64>, to: RegionId, bytes: u32) {
    let first = b.special(Special::Thread) * CHUNK_BYTES;
    b.for_range(0, bytes, WARPGROUP_THREADS * CHUNK_BYTES, |start| {
        let chunk = b.load_global::<ty::U32, 4>(from.byte_offset(first + start));
        b.store_shared(b.smem_address(to).offset(first + start), chunk);
    });
}

/// This thread's words of A for one instruction (PTX ISA, "Register Fragments for wgmma"), from a
/// tile in the layout of shared memory.
fn fragment_of_a<'k>(b: &'k KernelBuilder, tile: Val<'k, ty::U64>) -> FragmentOfA<'k> {
    let (warp, lane) = (b.special(Special::Warp), b.special(Special::Lane));
    let first = warp * (WARP_M * DEPTH_BYTES) + (lane / 4) * CHUNK_BYTES + (lane % 4) * 4;
    FragmentOfA::new([0, 1, 2, 3].map(|word| {
        let rows = word % 2 * LAYOUT.stride_bytes;
        let depth = word / 2 * LAYOUT.leading_bytes;
        let [value] = b.load_global::<ty::B32, 1>(tile.byte_offset(first + (rows + depth)));
        value
    }))
}

fn write_warp<'k, T: Scalar, S: Scalar>(b: &'k KernelBuilder, mma: WarpMma, steps: u32) {
    let [a_tile, b_tile, c_tile, d_tile] = tiles(b, bytes_of_warps(&mma, steps));
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("consumer", 1, REGISTERS, |_| {
            let (warp, lane) = (b.special(Special::Warp), b.special(Special::Lane));
            let word = sum_bytes(mma.accumulator);
            let place = |tile: Val<'k, ty::U64>, index: Val<'k, ty::U32>| {
                tile.byte_offset((index * 32 + lane) * word)
            };
            let of_c = mma.c_values();
            let load_sum = |value| {
                let [sum] = b.load_global::<S, 1>(place(c_tile, warp * of_c + value));
                sum
            };
            let mut sums: Vec<_> = (0..of_c).map(load_sum).collect();
            for step in 0..steps {
                let (of_a, of_b) = (mma.a_values(), mma.b_values());
                let load = |tile, first: Val<'k, ty::U32>, values| -> Vec<Val<'k, T>> {
                    let load = |value| {
                        let [value] = b.load_global::<T, 1>(place(tile, first + value));
                        value
                    };
                    (0..values).map(load).collect()
                };
                let a = load(a_tile, (warp + step * WARPS) * of_a, of_a);
                let b_values = load(b_tile, b.constant(step * of_b), of_b);
                sums = b.warp_mma(mma, &a, &b_values, &sums);
            }
            for (value, sum) in (0..of_c).zip(sums) {
                b.store_global(place(d_tile, warp * of_c + value), [sum]);
            }
        });
    });
}

//! Direct kernels, for products so small that a ring does not pay. Each warp has tiles of its own:
//! it loads fragments of A and B from global memory to registers, multiplies them by warp MMAs, and
//! stores D. Warps share nothing and wait for nothing but their loads.
//!
//! A lane takes four neighbouring depths of a step, where the MMA has two pairs that are eight
//! apart: as A and B agree, only the order of summation changes. It loads them one by one, or two
//! or four at once if they are neighbours in memory and begin at a multiple of their size.
//!
//! Most loads are not checked. A tile may extend beyond the lines and depths of a product. As long
//! as it does not extend beyond the matrices of the batch, the loads get elements of other products
//! or lines. What lies beyond K is masked, and what lies beyond M or N belongs to results that are
//! not stored. The last products of a batch load element by element, and only what they have. So do
//! all products of operands that do not lie at multiples of what lanes load at once, and products
//! whose matrices lie far apart: the memory between these may not be mapped.

use pgemm_ir::{KernelBuilder, Occupancy, OperandMajor, Special, Val, WarpMma, ty};

use crate::coordinates::TileOrigin;
use crate::mainloop::Group;
use crate::operands::MemoryMatrix;
use crate::problem::{LaunchParameters, Problem};
use crate::quantity::Side;
use crate::scheduler::Scheduler;
use crate::spec::{DirectSpec, Spec};
use crate::store::registers::RegisterOutput;

const BLOCK_LINES: u32 = DirectSpec::BLOCK_LINES;
const LANE_DEPTHS: u32 = DirectSpec::LANE_DEPTHS;

/// Bytes of an element.
const ELEMENT_BYTES: u32 = 2;

/// Most bytes from one matrix of a batch to the next for tiles to extend into them. It is the
/// smallest page that a GPU maps, so all bytes between two mapped ones are mapped.
const PAGE_BYTES: u64 = 4096;

/// Selects the low halves of two words, the first below the second.
const LOW_HALVES: u32 = 0x5410;

type U32<'k> = Val<'k, ty::U32>;
type U64<'k> = Val<'k, ty::U64>;

/// Values that hold the elements of a block of lines in one step, two depths in each.
type Block<'k> = [U32<'k>; 2];

/// A kernel whose parameters are declared.
pub(crate) struct DirectKernel<'k> {
    b: &'k KernelBuilder,
    spec: Spec,
    widths: [u32; 2],
    mma: WarpMma,
    problem: Problem<'k, ty::F32>,
    scheduler: Scheduler<'k>,
    output: RegisterOutput<'k>,
    /// Extent of K.
    depth: U32<'k>,
}

/// An operand of a kernel.
#[derive(Clone, Copy)]
struct Operand<'k> {
    matrix: MemoryMatrix<'k>,
    major: OperandMajor,
    /// Blocks of lines of a tile.
    blocks: u32,
    /// Elements that a lane loads at once.
    width: u32,
}

/// The elements of an operand's tile that a lane loads.
#[derive(Clone, Copy)]
struct LanePart<'k> {
    operand: Operand<'k>,
    /// The lane's first line.
    line: U32<'k>,
    /// Address of the lane's first element in the first stage.
    address: U64<'k>,
    /// Whether no load of the tile leaves the matrices of the batch, and loads of the operand's
    /// width are possible.
    is_inside: Val<'k, ty::Bool>,
}

/// The part of a tile's depths that is loaded and multiplied together.
#[derive(Clone, Copy)]
struct Stage<'k> {
    /// Steps of the MMA.
    steps: u32,
    /// Depths that the product has from the first one of the stage on. `None` if they are all that
    /// the stage has.
    left: Option<U32<'k>>,
    /// Whether each load is checked.
    checked: bool,
}

impl<'k> DirectKernel<'k> {
    /// The kernel of a valid spec.
    pub(crate) fn new(
        b: &'k KernelBuilder,
        spec: &Spec,
        direct: &DirectSpec,
        launch: LaunchParameters<'k, ty::F32>,
    ) -> Self {
        let LaunchParameters { problem, scheduler, .. } = launch;
        let depth = problem.operands.iter().find_map(|operand| {
            let MemoryMatrix { lines, length, .. } = *operand.memory()?;
            Some(if spec.a_major == OperandMajor::K { length } else { lines })
        });
        DirectKernel {
            b,
            spec: *spec,
            widths: direct.widths,
            mma: DirectSpec::mma(spec.a),
            problem,
            scheduler,
            output: RegisterOutput::in_pairs(b, spec, groups(spec)),
            depth: depth.unwrap_or_else(|| b.constant(0)),
        }
    }

    /// Writes the kernel.
    pub(crate) fn write(&self) {
        let (b, resources) = (self.b, self.spec.resources());
        let registers = resources.registers.budget.consumer;
        b.warp_roles(Occupancy::ctas(resources.ctas_by_registers), |roles| {
            roles.role("warps", 1, registers, |_| {
                b.grid_dependency_launch();
                b.grid_dependency_wait();
                // A CTA has no second tile before each CTA has one.
                let (cta, ctas) = (b.special(Special::Cluster), b.special(Special::ClusterCount));
                let first = cta + b.special(Special::Warp) * ctas;
                let step = ctas * self.spec.tiles_at_once();
                b.for_range(first, self.scheduler.units(), step, |tile| self.tile(tile));
            });
        });
    }

    /// Computes a tile.
    fn tile(&self, tile: U32<'k>) {
        let b = self.b;
        let origin = self.scheduler.origin(tile);
        let lane = b.special(Special::Lane);
        let parts: Vec<_> = b.scope("operands", || {
            let operands = [Side::M, Side::N].into_iter().zip(&self.problem.operands);
            let operands = operands.filter_map(|(side, matrix)| Some((side, *matrix.memory()?)));
            operands.map(|(side, matrix)| self.part(side, matrix, origin, lane)).collect()
        });
        let is_inside = parts.iter().map(|part| part.is_inside).reduce(|a, b| a & b);
        let is_inside = is_inside.unwrap_or_else(|| b.constant(false));
        let sums = b.scope("mainloop", || {
            b.if_else(is_inside, || self.sums(&parts), || self.checked_sums(&parts))
        });
        b.scope("epilogue", || {
            let place = [lane / 4, lane % 4 * 2];
            self.output.store(&self.problem, origin, place, &sums);
        });
    }

    /// What a lane loads of an operand's tile.
    fn part(
        &self,
        side: Side,
        matrix: MemoryMatrix<'k>,
        origin: TileOrigin<'k>,
        lane: U32<'k>,
    ) -> LanePart<'k> {
        let (major, extent) = match side {
            Side::M => (self.spec.a_major, self.spec.tile.m),
            Side::N => (self.spec.b_major, self.spec.tile.n),
        };
        let size = u64::from(ELEMENT_BYTES);
        let start = matrix.address + origin.batch.to_u64() * matrix.batch_stride;
        let first = origin.along(side);
        let (line, depth) = (first + lane / 4, self.depth_of_lane(0));
        let at = |line: U32<'k>, element: U32<'k>| {
            start + line.to_u64() * matrix.stride + element.to_u64() * size
        };
        // The address behind the last element that may be loaded, and that behind the last one of
        // the tile. There is a line even if K is 0.
        let last_line = (matrix.lines.max(1) - 1).to_u64() * matrix.stride;
        let bytes = last_line + matrix.length.to_u64() * size;
        let are_near = (bytes + PAGE_BYTES).ge(matrix.batch_stride);
        let last = are_near.select(matrix.address + matrix.batch_span, start);
        let end = last + bytes;
        let tile_k = self.spec.tile.k;
        let depths = self.depth.div_ceil(tile_k).max(1) * tile_k;
        let (address, reach) = match major {
            OperandMajor::K => (at(line, depth), at(first + (extent - 1), depths)),
            OperandMajor::Mn => (at(depth, line), at(depths - 1, first + extent)),
        };
        let width = self.widths[side as usize];
        let operand = Operand { matrix, major, blocks: extent / BLOCK_LINES, width };
        let is_inside = end.ge(reach);
        let is_inside = match width {
            1 => is_inside,
            _ => {
                let words = matrix.address | matrix.stride | matrix.batch_stride;
                is_inside & (words & u64::from(width * ELEMENT_BYTES - 1)).eq(0)
            }
        };
        LanePart { operand, line, address, is_inside }
    }

    /// Multiplies all of a tile, whose loads stay inside of the matrices of the batch.
    fn sums(&self, parts: &[LanePart<'k>]) -> Vec<Val<'k, ty::F32>> {
        let (b, tile_k) = (self.b, self.spec.tile.k);
        let steps = tile_k / self.mma.k;
        let addresses: Vec<_> = parts.iter().map(|part| part.address).collect();
        let whole = self.depth / tile_k;
        let start = (self.zeros(), addresses);
        let (sums, addresses) = b.for_carry(0, whole, 1, start, |_, (sums, addresses)| {
            let stage = Stage { steps, left: None, checked: false };
            let sums = self.stage(parts, &addresses, stage, sums);
            (sums, self.advance(parts, addresses, tile_k))
        });
        let left = self.depth - whole * tile_k;
        let rest = || {
            let stage = Stage { steps, left: Some(left), checked: false };
            self.stage(parts, &addresses, stage, sums.clone())
        };
        b.if_else(left.ne(0), rest, || sums.clone())
    }

    /// Does the same with checked loads.
    fn checked_sums(&self, parts: &[LanePart<'k>]) -> Vec<Val<'k, ty::F32>> {
        let (b, tile_k) = (self.b, self.spec.tile.k);
        let addresses: Vec<_> = parts.iter().map(|part| part.address).collect();
        let start = (self.zeros(), addresses);
        let (sums, _) = b.for_carry(0, self.depth, tile_k, start, |depth, (sums, addresses)| {
            let left = Some(self.depth - depth);
            let stage = Stage { steps: tile_k / self.mma.k, left, checked: true };
            let sums = self.stage(parts, &addresses, stage, sums);
            (sums, self.advance(parts, addresses, tile_k))
        });
        sums
    }

    fn zeros(&self) -> Vec<Val<'k, ty::F32>> {
        let tile = self.spec.tile;
        vec![self.b.constant(0.0); (tile.m * tile.n / 32) as usize]
    }

    /// The addresses so many depths further on.
    fn advance(
        &self,
        parts: &[LanePart<'k>],
        addresses: Vec<U64<'k>>,
        depths: u32,
    ) -> Vec<U64<'k>> {
        let next = |(part, address): (&LanePart<'k>, U64<'k>)| match part.operand.major {
            OperandMajor::K => address + u64::from(depths * ELEMENT_BYTES),
            OperandMajor::Mn => address + part.operand.matrix.stride * u64::from(depths),
        };
        parts.iter().zip(addresses).map(next).collect()
    }

    /// Adds the products of a stage to the sums.
    fn stage(
        &self,
        parts: &[LanePart<'k>],
        addresses: &[U64<'k>],
        stage: Stage<'k>,
        mut sums: Vec<Val<'k, ty::F32>>,
    ) -> Vec<Val<'k, ty::F32>> {
        let b = self.b;
        for step in 0..stage.steps {
            let loaded: Vec<Vec<Block<'k>>> = parts
                .iter()
                .zip(addresses)
                .map(|(part, &address)| self.load(part, address, stage, step))
                .collect();
            let masks = stage.left.map(|left| self.masks(left, step));
            let masked = |[low, high]: Block<'k>| match masks {
                Some([of_low, of_high]) => [low & of_low, high & of_high],
                None => [low, high],
            };
            let operands = loaded.into_iter().map(|blocks| blocks.into_iter().map(masked));
            let mut operands = operands.map(|blocks| blocks.collect::<Vec<_>>());
            let (Some(a), Some(columns)) = (operands.next(), operands.next()) else {
                continue;
            };
            let mut sums = sums.chunks_mut(self.mma.c_values() as usize);
            for rows in a.chunks(2) {
                // The MMA has the values of both blocks of rows at one pair of depths first.
                let pairs = [0, 1].into_iter().flat_map(|pair| rows.iter().map(move |r| r[pair]));
                let own: Vec<_> = pairs.map(|value| value.as_b32()).collect();
                for (columns, sums) in columns.iter().zip(&mut sums) {
                    let added = b.warp_mma(self.mma, &own, &columns.map(|v| v.as_b32()), sums);
                    sums.copy_from_slice(&added);
                }
            }
        }
        sums
    }

    /// Loads the elements of a step, block by block.
    fn load(
        &self,
        part: &LanePart<'k>,
        address: U64<'k>,
        stage: Stage<'k>,
        step: u32,
    ) -> Vec<Block<'k>> {
        let (b, Operand { matrix, major, blocks, width }) = (self.b, part.operand);
        let width = if stage.checked { 1 } else { width };
        let first = step * self.mma.k;
        let bytes = |elements: u32| u64::from(elements * ELEMENT_BYTES);
        let lines = if major == OperandMajor::K { matrix.lines } else { matrix.length };
        let load = |address: U64<'k>, block: u32, depth: u32| {
            let load = || b.load_narrow(address, ELEMENT_BYTES);
            if !stage.checked {
                return load();
            }
            let line = (part.line + block * BLOCK_LINES).lt(lines);
            let depth = stage.left.map(|left| self.depth_of_lane(first + depth).lt(left));
            let exists = depth.map_or(line, |depth| line & depth);
            b.if_else(exists, load, || b.constant(0))
        };
        let pack = |[low, high]: [U32<'k>; 2]| low.permute_bytes(high, LOW_HALVES);
        match major {
            OperandMajor::K => {
                let mut line = address + bytes(first);
                let mut loaded = vec![];
                for block in 0..blocks {
                    let at = |depth| load(line + bytes(depth), block, depth);
                    loaded.push(match width {
                        4 => b.load_global(line),
                        2 => [0, 2]
                            .map(|depth| b.load_global(line + bytes(depth)))
                            .map(|[word]| word),
                        _ => [0, 2].map(|depth| pack([at(depth), at(depth + 1)])),
                    });
                    line = line + matrix.stride * u64::from(BLOCK_LINES);
                }
                loaded
            }
            OperandMajor::Mn => {
                let mut line = address + matrix.stride * u64::from(first);
                let mut of_depths = vec![];
                for depth in 0..LANE_DEPTHS {
                    let at = |block| load(line + bytes(block * BLOCK_LINES), block, depth);
                    of_depths.push((0..blocks).map(at).collect::<Vec<_>>());
                    line = line + matrix.stride;
                }
                let block = |block: usize| {
                    [0, 2].map(|depth| pack([0, 1].map(|i| of_depths[depth + i][block])))
                };
                (0..blocks as usize).map(block).collect()
            }
        }
    }

    /// The place in a stage of a depth that is counted from the lane's first one.
    fn depth_of_lane(&self, depth: u32) -> U32<'k> {
        self.b.special(Special::Lane) % 4 * LANE_DEPTHS + depth
    }

    /// Masks of the values of a step that keep what is among the first `left` depths of the stage.
    fn masks(&self, left: U32<'k>, step: u32) -> Block<'k> {
        let half = |depth: u32, mask: u32| {
            let depth = self.depth_of_lane(step * self.mma.k + depth);
            depth.lt(left).select::<ty::U32>(mask, 0)
        };
        [0, 2].map(|depth| half(depth, 0xffff) | half(depth + 1, 0xffff_0000))
    }
}

/// The sums of a lane, row by row. They are ordered by MMA, with the MMAs of the same rows next to
/// each other. An MMA has two in each of two rows (PTX ISA, "Matrix Fragments for mma.m16n8k16 with
/// floating point type").
fn groups(spec: &Spec) -> Vec<Group> {
    let mma = DirectSpec::mma(spec.a);
    let (rows, columns) = (spec.tile.m / mma.m, spec.tile.n / mma.n);
    let of_row = |block: u32, half: u32| Group {
        row: block * mma.m + half * BLOCK_LINES,
        values: (0..columns)
            .flat_map(|column| {
                let first = (block * columns + column) * mma.c_values() + half * 2;
                (0..2).map(move |i| (column * mma.n + i, (first + i) as usize))
            })
            .collect(),
    };
    (0..rows).flat_map(|block| (0..2).map(move |half| of_row(block, half))).collect()
}

#[cfg(test)]
mod tests {
    use pgemm_ir::{Element, Fragments};

    use super::*;

    /// The kernel writes the places of a lane's elements as formulas. They are those of the MMA's
    /// layouts, with the depths in an order that A and B share.
    #[test]
    fn lanes_have_the_elements_of_the_mma() {
        let mma = DirectSpec::mma(Element::Bf16);
        let Fragments { a, b, c } = mma.fragments().unwrap();
        let depth_of = |lane: i64, value: i64, half: i64| lane % 4 * 4 + value * 2 + half;
        let mut order = [None; 16];
        for lane in 0..32i64 {
            for (value, half) in (0..2i64).flat_map(|value| [(value, 0), (value, 1)]) {
                let depth = depth_of(lane, value, half);
                let [line, place] = coordinate(&b, lane, value * 2 + half);
                assert_eq!(line, lane / 4);
                let known = order[place as usize].get_or_insert(depth);
                assert_eq!(*known, depth);
                for rows in 0..2 {
                    let [row, place] = coordinate(&a, lane, (value * 2 + rows) * 2 + half);
                    assert_eq!(row, lane / 4 + 8 * rows);
                    assert_eq!(order[place as usize], Some(depth));
                }
            }
            for i in 0..4 {
                let [row, column] = coordinate(&c, lane, i);
                assert_eq!([row, column], [lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2]);
            }
        }
    }

    fn coordinate(layout: &pgemm_cute::TvLayout, lane: i64, element: i64) -> [i64; 2] {
        let index = layout.index(lane, element).unwrap();
        let rows = layout.tile().leaves()[0];
        [index % rows, index / rows]
    }

    #[test]
    fn every_result_of_a_tile_belongs_to_one_lane() {
        let spec: Spec = "bf16-kk-bf16-48x24x16-s0-direct1x1".parse().unwrap();
        let mut places = vec![];
        for lane in 0..32 {
            for Group { row, values } in groups(&spec) {
                places.extend(
                    values.iter().map(|(column, _)| [lane / 4 + row, lane % 4 * 2 + column]),
                );
            }
        }
        places.sort_unstable();
        let all: Vec<_> = (0..48).flat_map(|row| (0..24).map(move |n| [row, n])).collect();
        assert_eq!(places, all);
    }
}

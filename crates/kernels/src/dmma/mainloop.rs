//! The mainloop: TMA fills the ring, consumer warps load fragments from its stages and multiply them. While the MMAs of one
//! step run, the fragments of the next are loaded, which may be in the next stage.

use pgemm_cute::CuteError;
use pgemm_ir::{
    Carried, Element, KernelBuilder, OperandMajor, ReadSlot, RegionId, RegionKind, Ring,
    RingCursor, SmemRequest, Special, Type, Val, ValueId, WarpMma, WriteSlot, ty,
};

use super::WarpPlace;
use super::fragment::{BLOCK_LINES, Block, Load, Orders, Reader};
use super::spec::DmmaSpec;
use crate::batch::BatchMap;
use crate::operand::{BoxPlace, OperandTile};
use crate::scheduler::{Segment, TileOrigin};

/// Alignment of operand tiles: the period of the 128-byte swizzle.
const OPERAND_ALIGN: u32 = 1024;

/// Values of a lane.
type Values<'k> = Vec<Val<'k, ty::F64>>;

/// One operand in shared memory: a tile for each stage.
struct Operand<'k> {
    tile: OperandTile,
    region: RegionId,
    map: BatchMap<'k>,
    boxes: Vec<BoxPlace>,
    major: OperandMajor,
    reader: Reader,
    /// Lines of the tile.
    lines: u32,
    /// Blocks of 16 lines that a warp reads.
    blocks: u32,
}

/// The mainloop of a kernel.
pub(super) struct Mainloop<'k> {
    b: &'k KernelBuilder,
    mma: WarpMma,
    ring: Ring,
    stage_bytes: u32,
    a: Operand<'k>,
    bt: Operand<'k>,
}

/// What one consumer warp reads.
pub(super) struct Warp<'k> {
    a: Part<'k>,
    bt: Part<'k>,
}

/// A warp's part of an operand.
struct Part<'k> {
    /// Swizzled byte offset of this lane's first block in a stage.
    start: Val<'k, ty::U32>,
    /// By step and block.
    loads: Vec<Vec<Vec<Load>>>,
}

/// One step's fragments, by block.
struct Fragments<'k> {
    a: Vec<Values<'k>>,
    bt: Vec<Values<'k>>,
}

impl<'k> Mainloop<'k> {
    /// Declares the ring.
    pub(super) fn new(
        b: &'k KernelBuilder,
        spec: &DmmaSpec,
        fragments: &pgemm_ir::Fragments,
        orders: &Orders,
        [a_map, b_map]: [BatchMap<'k>; 2],
    ) -> Result<Self, CuteError> {
        let mma = spec.mma();
        let warp_tile = spec.warp_tile();
        // `lines` are the tile's and the warp's.
        let operand = |name, (map, major), tile: OperandTile, reader, lines: [u32; 2]| {
            let request = SmemRequest::whole(spec.stages * tile.bytes(), OPERAND_ALIGN);
            Ok::<_, CuteError>(Operand {
                tile,
                region: b.region(name, RegionKind::Data(Element::F64), request),
                map,
                boxes: tile.boxes()?,
                major,
                reader,
                lines: lines[0],
                blocks: lines[1] / BLOCK_LINES,
            })
        };
        let (a_tile, b_tile) = (spec.a_tile(), spec.b_tile());
        let a_block = Block::of_a(&mma, fragments)?;
        let b_block = Block::of_b(&mma, fragments)?;
        let a_reader = Reader::new(a_tile, &a_block, &orders.a_lines, orders)?;
        let b_reader = Reader::new(b_tile, &b_block, &orders.b_lines, orders)?;
        let (rows, columns) = ([spec.tile.m, warp_tile.0], [spec.tile.n, warp_tile.1]);
        Ok(Mainloop {
            b,
            mma,
            stage_bytes: spec.stage_bytes(),
            a: operand("a", (a_map, spec.a_major), a_tile, a_reader, rows)?,
            bt: operand("b", (b_map, spec.b_major), b_tile, b_reader, columns)?,
            ring: Ring::new(b, spec.stages, spec.warps.m * spec.warps.n),
        })
    }

    /// Initialises the ring and fetches the maps: one thread.
    pub(super) fn init(&self) {
        self.ring.init(self.b);
        self.a.map.prefetch_map();
        self.bt.map.prefetch_map();
    }

    /// The first stage.
    pub(super) fn start(&self) -> RingCursor<'k> {
        self.ring.start(self.b)
    }

    /// Producer: fills a stage for each k-tile of a segment of `tile`. One thread.
    pub(super) fn load(
        &self,
        tile: TileOrigin<'k>,
        segment: &Segment<'k>,
        cursor: RingCursor<'k>,
    ) -> RingCursor<'k> {
        let b = self.b;
        let [a_batch, b_batch] = [&self.a, &self.bt].map(|operand| operand.map.place(tile.batch));
        b.for_carry(0, segment.k_count, 1, cursor, |k_tile, cursor| {
            let slot = self.ring.acquire(b, cursor, self.stage_bytes);
            let k = (segment.k_first + k_tile) * self.a.tile.k();
            b.scope("load a", || self.a.fill(b, slot, [tile.m, k, a_batch]));
            b.scope("load b", || self.bt.fill(b, slot, [tile.n, k, b_batch]));
            self.ring.advance(cursor)
        })
    }

    /// What the warp at a place of the grid of warps reads.
    pub(super) fn warp(&self, (m, n): WarpPlace<'k>) -> Result<Warp<'k>, CuteError> {
        Ok(Warp { a: self.a.part(self.b, m)?, bt: self.bt.part(self.b, n)? })
    }

    /// Consumer warp: multiplies `k_count` stages. The sums of each pair of blocks, A's blocks outer; and the cursor behind
    /// the stages.
    pub(super) fn multiply(
        &self,
        warp: &Warp<'k>,
        k_count: Val<'k, ty::U32>,
        cursor: RingCursor<'k>,
    ) -> (Vec<Values<'k>>, RingCursor<'k>) {
        let b = self.b;
        let values = self.mma.c_values() as usize * self.bt.reader.atoms;
        let pairs = (self.a.blocks * self.bt.blocks) as usize;
        let sums = vec![vec![b.constant(0.0); values]; pairs];

        let slot = self.ring.wait_full(b, cursor);
        let first = Fragments {
            a: self.a.fragments(b, &warp.a, (slot.stage(), 0)),
            bt: self.bt.fragments(b, &warp.bt, (slot.stage(), 0)),
        };
        let init = (sums, first, slot, self.ring.advance(cursor));
        let (mut sums, held, slot, cursor) =
            b.for_carry(1, k_count, 1, init, |_, (mut sums, held, slot, cursor)| {
                let held = self.all_but_last_step(warp, &mut sums, held, slot);
                let slot = self.ring.wait_full(b, cursor);
                let next = self.step(warp, &mut sums, held, Some((slot.stage(), 0)));
                (sums, next, slot, self.ring.advance(cursor))
            });
        let held = self.all_but_last_step(warp, &mut sums, held, slot);
        self.step(warp, &mut sums, held, None);
        (sums, cursor)
    }

    /// Multiplies the steps of a stage up to the last, whose fragments it gives back. Nothing is left to read then, and the
    /// stage is free.
    fn all_but_last_step(
        &self,
        warp: &Warp<'k>,
        sums: &mut [Values<'k>],
        first: Fragments<'k>,
        slot: ReadSlot<'k>,
    ) -> Fragments<'k> {
        let steps = self.a.tile.k() / self.mma.k;
        let last = (1..steps)
            .fold(first, |held, step| self.step(warp, sums, held, Some((slot.stage(), step))));
        self.ring.release_after_loads(self.b, slot);
        last
    }

    /// Multiplies one step's fragments, and loads those of the next, where there is one.
    fn step(
        &self,
        warp: &Warp<'k>,
        sums: &mut [Values<'k>],
        held: Fragments<'k>,
        next: Option<Step<'k>>,
    ) -> Fragments<'k> {
        let b = self.b;
        // The first MMAs of the next step need all of B, but only one block of A.
        let bt = next.map_or(vec![], |next| self.bt.fragments(b, &warp.bt, next));
        let mut a = vec![];
        for (i, own) in held.a.iter().enumerate() {
            for (j, columns) in held.bt.iter().enumerate() {
                let sums = &mut sums[i * held.bt.len() + j];
                let (own_b, own_sums) =
                    (columns.len() / self.bt.reader.atoms, sums.len() / self.bt.reader.atoms);
                for (columns, sums) in columns.chunks(own_b).zip(sums.chunks_mut(own_sums)) {
                    let added = b.warp_mma(self.mma, own, columns, sums);
                    sums.copy_from_slice(&added);
                }
            }
            a.extend(next.map(|next| self.a.fragment(b, &warp.a, next, i as u32)));
        }
        Fragments { a, bt }
    }
}

/// A stage, and a step in it.
type Step<'k> = (Val<'k, ty::U32>, u32);

impl<'k> Carried<'k> for Fragments<'k> {
    type Static = [Vec<Vec<Type>>; 2];

    fn split(self, values: &mut Vec<ValueId>) -> Self::Static {
        [self.a, self.bt].map(|fragments| fragments.split(values))
    }

    fn join(
        b: &'k KernelBuilder,
        values: &mut std::vec::IntoIter<ValueId>,
        fixed: Self::Static,
    ) -> Self {
        let [a, bt] = fixed.map(|fixed| Carried::join(b, values, fixed));
        Fragments { a, bt }
    }
}

/// Copies of an operand and stage that are instructions of their own.
const MOST_WRITTEN_OUT: usize = 4;

impl<'k> Operand<'k> {
    /// Starts the copies of the tile at (mn, k) of a matrix.
    fn fill(
        &self,
        b: &'k KernelBuilder,
        slot: WriteSlot<'k>,
        [mn, k, matrix]: [Val<'k, ty::U32>; 3],
    ) {
        let stage = b.smem_address(self.region).offset(slot.stage * self.tile.bytes());
        let load = |place: [Val<'k, ty::U32>; 3]| {
            // Innermost dimension first.
            let coordinates = match self.major {
                OperandMajor::K => [k + place[1], mn + place[0], matrix],
                OperandMajor::Mn => [mn + place[0], k + place[1], matrix],
            };
            self.map.load(stage.offset(place[2]), slot.full, &coordinates);
        };
        // All boxes are as far apart as the first two. Many written out would take more registers than a producer has.
        if let [_, step, ..] = self.boxes[..]
            && self.boxes.len() > MOST_WRITTEN_OUT
        {
            let boxes = self.boxes.len() as u32;
            b.for_range(0, boxes, 1, |i| load([i * step.mn, i * step.k, i * step.bytes]));
        } else {
            for place in &self.boxes {
                load([place.mn, place.k, place.bytes].map(|at| b.constant(at)));
            }
        }
    }

    /// What warp `index` along this operand's lines reads.
    fn part(&self, b: &'k KernelBuilder, index: Val<'k, ty::U32>) -> Result<Part<'k>, CuteError> {
        let (reader, steps) = (&self.reader, self.tile.k() / self.reader.depth());
        let lane = reader.lane_offset(b.special(Special::Lane))?;
        // The second warp's lines, as far as warps share them.
        let first = index * self.tile.operand_offset(self.blocks * BLOCK_LINES % self.lines, 0)?;
        Ok(Part {
            start: lane + first,
            loads: (0..steps)
                .map(|step| (0..self.blocks).map(|block| reader.loads(block, step)).collect())
                .collect::<Result<_, _>>()?,
        })
    }

    /// All fragments of a step.
    fn fragments(&self, b: &'k KernelBuilder, part: &Part<'k>, at: Step<'k>) -> Vec<Values<'k>> {
        (0..self.blocks).map(|block| self.fragment(b, part, at, block)).collect()
    }

    /// The fragment of one block.
    fn fragment(
        &self,
        b: &'k KernelBuilder,
        part: &Part<'k>,
        (stage, step): Step<'k>,
        block: u32,
    ) -> Values<'k> {
        let mut values = vec![];
        for load in &part.loads[step as usize][block as usize] {
            // Stages and warps' parts are aligned to more than what is flipped.
            let start = (stage * self.tile.bytes() + part.start) ^ load.flips();
            let address = b.smem_address(self.region).offset(start).offset(load.offset());
            let loaded = match load.count {
                1 => b.load_shared::<ty::F64, 1>(address).to_vec(),
                _ => b.load_shared::<ty::F64, 2>(address).to_vec(),
            };
            values.extend((load.first..).zip(loaded));
        }
        values.sort_by_key(|(value, _)| *value);
        values.into_iter().map(|(_, loaded)| loaded).collect()
    }
}

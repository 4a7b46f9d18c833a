//! The operands of a stage. They are a list of tiles that lie next to each other in each stage of
//! the ring. A loader fills them by TMA and needs one thread. In a cluster, CTAs load parts of the
//! tiles that they share, and multicast them. Operands that TMA cannot read are loaded by the
//! threads of the producer's warpgroup ([`lines`]), which transpose them if need be ([`turned`]).

mod ahead;
mod batch;
mod lines;
mod loads;
mod turned;

use pgemm_ir::{
    Copies, Element, KernelBuilder, LoadSlot, OperandMajor, ReadSlot, RegionId, RegionKind,
    Release, Retired, Ring, RingCursor, SmemRequest, Special, Val, WARPGROUP_WARPS, ty,
};

use self::ahead::Ahead;
pub(crate) use self::batch::BatchMap;
pub(crate) use self::lines::MemoryMatrix;
use self::lines::Units;
use self::loads::{LoadedTile, TileLoads};
use crate::coordinates::{CtaPlace, Segment, TileOrigin};
use crate::quantity::Side;
use crate::spec::{Cluster, Loader, Spec};
use crate::tiles::operand::{BoxPlace, StageTile};

/// Alignment of operand tiles in bytes. It is the period of the 128-byte swizzle.
pub(crate) const OPERAND_ALIGN: u32 = 1024;

/// Warps of the producer's warpgroup, all of which load if threads do.
const LOADING_WARPS: u32 = WARPGROUP_WARPS;

/// Maximum number of TMA copies of a tile that are unrolled. More copies become a loop, since
/// unrolled copies would take more registers than a producer has.
const MOST_UNROLLED_COPIES: usize = 4;

/// The same of multicast copies of f64 elements. Kernels of them copy the other operand in many
/// boxes, too, and ptxas 13.0 spills 4 bytes with three or four boxes.
const MOST_UNROLLED_MULTICASTS_OF_F64: usize = 2;

/// An operand in global memory.
#[derive(Clone)]
pub(crate) enum OperandMatrix<'k> {
    /// TMA loads it.
    Map(BatchMap<'k>),
    /// Threads load it.
    Memory(MemoryMatrix<'k>),
}

impl<'k> OperandMatrix<'k> {
    /// The matrix in memory, if threads load the operand.
    pub(crate) fn memory(&self) -> Option<&MemoryMatrix<'k>> {
        match self {
            OperandMatrix::Map(_) => None,
            OperandMatrix::Memory(matrix) => Some(matrix),
        }
    }

    /// The tensor map, if TMA loads the operand.
    pub(crate) fn map(&self) -> Option<&BatchMap<'k>> {
        match self {
            OperandMatrix::Map(map) => Some(map),
            OperandMatrix::Memory(_) => None,
        }
    }

    /// `count` if each product has its own matrix, 0 if all products share one.
    pub(crate) fn place(&self, count: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        match self {
            OperandMatrix::Map(map) => map.place(count),
            OperandMatrix::Memory(matrix) => matrix.place(count),
        }
    }
}

/// One operand in shared memory, with one tile in each stage.
struct StagedOperand {
    side: Side,
    tile: StageTile,
    region: RegionId,
    /// What threads load. `None` if TMA loads the operand.
    by_threads: Option<LoadedTile>,
}

/// The operands of a kernel, and the ring that holds their tiles.
pub(crate) struct Operands<'k> {
    b: &'k KernelBuilder,
    list: Vec<StagedOperand>,
    ring: Ring,
    /// Elements along K of a stage, in the form stored in memory.
    depth: u32,
    /// Stages whose loads threads have in flight together.
    in_flight: u32,
    /// Whether threads ask L2 for the stage behind those.
    asks_ahead: bool,
    /// Whether threads pass on the last stage of a tile apart from the others. They have one stage
    /// in flight then.
    last_apart: bool,
    shape: Cluster,
    cta: Option<CtaPlace<'k>>,
}

impl<'k> Operands<'k> {
    /// Declares the tiles and the ring. `readers` warps of a CTA free each stage.
    pub(crate) fn declare(
        b: &'k KernelBuilder,
        spec: &Spec,
        tiles: Vec<(Side, StageTile)>,
        readers: u32,
        cta: Option<CtaPlace<'k>>,
    ) -> Self {
        let mut names = ["a", "b"].into_iter();
        let mut staged = |(side, tile): (Side, StageTile)| {
            let request = SmemRequest::whole(spec.stages * tile.bytes, OPERAND_ALIGN);
            let name = names.next().unwrap_or("operand");
            let region = b.region(name, RegionKind::Data(tile.tensor_map.element), request);
            let by_threads = match spec.loader(side) {
                Loader::Tma => None,
                Loader::Threads => Some(LoadedTile::new(&tile, spec.turns(side))),
            };
            StagedOperand { side, tile, region, by_threads }
        };
        let list: Vec<StagedOperand> = tiles.into_iter().map(&mut staged).collect();
        let by_threads = list.iter().filter(|operand| operand.by_threads.is_some()).count();
        // Each warp that reads a stage frees it in every CTA that loads parts of the stage.
        let senders = spec.cluster.m + spec.cluster.n - 1;
        let ring = Ring::new(b, "ring", spec.stages, readers * senders);
        let ring = match by_threads {
            0 => ring,
            some => ring.filled_by(LOADING_WARPS, some < list.len()),
        };
        let in_flight = if by_threads > 0 { spec.stages_in_flight() } else { 1 };
        let asks_ahead = by_threads > 0 && spec.asks_ahead();
        let last_apart = by_threads > 0 && spec.passes_last_stage_apart();
        let depth = spec.stored_tile_k();
        Operands {
            b,
            list,
            ring,
            depth,
            in_flight,
            asks_ahead,
            last_apart,
            shape: spec.cluster,
            cta,
        }
    }

    /// The ring.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Initialises the ring's barriers. One thread calls it.
    pub(crate) fn init(&self) {
        self.ring.init(self.b);
    }

    /// A cursor at the first stage.
    pub(crate) fn start(&self) -> RingCursor<'k> {
        self.ring.start(self.b)
    }

    /// The region of operand `index`, and the bytes from its tile in one stage to its tile in the
    /// next.
    pub(crate) fn region(&self, index: usize) -> (Val<'k, ty::Smem>, u32) {
        let operand = &self.list[index];
        (self.b.smem_address(operand.region), operand.tile.bytes)
    }

    /// The tile of operand `index` in a stage.
    pub(crate) fn stage(&self, index: usize, stage: Val<'k, ty::U32>) -> Val<'k, ty::Smem> {
        let (region, bytes) = self.region(index);
        region.offset(stage * bytes)
    }

    /// Whether threads load an operand. [`load`](Self::load) is then for the producer's warpgroup.
    pub(crate) fn are_loaded_by_threads(&self) -> bool {
        self.list.iter().any(|operand| operand.by_threads.is_some())
    }

    /// Loader: fills a stage for each k-tile of a segment of the tile at `origin`. There is one
    /// matrix for each operand. `before` runs before each stage, with the number of the stage. One
    /// thread calls this, or the producer's warpgroup if threads load an operand.
    pub(crate) fn load(
        &self,
        matrices: &[OperandMatrix<'k>],
        origin: TileOrigin<'k>,
        segment: &Segment<'k>,
        cursor: RingCursor<'k>,
        before: impl FnOnce(Val<'k, ty::U32>),
    ) -> RingCursor<'k> {
        let b = self.b;
        if self.are_loaded_by_threads() {
            return self.load_by_threads(matrices, origin, segment, cursor);
        }
        let places: Vec<_> = matrices.iter().map(|matrix| matrix.place(origin.batch)).collect();
        b.for_carry(0, segment.k_count, 1, cursor, |k_tile, cursor| {
            before(k_tile);
            let k = || (segment.k_first + k_tile) * self.depth;
            self.fill(matrices, origin, &k, &places, cursor);
            self.ring.advance(cursor)
        })
    }

    /// Starts the copies of a stage by TMA. One thread calls this.
    fn fill(
        &self,
        matrices: &[OperandMatrix<'k>],
        origin: TileOrigin<'k>,
        k: &dyn Fn() -> Val<'k, ty::U32>,
        places: &[Val<'k, ty::U32>],
        cursor: RingCursor<'k>,
    ) {
        self.ring.fill(self.b, cursor, |stage, copies| {
            let shares: Vec<_> = self.list.iter().map(|operand| self.share(operand.side)).collect();
            let k = k();
            for (index, operand) in self.list.iter().enumerate() {
                let Some(map) = matrices[index].map() else { continue };
                let line = origin.along(operand.side);
                self.b.scope("load", || {
                    let place = [line, k, places[index]];
                    self.load_tile(index, stage, copies, map, place, shares[index]);
                });
            }
        });
    }

    /// Does the same as [`load`](Self::load) if threads load an operand. One thread starts the
    /// copies of the others.
    fn load_by_threads(
        &self,
        matrices: &[OperandMatrix<'k>],
        origin: TileOrigin<'k>,
        segment: &Segment<'k>,
        cursor: RingCursor<'k>,
    ) -> RingCursor<'k> {
        let (b, in_flight) = (self.b, self.in_flight);
        let places: Vec<_> = matrices.iter().map(|matrix| matrix.place(origin.batch)).collect();
        let has_copies = matrices.iter().any(|matrix| matrix.map().is_some());
        let (mut tiles, mut requests) = (vec![], vec![]);
        for (index, (operand, matrix)) in self.list.iter().zip(matrices).enumerate() {
            if let (OperandMatrix::Memory(matrix), Some(tile)) = (matrix, &operand.by_threads) {
                tiles.push((index, TileLoads::new(b, tile, operand.side, *matrix, origin)));
                if let (true, LoadedTile::Lines(tile)) = (self.asks_ahead, tile) {
                    requests.push(Ahead::new(b, tile, operand.side, matrix, origin));
                }
            }
        }
        let k_of = |k_tile: Val<'k, ty::U32>| (segment.k_first + k_tile) * self.depth;

        let load = |k_tile: Val<'k, ty::U32>| -> Vec<Units<'k>> {
            let exists = k_tile.lt(segment.k_count);
            tiles.iter().map(|(_, tile)| tile.load(k_of(k_tile), exists, |_| {})).collect()
        };
        let ask = |k_tile: Val<'k, ty::U32>| {
            let exists = k_tile.lt(segment.k_count);
            requests.iter().for_each(|ahead| ahead.ask(k_of(k_tile), exists));
        };
        // Passes on stage `k_tile`, whose operands `store` stores.
        let pass_on = |k_tile: Val<'k, ty::U32>, cursor, store: &mut dyn FnMut(usize, &_, _, _)| {
            let k = k_of(k_tile);
            if has_copies {
                b.if_(b.special(Special::Warp).eq(0), || {
                    b.if_(b.elect(), || self.fill(matrices, origin, &|| k, &places, cursor));
                });
            }
            let slot = self.ring.wait_free(b, cursor);
            for (number, (index, tile)) in tiles.iter().enumerate() {
                let stage = self.stage(*index, slot.stage());
                store(number, tile, stage, k);
                let store_ends = || tile.store_ends(stage, k);
                match self.last_apart {
                    true => b.if_(tile.is_at_end(), store_ends),
                    false => store_ends(),
                }
            }
            self.ring.stored(b, slot);
            self.ring.advance(cursor)
        };
        // Does so, and loads the stage that comes to the same registers.
        let pass_and_load = |k_tile: Val<'k, ty::U32>, cursor, units: &[Units<'k>]| {
            let next = k_tile + in_flight;
            let exists = next.lt(segment.k_count);
            ask(next + 1);
            let mut loaded = vec![];
            let cursor =
                pass_on(k_tile, cursor, &mut |number, tile: &TileLoads<'k, '_>, stage, k| {
                    let store = |chunk| tile.store(stage, k, chunk, &units[number]);
                    loaded.push(tile.load(k_of(next), exists, store));
                });
            (cursor, loaded)
        };
        let units: Vec<_> = (0..in_flight).map(|ahead| load(b.constant(ahead))).collect();
        ask(b.constant(in_flight));
        let start = (cursor, units);
        let count = segment.k_count - u32::from(self.last_apart);
        let (cursor, units) =
            b.for_carry(0, count, in_flight, start, |first, (cursor, mut units)| {
                let mut cursor = cursor;
                for (ahead, units) in (0..in_flight).zip(&mut units) {
                    let old = std::mem::take(units);
                    let pass_on = || b.scope("load", || pass_and_load(first + ahead, cursor, &old));
                    (cursor, *units) = match ahead {
                        0 => pass_on(),
                        _ => b.if_else((first + ahead).lt(segment.k_count), pass_on, || {
                            (cursor, old.clone())
                        }),
                    };
                }
                (cursor, units)
            });
        if !self.last_apart {
            return cursor;
        }
        b.scope("load", || {
            pass_on(count, cursor, &mut |number, tile: &TileLoads<'k, '_>, stage, k| {
                tile.store_last(stage, k, &units[0][number]);
            })
        })
    }

    /// This CTA's share of the tiles of a side, if the cluster shares them.
    fn share(&self, side: Side) -> Option<Share<'k>> {
        let (b, shape) = (self.b, self.shape);
        let cta = self.cta?;
        let share = match side {
            // CTAs of one row have rank m + n * shape.m for every n.
            Side::M => {
                let row: u32 = (0..shape.n).map(|n| 1 << (n * shape.m)).sum();
                Share { peers: shape.n, index: cta.n, mask: b.constant::<ty::U32>(row) << cta.m }
            }
            Side::N => {
                let column = (1u32 << shape.m) - 1;
                let first = cta.n * shape.m;
                let mask = b.constant::<ty::U32>(column) << first;
                Share { peers: shape.m, index: cta.m, mask }
            }
        };
        Some(share).filter(|share| share.peers > 1)
    }

    /// Starts the copies of this CTA's share of an operand's tile at (line, k) of a matrix.
    fn load_tile(
        &self,
        index: usize,
        stage: Val<'k, ty::U32>,
        copies: &Copies<'k>,
        map: &BatchMap<'k>,
        [line, k, matrix]: [Val<'k, ty::U32>; 3],
        share: Option<Share<'k>>,
    ) {
        let (b, tile) = (self.b, &self.list[index].tile);
        let destination = self.stage(index, stage);
        let Some(share) = share else {
            let most = MOST_UNROLLED_COPIES;
            return tile.copy(b, map, copies, destination, [line, k, matrix], most);
        };
        let most_unrolled = match tile.tensor_map.element {
            Element::F64 => MOST_UNROLLED_MULTICASTS_OF_F64,
            _ => MOST_UNROLLED_COPIES,
        };
        match tile.slice {
            Some((lines, bytes)) => {
                let first_line = share.index * lines;
                let place = match tile.major {
                    OperandMajor::K => [line + first_line, k, matrix],
                    OperandMajor::Mn => [line, k + first_line, matrix],
                };
                let slice = destination.offset(share.index * bytes);
                copies.slices(share.peers, share.mask, |copies| {
                    tile.copy(b, map, copies, slice, place, most_unrolled);
                });
            }
            None if (tile.boxes.len() as u32).is_multiple_of(share.peers) => {
                // Each peer copies every so many boxes, which are at equal distances.
                let number = |i: Val<'k, ty::U32>| i * share.peers + share.index;
                let copy = |i: Val<'k, ty::U32>, copies: &Copies<'k>| {
                    let [_, step, ..] = tile.boxes[..] else { return };
                    let place = [step.mn, step.k, step.bytes].map(|step| number(i) * step);
                    tile.copy_box(map, copies, destination, [line, k, matrix], place);
                };
                let own = tile.boxes.len() as u32 / share.peers;
                copies.slices(share.peers, share.mask, |copies| {
                    if own as usize > most_unrolled {
                        return copies.repeat(own, copy);
                    }
                    for i in 0..own {
                        copy(b.constant(i), copies);
                    }
                });
            }
            None => {
                // Peers walk the same segments. So they agree on the stage of a k-tile and on the
                // CTA that loads each box. The stage is free in all peers: this CTA has waited for
                // its empty barrier, which also counts the peers' consumers.
                let boxes = tile.boxes.len() as u32;
                for (number, place) in (0..boxes).zip(&tile.boxes) {
                    let turn = (stage * boxes + number) % share.peers;
                    let my_turn = turn.eq(share.index);
                    copies.in_turn(my_turn, share.mask, |copies| {
                        tile.copy_box(map, copies, destination, [line, k, matrix], place.values(b));
                    });
                }
            }
        }
    }

    /// Loader, at its end: waits for the last arrivals of the peers. Otherwise they might arrive
    /// after the CTA has ended.
    pub(crate) fn drain(&self, cursor: RingCursor<'k>) {
        if self.cta.is_some() {
            self.ring.drain(self.b, cursor);
        }
    }

    /// Consumer warp: frees a stage after the MMAs that read it have retired.
    pub(crate) fn release(&self, retired: Retired<ReadSlot<'k>>) {
        self.ring.release(self.b, retired, self.producers());
    }

    /// Consumer warp: frees a stage that it has read with loads.
    pub(crate) fn release_after_loads(&self, slot: LoadSlot<'k>) {
        self.ring.release_after_loads(self.b, slot, self.producers());
    }

    /// The producers that fill the stages of this CTA.
    fn producers(&self) -> Release<'k> {
        let lane = self.b.special(Special::Lane);
        match self.cta {
            None => Release::Here { first_lane: lane.eq(0) },
            Some(cta) => {
                // The lane is the rank of a CTA. CTAs of this row load parts of our A, and CTAs of
                // this column load parts of our B.
                let fills_a = (lane % self.shape.m).eq(cta.m);
                let fills_b = (lane / self.shape.m).eq(cta.n);
                let arrives = lane.lt(self.shape.size()) & (fills_a | fills_b);
                Release::Cluster { arrives, rank: lane }
            }
        }
    }
}

/// A CTA's share of a tile that its peers in the cluster need too.
#[derive(Clone, Copy)]
struct Share<'k> {
    peers: u32,
    /// The index of this CTA among its peers.
    index: Val<'k, ty::U32>,
    /// The peers' ranks as a bit mask.
    mask: Val<'k, ty::U32>,
}

impl BoxPlace {
    fn values<'k>(&self, b: &'k KernelBuilder) -> [Val<'k, ty::U32>; 3] {
        [self.mn, self.k, self.bytes].map(|at| b.constant(at))
    }
}

impl StageTile {
    /// Starts the copies of all boxes of the tile at (line, k) of a matrix.
    fn copy<'k>(
        &self,
        b: &'k KernelBuilder,
        map: &BatchMap<'k>,
        copies: &Copies<'k>,
        destination: Val<'k, ty::Smem>,
        origin: [Val<'k, ty::U32>; 3],
        most_unrolled: usize,
    ) {
        // All boxes are at equal distances.
        if let [_, step, ..] = self.boxes[..]
            && self.boxes.len() > most_unrolled
        {
            copies.repeat(self.boxes.len() as u32, |i, copies| {
                let place = [i * step.mn, i * step.k, i * step.bytes];
                self.copy_box(map, copies, destination, origin, place);
            });
        } else {
            for place in &self.boxes {
                self.copy_box(map, copies, destination, origin, place.values(b));
            }
        }
    }

    /// Starts the copy of one box of the tile at (line, k) of a matrix. The place of the box is its
    /// first element along M or N, that along K, and its first byte in the stage.
    fn copy_box<'k>(
        &self,
        map: &BatchMap<'k>,
        copies: &Copies<'k>,
        destination: Val<'k, ty::Smem>,
        [line, k, matrix]: [Val<'k, ty::U32>; 3],
        [along, depth, bytes]: [Val<'k, ty::U32>; 3],
    ) {
        // The innermost dimension comes first.
        let coordinates = match self.major {
            OperandMajor::K => [k + depth, line + along, matrix],
            OperandMajor::Mn => [line + along, k + depth, matrix],
        };
        map.load(copies, destination.offset(bytes), &coordinates);
    }
}

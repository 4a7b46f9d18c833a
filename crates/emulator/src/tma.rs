//! TMA: copies of boxes of tensor maps between global and shared memory. Each copy is an actor.

mod reduction;
mod transfer;

use std::rc::Rc;

use pgemm_ir::{ReductionOp, SwizzleMode, im2col_offset_limit};

use crate::fault::{At, Outcome};
use crate::flight::{BoxPlace, Flight, FlightKind};
use crate::machine::{Emulator, Operation};
use crate::maps::FoundMap;
use crate::program::{Program, Slot, TensorMap, TmaLoad};
use crate::report::{ActorKind, ReportKind};
use crate::state::{BulkThread, Flow, Warp};

/// Unit of bytes in which boxes begin along the innermost dimension.
const TMA_UNIT_BYTES: i64 = 16;

/// Alignment of a box in shared memory: the period of the swizzle pattern.
fn box_alignment(swizzle: SwizzleMode) -> u32 {
    swizzle.span_bytes().map_or(128, |span| span * 8)
}

/// A copy that is about to start: its box, and the first byte of the box in shared memory.
pub(crate) struct Copy {
    pub(crate) found: FoundMap,
    pub(crate) place: BoxPlace,
    pub(crate) shared: u32,
}

/// Why an im2col load cannot begin at a place: it must be a position of the filter, and offsets
/// have few bits (PTX ISA, "im2col mode").
fn im2col_misuse(map: &TensorMap, place: &BoxPlace) -> Option<String> {
    let axes = map.spec.im2col.as_ref()?;
    let limit = im2col_offset_limit(axes.len());
    for (at, axis) in axes.iter().enumerate() {
        let (lower, last) = (i64::from(axis.lower), axis.last(map.argument.extents[at + 1]));
        let (position, offset) = (place.first[at + 1], place.offsets[at]);
        if !(lower..=last).contains(&position) || (position - lower) % i64::from(axis.stride) != 0 {
            let (dimension, stride) = (at + 1, axis.stride);
            return Some(format!(
                "an im2col load begins at {position} in dimension {dimension}, whose positions are \
                 {lower} to {last} in steps of {stride}"
            ));
        }
        if offset >= i64::from(limit) {
            return Some(format!(
                "im2col offset {offset} of dimension {}: 0 to {} are possible",
                at + 1,
                limit - 1
            ));
        }
    }
    None
}

impl Emulator<'_> {
    /// Makes the checks of loads and stores. Only im2col loads have offsets.
    fn tma_box(
        &self,
        program: &Program,
        warp: &Warp,
        at: At,
        lane: usize,
        (map, coordinates, offsets, shared): (Slot, &[Slot], &[Slot], Slot),
        what: &str,
    ) -> Outcome<Copy> {
        let pointer = warp.get(program, map, lane);
        let of = (coordinates.len(), !offsets.is_empty());
        let found = self.map_of_rank(program, pointer, at, of, what)?;
        let spec = &found.map.spec;
        let BoxPlace { mut first, offsets: mut added } = BoxPlace::default();
        for (added, &slot) in added.iter_mut().zip(offsets) {
            *added = i64::from(warp.get(program, slot, lane) as u32);
        }
        for (first, &slot) in first.iter_mut().zip(coordinates) {
            *first = i64::from(warp.get(program, slot, lane) as u32 as i32);
        }
        // Otherwise the hardware stops with an illegal instruction, whatever the address of the
        // map.
        let begins = first[0] * i64::from(spec.element.bytes());
        if begins % TMA_UNIT_BYTES != 0 {
            let message = format!(
                "a box begins at byte {begins} of a line, but boxes begin at multiples of \
                 {TMA_UNIT_BYTES}"
            );
            return Err(self.fault(ReportKind::TmaMisuse, message, at, what));
        }
        let place = BoxPlace { first, offsets: added };
        if let Some(message) = im2col_misuse(&found.map, &place) {
            return Err(self.fault(ReportKind::TmaMisuse, message, at, what));
        }
        let address = warp.get(program, shared, lane);
        let (bytes, align) = (spec.box_bytes(), box_alignment(spec.swizzle));
        // The swizzle permutes whole rows of 128 bytes.
        let touched =
            if spec.swizzle == SwizzleMode::None { bytes } else { bytes.next_multiple_of(128) };
        self.shared_offset(at.id.rank, address, touched, align, at, what)?;
        Ok(Copy { found, place, shared: address as u32 })
    }

    pub(crate) fn tma_load(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        load: &TmaLoad,
    ) -> Outcome<Flow> {
        let what = "issues a TMA load";
        self.after_dependency(program, warp, at, what)?;
        for lane in warp.active_lanes() {
            let parts = (load.map, &load.coordinates[..], &load.offsets[..], load.destination);
            let copy = self.tma_box(program, warp, at, lane, parts, what)?;
            let mask = load.mask.map(|mask| warp.get(program, mask, lane));
            let barrier = warp.get(program, load.barrier, lane) as u32;
            self.launch_loads(warp, at, lane, copy, (barrier, mask), what)?;
        }
        warp.tick();
        Ok(Flow::Visible)
    }

    /// Starts the copy of an area to every CTA of a mask, or to the own CTA.
    pub(crate) fn launch_loads(
        &mut self,
        warp: &Warp,
        at: At,
        lane: usize,
        copy: Copy,
        (barrier, mask): (u32, Option<u64>),
        what: &str,
    ) -> Outcome {
        let Copy { found, place, shared } = copy;
        let ctas = self.cluster(at.id.slot).ctas.len();
        let mask = mask.unwrap_or(1 << at.id.rank);
        if mask == 0 || mask >> ctas != 0 {
            let message = format!("CTA mask {mask:#b} in a cluster of {ctas} CTAs");
            return Err(self.fault(ReportKind::TmaMisuse, message, at, what));
        }
        let knowledge = Rc::new(warp.knowledge.clone());
        let mut actor = self.actor(at);
        actor.kind = ActorKind::TmaLoad;
        actor.lane = Some(lane as u32);
        for rank in (0..ctas).filter(|rank| mask >> rank & 1 != 0) {
            self.check_peer(rank, at, what)?;
            let barrier = self.known_mbarrier(warp, rank, barrier, true, at, what)?;
            let flight = Flight {
                slot: at.id.slot,
                cluster: self.cluster(at.id.slot).id,
                rank,
                actor,
                loc: at.loc,
                knowledge: Rc::clone(&knowledge),
                map: Rc::clone(&found.map),
                place,
                shared,
                kind: FlightKind::Load { barrier },
            };
            let target = &self.cluster(at.id.slot).ctas[rank].mbarriers[barrier];
            let access = flight.access(target.component, target.time());
            self.read_map(warp, lane, &found, access, what)?;
            self.launch_flight(flight);
        }
        Ok(())
    }

    fn launch_flight(&mut self, flight: Flight) {
        self.cluster_mut(flight.slot).flights += 1;
        let index = self.free_flights.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() - 1
        });
        self.flights[index] = Some(flight);
        self.ready_operations.push_back(Operation::Flight(index));
    }

    pub(crate) fn tma_store(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        (map, source, coordinates): (Slot, Slot, &[Slot]),
        reduction: Option<ReductionOp>,
    ) -> Outcome<Flow> {
        let what =
            if reduction.is_some() { "issues a TMA reduction" } else { "issues a TMA store" };
        self.after_dependency(program, warp, at, what)?;
        for lane in warp.active_lanes() {
            let parts = (map, coordinates, &[][..], source);
            let copy = self.tma_box(program, warp, at, lane, parts, what)?;
            let element = copy.found.map.spec.element;
            if let Some(op) = reduction.filter(|op| !op.combines(element, true)) {
                let message = format!("the reduction {op} of {element} does not exist");
                return Err(self.fault(ReportKind::TmaMisuse, message, at, what));
            }
            self.launch_store(warp, at, lane, copy, reduction, what)?;
        }
        warp.tick();
        Ok(Flow::Visible)
    }

    /// Starts the copy of an area to global memory, in the open bulk group of a thread.
    pub(crate) fn launch_store(
        &mut self,
        warp: &mut Warp,
        at: At,
        lane: usize,
        copy: Copy,
        reduction: Option<ReductionOp>,
        what: &str,
    ) -> Outcome {
        let Copy { found, place, shared } = copy;
        let thread = match warp.bulk.iter().position(|t| t.lane == lane as u32) {
            Some(thread) => thread,
            None => {
                let cluster = self.cluster_mut(at.id.slot);
                warp.bulk.push(BulkThread {
                    lane: lane as u32,
                    read_component: cluster.new_component(),
                    write_component: cluster.new_component(),
                    ..BulkThread::default()
                });
                warp.bulk.len() - 1
            }
        };
        let thread = &mut warp.bulk[thread];
        let group = thread.committed as usize;
        if thread.unread.len() <= group {
            thread.unread.push(0);
            thread.unwritten.push(0);
        }
        thread.open += 1;
        thread.unread[group] += 1;
        thread.unwritten[group] += 1;
        thread.loc = Some(at.loc);
        let component = thread.read_component;
        let mut actor = self.actor(at);
        actor.kind = ActorKind::TmaStore;
        actor.lane = Some(lane as u32);
        let flight = Flight {
            slot: at.id.slot,
            cluster: self.cluster(at.id.slot).id,
            rank: at.id.rank,
            actor,
            loc: at.loc,
            knowledge: Rc::new(warp.knowledge.clone()),
            map: Rc::clone(&found.map),
            place,
            shared,
            kind: FlightKind::Store {
                warp: at.id.warp,
                lane: lane as u32,
                group,
                reduction,
                staged: None,
            },
        };
        // A wait for the reads of the group also covers the reads of its maps.
        let access = flight.access(component, group as u32 + 1);
        self.read_map(warp, lane, &found, access, what)?;
        self.launch_flight(flight);
        Ok(())
    }
}

//! TMA: copies of boxes of tensor maps between global and shared memory. Each copy is an actor.

use std::rc::Rc;

use pgemm_ir::{Format, SwizzleMode};

use crate::fault::{At, Outcome};
use crate::flight::{Flight, FlightKind};
use crate::machine::{Emulator, Operation};
use crate::maps::FoundMap;
use crate::number;
use crate::program::{Program, SMEM_BASE, Slot, TensorMap, TmaLoad};
use crate::report::{ActorKind, ReportKind};
use crate::shadow::{self, Access, CELL_BYTES, Observer, ShadowSpace};
use crate::state::{BulkThread, Flow, Wait, Warp, WarpId};

/// Unit of bytes in which boxes begin along the innermost dimension.
const TMA_UNIT_BYTES: i64 = 16;

/// Unit of bytes of copies and swizzles.
const CHUNK_BYTES: u32 = 16;

/// The part of a box row that lies within the tensor.
struct Row {
    /// Row in the box.
    index: u32,
    /// First byte within the row that lies in the tensor, and number of such bytes.
    start: usize,
    bytes: usize,
    /// Global address of the first such byte.
    address: u64,
}

/// The rows of a box that lie at least partly within the tensor.
fn rows(map: &TensorMap, first: [i64; 5]) -> Vec<Row> {
    let (spec, argument) = (&map.spec, &map.argument);
    let element = u64::from(spec.element.bytes());
    let inner = i64::from(spec.box_extents[0]);
    let begin = (-first[0]).clamp(0, inner);
    let end = (argument.extents[0] as i64 - first[0]).clamp(begin, inner);
    let count: u32 = spec.box_extents[1..].iter().product();
    let mut rows = Vec::new();
    for index in 0..count {
        let mut left = index;
        let mut address = Some(argument.address);
        let outer = first.iter().zip(&spec.box_extents).zip(&argument.extents).skip(1);
        for (((&first, &extent), &tensor_extent), &stride) in outer.zip(&argument.strides) {
            let at = first + i64::from(left % extent);
            left /= extent;
            let inside = (0..tensor_extent as i64).contains(&at);
            address = address
                .filter(|_| inside)
                .map(|base| base.wrapping_add((at as u64).wrapping_mul(stride)));
        }
        if let Some(base) = address
            && begin < end
        {
            rows.push(Row {
                index,
                start: (begin as u64 * element) as usize,
                bytes: ((end - begin) as u64 * element) as usize,
                address: base.wrapping_add((first[0] + begin) as u64 * element),
            });
        }
    }
    rows
}

/// Alignment of a box in shared memory: the period of the swizzle pattern.
fn box_alignment(swizzle: SwizzleMode) -> u32 {
    swizzle.span_bytes().map_or(128, |span| span * 8)
}

impl Emulator<'_> {
    /// Makes the checks of loads and stores, and returns the map, the coordinates and the address
    /// in shared memory.
    fn tma_box(
        &self,
        program: &Program,
        warp: &Warp,
        at: At,
        lane: usize,
        (map, coordinates, shared): (Slot, &[Slot], Slot),
        what: &str,
    ) -> Outcome<(FoundMap, [i64; 5], u32)> {
        let pointer = warp.get(program, map, lane);
        let found = self.map_of_rank(program, pointer, at, coordinates.len(), what)?;
        let spec = &found.map.spec;
        let mut first = [0; 5];
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
        let address = warp.get(program, shared, lane);
        let (bytes, align) = (spec.box_bytes(), box_alignment(spec.swizzle));
        // The swizzle permutes whole rows of 128 bytes.
        let touched =
            if spec.swizzle == SwizzleMode::None { bytes } else { bytes.next_multiple_of(128) };
        self.shared_offset(at.id.rank, address, touched, align, at, what)?;
        Ok((found, first, address as u32))
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
            let parts = (load.map, &load.coordinates[..], load.destination);
            let (found, first, shared) = self.tma_box(program, warp, at, lane, parts, what)?;
            let ctas = self.cluster(at.id.slot).ctas.len();
            let mask = match load.mask {
                Some(mask) => warp.get(program, mask, lane),
                None => 1 << at.id.rank,
            };
            if mask == 0 || mask >> ctas != 0 {
                let message = format!("CTA mask {mask:#b} in a cluster of {ctas} CTAs");
                return Err(self.fault(ReportKind::TmaMisuse, message, at, what));
            }
            let barrier_address = warp.get(program, load.barrier, lane) as u32;
            let knowledge = Rc::new(warp.knowledge.clone());
            let mut actor = self.actor(at);
            actor.kind = ActorKind::TmaLoad;
            actor.lane = Some(lane as u32);
            for rank in (0..ctas).filter(|rank| mask >> rank & 1 != 0) {
                self.check_peer(rank, at, what)?;
                let barrier = self.known_mbarrier(warp, rank, barrier_address, true, at, what)?;
                let flight = Flight {
                    slot: at.id.slot,
                    cluster: self.cluster(at.id.slot).id,
                    rank,
                    actor,
                    loc: at.loc,
                    knowledge: Rc::clone(&knowledge),
                    map: Rc::clone(&found.map),
                    first,
                    shared,
                    kind: FlightKind::Load { barrier },
                };
                let target = &self.cluster(at.id.slot).ctas[rank].mbarriers[barrier];
                let access = flight.access(target.component, target.time());
                self.read_map(warp, lane, &found, access, what)?;
                self.launch_flight(flight);
            }
        }
        warp.tick();
        Ok(Flow::Visible)
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
        map: Slot,
        source: Slot,
        coordinates: &[Slot],
    ) -> Outcome<Flow> {
        let what = "issues a TMA store";
        self.after_dependency(program, warp, at, what)?;
        for lane in warp.active_lanes() {
            let parts = (map, coordinates, source);
            let (found, first, shared) = self.tma_box(program, warp, at, lane, parts, what)?;
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
                first,
                shared,
                kind: FlightKind::Store {
                    warp: at.id.warp,
                    lane: lane as u32,
                    group,
                    staged: None,
                },
            };
            // A wait for the reads of the group also covers the reads of its maps.
            let access = flight.access(component, group as u32 + 1);
            self.read_map(warp, lane, &found, access, what)?;
            self.launch_flight(flight);
        }
        warp.tick();
        Ok(Flow::Visible)
    }

    pub(crate) fn bulk_commit(&mut self, warp: &mut Warp) {
        let active = warp.active;
        for thread in warp.bulk.iter_mut().filter(|thread| active >> thread.lane & 1 != 0) {
            thread.open = 0;
            thread.committed += 1;
            let groups = thread.committed as usize;
            // A group may be empty.
            thread.unread.resize(groups, 0);
            thread.unwritten.resize(groups, 0);
        }
    }

    pub(crate) fn bulk_wait(&mut self, warp: &mut Warp, pending: u32, read: bool) -> Outcome<Flow> {
        let active = warp.active;
        let Warp { bulk, knowledge, .. } = warp;
        let waiting = || move |thread: &BulkThread| active >> thread.lane & 1 != 0;
        for thread in bulk.iter().filter(|&thread| waiting()(thread)) {
            let target = thread.committed.saturating_sub(pending) as usize;
            let left = if read { &thread.unread } else { &thread.unwritten };
            let unchecked = if read { thread.waited } else { thread.waited_full } as usize;
            if left[unchecked.min(target)..target].iter().any(|&operations| operations > 0) {
                return Ok(Flow::Blocked(Wait::Bulk { pending, read }));
            }
        }
        for thread in bulk.iter_mut().filter(|thread| waiting()(thread)) {
            let target = thread.committed.saturating_sub(pending);
            thread.waited = thread.waited.max(target);
            knowledge.before.raise(thread.read_component, target);
            if !read {
                thread.waited_full = thread.waited_full.max(target);
                knowledge.before.raise(thread.write_component, target);
            }
        }
        Ok(Flow::Visible)
    }

    /// Advances a TMA operation by a step.
    pub(crate) fn advance_flight(&mut self, index: usize) -> Outcome {
        let Some(mut flight) = self.flights[index].take() else { return Ok(()) };
        let map = Rc::clone(&flight.map);
        match &mut flight.kind {
            FlightKind::Load { barrier } => {
                let barrier = *barrier;
                self.land(&flight, &map, barrier)?;
            }
            FlightKind::Store { warp, lane, group, staged } => {
                let (warp, lane, group) = (*warp, *lane, *group);
                let id = WarpId { slot: flight.slot, rank: flight.rank, warp };
                match staged.take() {
                    None => {
                        let data = self.stage_store(&flight, &map, id, lane, group)?;
                        if let FlightKind::Store { staged, .. } = &mut flight.kind {
                            *staged = Some(data);
                        }
                        self.store_progress(id, lane, |thread| thread.unread[group] -= 1);
                        self.flights[index] = Some(flight);
                        self.ready_operations.push_back(Operation::Flight(index));
                        return Ok(());
                    }
                    Some(data) => {
                        self.write_store(&flight, &map, id, lane, group, &data)?;
                        self.store_progress(id, lane, |thread| thread.unwritten[group] -= 1);
                        self.statistics.tma_stores += 1;
                    }
                }
            }
        }
        self.free_flights.push(index);
        self.cluster_mut(flight.slot).flights -= 1;
        self.retire_cluster(flight.slot);
        Ok(())
    }

    /// Copies a box to shared memory and completes its bytes on the mbarrier.
    fn land(&mut self, flight: &Flight, map: &TensorMap, barrier: usize) -> Outcome {
        let what = "copies a box";
        let (slot, rank) = (flight.slot, flight.rank);
        let cta = &self.cluster(slot).ctas[rank];
        if cta.running == 0 {
            let message = format!("CTA {} has exited before a load into it landed", cta.index);
            return Err(flight.fault(ReportKind::ExitedPeer, message, what));
        }
        let target = &cta.mbarriers[barrier];
        let access = flight.access(target.component, target.time());
        let bytes = map.spec.box_bytes();
        let offset = (flight.shared - SMEM_BASE) as usize;

        let rows = rows(map, flight.first);
        for row in &rows {
            self.observe_global(flight, map, &access, row.address, row.bytes, false)?;
        }
        if self.shadowing() {
            let checks = (self.checks.races, self.checks.uninitialised);
            let cta = &mut self.clusters[slot]
                .as_mut()
                .expect("a cluster with operations is resident")
                .ctas[rank];
            let cells = shadow::cells(&mut cta.shadow, offset, bytes);
            let knowledge = &flight.knowledge;
            let mut observer =
                Observer::new(&mut self.log, knowledge, access, ShadowSpace::Shared, checks);
            if let Err((index, conflict)) = observer.write(cells) {
                let address = flight.shared + (index * CELL_BYTES) as u32;
                let place = self.describe_shared(slot, rank, address);
                return Err(self.conflict(conflict, &access, "writes a TMA box", &place));
            }
        }

        let inner = map.spec.box_extents[0] * map.spec.element.bytes();
        let mut data = vec![0u8; bytes as usize];
        for row in &rows {
            let start = (row.index * inner) as usize + row.start;
            if let Some(place) = self.memory.locate(row.address, row.bytes) {
                data[start..start + row.bytes].copy_from_slice(self.memory.bytes(place, row.bytes));
            }
        }
        // Loads through maps of tf32 round (CUDA Driver API, "cuTensorMapEncodeTiled").
        if let (Format::Float(format), 32) = (map.spec.element.format(), map.spec.element.bits()) {
            number::round_words(format, &mut data);
        }
        let swizzle = map.spec.swizzle;
        let cta = &mut self.cluster_mut(slot).ctas[rank];
        for (chunk, data) in data.chunks_exact(CHUNK_BYTES as usize).enumerate() {
            let address = swizzle.apply(flight.shared + chunk as u32 * CHUNK_BYTES);
            let at = (address - SMEM_BASE) as usize;
            cta.smem[at..at + data.len()].copy_from_slice(data);
        }
        let component = cta.mbarriers[barrier].component;
        cta.landed.insert(component, (access.epoch, flight.actor, flight.loc));
        self.statistics.tma_loads += 1;
        self.statistics.tma_load_bytes += u64::from(bytes);
        self.mbarrier_complete(slot, rank, barrier, bytes)
            .map_err(|message| flight.fault(ReportKind::MbarrierMisuse, message, what))
    }

    /// Checks and records an access of TMA to a range of global memory.
    fn observe_global(
        &mut self,
        flight: &Flight,
        map: &TensorMap,
        access: &Access,
        address: u64,
        bytes: usize,
        write: bool,
    ) -> Outcome {
        let what = if write { "writes a TMA box" } else { "reads a TMA box" };
        let Some(place) = self.memory.locate(address, bytes) else {
            let message = format!(
                "tensor map {} reaches {bytes} bytes at {}",
                map.name,
                self.memory.describe(address)
            );
            return Err(flight.fault(ReportKind::OutOfBounds, message, what));
        };
        let writable = self.memory.writable(place);
        if write && !writable {
            let message =
                format!("tensor map {}: {} is read-only", map.name, self.memory.describe(address));
            return Err(flight.fault(ReportKind::ReadOnlyWrite, message, what));
        }
        if !write
            && self.checks.uninitialised
            && let Some(byte) = self.memory.first_uninitialised(place, bytes)
        {
            let byte = self.memory.describe(address + byte as u64).to_string();
            let message =
                format!("tensor map {}: {byte} is read, but nothing has written it", map.name);
            return Err(flight.fault(ReportKind::UninitialisedRead, message, what));
        }
        if !writable || !self.checks.races {
            return Ok(());
        }
        let size = self.memory.size(place.allocation);
        let global = self.global_shadow.of(place.allocation, size);
        let (cells, cell_bytes) = global.cells(place.offset, bytes as u32);
        let mut observer = Observer::new(
            &mut self.log,
            &flight.knowledge,
            *access,
            ShadowSpace::Global,
            (true, false),
        );
        let outcome = if write { observer.write(cells) } else { observer.read(cells) };
        outcome.map_err(|(index, conflict)| {
            let at = self.memory.describe(address + (index * cell_bytes) as u64).to_string();
            self.conflict(conflict, access, what, &at)
        })
    }

    fn bulk_thread(&self, id: WarpId, lane: u32) -> Option<&BulkThread> {
        let warp = &self.cluster(id.slot).ctas[id.rank].warps[id.warp];
        warp.bulk.iter().find(|thread| thread.lane == lane)
    }

    /// Notes the progress of a store. Its warp may have exited.
    fn store_progress(&mut self, id: WarpId, lane: u32, progress: impl FnOnce(&mut BulkThread)) {
        let warp = self.warp_mut(id);
        if let Some(thread) = warp.bulk.iter_mut().find(|thread| thread.lane == lane) {
            progress(thread);
        }
        if matches!(warp.wait, Wait::Bulk { .. }) {
            self.wake(id);
        }
    }

    /// Reads a box from shared memory.
    fn stage_store(
        &mut self,
        flight: &Flight,
        map: &TensorMap,
        id: WarpId,
        lane: u32,
        group: usize,
    ) -> Outcome<Vec<u8>> {
        let swizzle = map.spec.swizzle;
        let inner = map.spec.box_extents[0] * map.spec.element.bytes();
        let stored = |linear: u32| swizzle.apply(flight.shared + linear);
        if self.shadowing() {
            let component = self.bulk_thread(id, lane).map_or(0, |thread| thread.read_component);
            let access = flight.access(component, group as u32 + 1);
            let checks = (self.checks.races, self.checks.uninitialised);
            let cta = &mut self.clusters[flight.slot]
                .as_mut()
                .expect("a cluster with operations is resident")
                .ctas[flight.rank];
            let knowledge = &flight.knowledge;
            let mut observer =
                Observer::new(&mut self.log, knowledge, access, ShadowSpace::Shared, checks);
            let mut failed = None;
            // Only bytes that go to global memory must have been written.
            'rows: for row in rows(map, flight.first) {
                let begin = row.start as u32 / CHUNK_BYTES * CHUNK_BYTES;
                let end = (row.start + row.bytes) as u32;
                for chunk in (begin..end).step_by(CHUNK_BYTES as usize) {
                    let address = stored(row.index * inner + chunk);
                    let cells = shadow::cells(
                        &mut cta.shadow,
                        (address - SMEM_BASE) as usize,
                        CHUNK_BYTES.min(end - chunk),
                    );
                    if let Err((index, conflict)) = observer.read(cells) {
                        failed = Some((address + (index * CELL_BYTES) as u32, conflict));
                        break 'rows;
                    }
                }
            }
            if let Some((address, conflict)) = failed {
                let place = self.describe_shared(flight.slot, flight.rank, address);
                return Err(self.conflict(conflict, &access, "reads a TMA box", &place));
            }
        }
        let smem = &self.cluster(flight.slot).ctas[flight.rank].smem;
        let mut data = Vec::with_capacity(map.spec.box_bytes() as usize);
        for chunk in (0..map.spec.box_bytes()).step_by(CHUNK_BYTES as usize) {
            let at = (stored(chunk) - SMEM_BASE) as usize;
            data.extend_from_slice(&smem[at..at + CHUNK_BYTES as usize]);
        }
        Ok(data)
    }

    /// Writes a box to global memory.
    fn write_store(
        &mut self,
        flight: &Flight,
        map: &TensorMap,
        id: WarpId,
        lane: u32,
        group: usize,
        data: &[u8],
    ) -> Outcome {
        let component = match self.bulk_thread(id, lane) {
            Some(thread) => thread.write_component,
            // The thread has exited, so nothing can be ordered after the write.
            None => self.cluster_mut(flight.slot).new_component(),
        };
        let access = flight.access(component, group as u32 + 1);
        let inner = map.spec.box_extents[0] * map.spec.element.bytes();
        for mut row in rows(map, flight.first) {
            // The last unit of 16 bytes is written as a whole, even if the tensor ends within it.
            // This was observed on an H200.
            let rest = inner as usize - row.start;
            row.bytes = row.bytes.next_multiple_of(CHUNK_BYTES as usize).min(rest);
            self.observe_global(flight, map, &access, row.address, row.bytes, true)?;
            if let Some(place) = self.memory.locate(row.address, row.bytes) {
                let start = (row.index * inner) as usize + row.start;
                self.memory.store(place, &data[start..start + row.bytes]);
            }
        }
        Ok(())
    }
}

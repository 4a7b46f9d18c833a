//! The copies that TMA operations make, after they were issued.

use std::rc::Rc;

use pgemm_ir::{Format, ReductionOp};

use crate::fault::Outcome;
use crate::flight::{BoxPlace, Flight, FlightKind};
use crate::machine::{Emulator, Operation};
use crate::number;
use crate::program::{SMEM_BASE, TensorMap};
use crate::report::ReportKind;
use crate::shadow::{Access, Observer, ShadowSpace};
use crate::state::{BulkThread, Wait, WarpId};
use crate::tma::reduction;

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

/// The walk over the rows of a box: their coordinates in the dimensions from 1 on.
struct Walk {
    /// The next row, before offsets are added.
    position: [i64; 4],
    offsets: [i64; 4],
    /// First and last coordinate and step of each dimension.
    axes: [(i64, i64, i64); 4],
}

impl Walk {
    fn new(map: &TensorMap, place: &BoxPlace) -> Walk {
        let [_, position @ ..] = place.first;
        let [w, h, d] = place.offsets;
        let mut axes = position.map(|first| (first, first, 1));
        match &map.spec.im2col {
            None => {
                for (axis, &extent) in axes.iter_mut().zip(&map.spec.box_extents[1..]) {
                    axis.1 += i64::from(extent) - 1;
                }
            }
            Some(own) => {
                let extents = &map.argument.extents[1..];
                for (axis, (own, &extent)) in axes.iter_mut().zip(own.iter().zip(extents)) {
                    *axis = (own.lower.into(), own.last(extent), own.stride.into());
                }
                // The next image follows the last position of an image.
                axes[own.len()].1 = i64::MAX;
            }
        }
        Walk { position, offsets: [w, h, d, 0], axes }
    }

    fn next(&mut self) -> [i64; 4] {
        let row = std::array::from_fn(|axis| self.position[axis] + self.offsets[axis]);
        for (position, &(first, last, step)) in self.position.iter_mut().zip(&self.axes) {
            *position += step;
            if *position <= last {
                break;
            }
            *position = first;
        }
        row
    }
}

/// The rows of a box that lie at least partly within the tensor.
fn rows(map: &TensorMap, place: &BoxPlace) -> Vec<Row> {
    let (spec, argument, first) = (&map.spec, &map.argument, &place.first);
    let element = u64::from(spec.element.bytes());
    let inner = i64::from(spec.box_extents[0]);
    let begin = (-first[0]).clamp(0, inner);
    let end = (argument.extents[0] as i64 - first[0]).clamp(begin, inner);
    let count: u32 = spec.box_extents[1..].iter().product();
    let mut rows = Vec::new();
    let mut walk = Walk::new(map, place);
    for index in 0..count {
        let mut address = Some(argument.address);
        let outer = walk.next().into_iter().zip(&argument.extents[1..]);
        for ((at, &extent), &stride) in outer.zip(&argument.strides) {
            let inside = (0..extent as i64).contains(&at);
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

impl Emulator<'_> {
    /// Advances a TMA operation by a step.
    pub(crate) fn advance_flight(&mut self, index: usize) -> Outcome {
        let Some(mut flight) = self.flights[index].take() else { return Ok(()) };
        let map = Rc::clone(&flight.map);
        match &mut flight.kind {
            FlightKind::Load { barrier } => {
                let barrier = *barrier;
                self.land(&flight, &map, barrier)?;
            }
            FlightKind::Store { warp, lane, group, reduction, staged } => {
                let (warp, lane, group, reduction) = (*warp, *lane, *group, *reduction);
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
                        self.write_store(&flight, &map, id, (lane, group, reduction), &data)?;
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

        let rows = rows(map, &flight.place);
        for row in &rows {
            self.observe_global(flight, map, &access, row.address, row.bytes, false)?;
        }
        if self.shadowing() {
            let checks = (self.checks.races, self.checks.uninitialised);
            let cta = &mut self.clusters[slot]
                .as_mut()
                .expect("a cluster with operations is resident")
                .ctas[rank];
            let (cells, cell_bytes) = cta.shadow.cells(offset, bytes);
            let knowledge = &flight.knowledge;
            let mut observer =
                Observer::new(&mut self.log, knowledge, access, ShadowSpace::Shared, checks);
            if let Err((index, conflict)) = observer.write(cells) {
                let address = flight.shared + (index * cell_bytes) as u32;
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
            let message =
                format!("{} reaches {bytes} bytes at {}", map.name, self.memory.describe(address));
            return Err(flight.fault(ReportKind::OutOfBounds, message, what));
        };
        let writable = self.memory.writable(place);
        if write && !writable {
            let message = format!("{}: {} is read-only", map.name, self.memory.describe(address));
            return Err(flight.fault(ReportKind::ReadOnlyWrite, message, what));
        }
        if !write
            && self.checks.uninitialised
            && let Some(byte) = self.memory.first_uninitialised(place, bytes)
        {
            let byte = self.memory.describe(address + byte as u64).to_string();
            let message = format!("{}: {byte} is read, but nothing has written it", map.name);
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
            'rows: for row in rows(map, &flight.place) {
                let begin = row.start as u32 / CHUNK_BYTES * CHUNK_BYTES;
                let end = (row.start + row.bytes) as u32;
                for chunk in (begin..end).step_by(CHUNK_BYTES as usize) {
                    let address = stored(row.index * inner + chunk);
                    let (cells, cell_bytes) = cta
                        .shadow
                        .cells((address - SMEM_BASE) as usize, CHUNK_BYTES.min(end - chunk));
                    if let Err((index, conflict)) = observer.read(cells) {
                        failed = Some((address + (index * cell_bytes) as u32, conflict));
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
        (lane, group, reduction): (u32, usize, Option<ReductionOp>),
        data: &[u8],
    ) -> Outcome {
        let component = match self.bulk_thread(id, lane) {
            Some(thread) => thread.write_component,
            // The thread has exited, so nothing can be ordered after the write.
            None => self.cluster_mut(flight.slot).new_component(),
        };
        // A reduction is atomic.
        let strong = reduction.is_some();
        let access = Access { strong, ..flight.access(component, group as u32 + 1) };
        let inner = map.spec.box_extents[0] * map.spec.element.bytes();
        for row in rows(map, &flight.place) {
            if let Some(op) = reduction {
                self.observe_global(flight, map, &access, row.address, row.bytes, false)?;
                self.observe_global(flight, map, &access, row.address, row.bytes, true)?;
                if let Some(place) = self.memory.locate(row.address, row.bytes) {
                    let start = (row.index * inner) as usize + row.start;
                    let old = self.memory.bytes(place, row.bytes);
                    let data = &data[start..start + row.bytes];
                    let new = reduction::combine(op, map.spec.element, old, data);
                    self.memory.store(place, &new);
                }
                continue;
            }
            let mut row = row;
            // The last unit of 16 bytes is written as a whole, even if the tensor ends within it.
            // This was observed on an H200. Boxes begin with such a unit, and have whole ones.
            row.bytes = row.bytes.next_multiple_of(CHUNK_BYTES as usize);
            self.observe_global(flight, map, &access, row.address, row.bytes, true)?;
            if let Some(place) = self.memory.locate(row.address, row.bytes) {
                let start = (row.index * inner) as usize + row.start;
                self.memory.store(place, &data[start..start + row.bytes]);
            }
        }
        Ok(())
    }
}

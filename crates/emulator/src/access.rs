//! Ordinary loads and stores and those of single elements: the generic proxy.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;

use pgemm_ir::{Access, Element, Order, Space};

use crate::acquired::Split;
use crate::banks::Sharing;
use crate::clock::Knowledge;
use crate::fault::{At, Outcome};
use crate::lanes::LANES;
use crate::late_store::LateStore;
use crate::machine::Emulator;
use crate::memory::Place;
use crate::number;
use crate::program::{Program, SMEM_BASE, Slot, WEAK_WORD};
use crate::report::ReportKind;
use crate::shadow::{CELL_BYTES, Conflict, Observer, ShadowSpace};
use crate::state::{Flow, Warp};

/// Lanes with the addresses that they access, in lane order.
pub(crate) struct Addresses {
    all: [(usize, u64); LANES],
    count: usize,
}

impl Addresses {
    pub(crate) fn of(
        program: &Program,
        warp: &Warp,
        address: Slot,
        lanes: impl Iterator<Item = usize>,
    ) -> Self {
        let mut addresses = Addresses { all: [(0, 0); LANES], count: 0 };
        for (place, lane) in addresses.all.iter_mut().zip(lanes) {
            *place = (lane, warp.get(program, address, lane));
            addresses.count += 1;
        }
        addresses
    }

    /// The addresses of all active lanes.
    pub(crate) fn active(program: &Program, warp: &Warp, address: Slot) -> Self {
        Self::of(program, warp, address, warp.active_lanes())
    }

    /// The addresses of the active lanes, or of one lane if the address is uniform and all lanes
    /// read the same.
    pub(crate) fn read(program: &Program, warp: &Warp, address: Slot) -> Self {
        let count = if warp.scalar(program, address).is_some() { 1 } else { LANES };
        Self::of(program, warp, address, warp.active_lanes().take(count))
    }

    /// The addresses with the lanes that read there: each one, or all active ones together where
    /// they read the same.
    fn by_lanes(
        &self,
        program: &Program,
        warp: &Warp,
        address: Slot,
    ) -> impl Iterator<Item = (u32, u64)> + use<'_> {
        let together = warp.scalar(program, address).map(|_| warp.active);
        self.iter().map(move |&(lane, from)| (together.unwrap_or(1 << lane), from))
    }
}

impl Deref for Addresses {
    type Target = [(usize, u64)];

    fn deref(&self) -> &[(usize, u64)] {
        &self.all[..self.count]
    }
}

impl Emulator<'_> {
    /// Whether shadow memory is kept.
    pub(crate) fn shadowing(&self) -> bool {
        self.checks.races || self.checks.uninitialised
    }

    /// The offset in shared memory of a range. Fails unless it is inside and aligned.
    pub(crate) fn shared_offset(
        &self,
        rank: usize,
        address: u64,
        bytes: u32,
        align: u32,
        at: At,
        what: &str,
    ) -> Outcome<usize> {
        let size = self.cluster(at.id.slot).ctas[rank].smem.len() as u64;
        let place = || self.describe_shared(at.id.slot, rank, address as u32);
        let offset = address.wrapping_sub(u64::from(SMEM_BASE));
        if address > u64::from(u32::MAX) || offset >= size || offset + u64::from(bytes) > size {
            let message =
                format!("{bytes} bytes at {}, which has {size} bytes of shared memory", place());
            return Err(self.fault(ReportKind::OutOfBounds, message, at, what));
        }
        if !address.is_multiple_of(u64::from(align)) {
            let message = format!("{} is not a multiple of {align} bytes", place());
            return Err(self.fault(ReportKind::Misaligned, message, at, what));
        }
        Ok(offset as usize)
    }

    fn allocated_place(&self, address: u64, bytes: u32, at: At, what: &str) -> Outcome<Place> {
        self.memory.locate(address, bytes as usize).ok_or_else(|| {
            let message = format!("{bytes} bytes at {}", self.memory.describe(address));
            self.fault(ReportKind::OutOfBounds, message, at, what)
        })
    }

    pub(crate) fn global_place(
        &self,
        address: u64,
        bytes: u32,
        write: bool,
        at: At,
        what: &str,
    ) -> Outcome<Place> {
        let place = self.allocated_place(address, bytes, at, what)?;
        if !address.is_multiple_of(u64::from(bytes)) {
            let message =
                format!("{} is not a multiple of {bytes} bytes", self.memory.describe(address));
            return Err(self.fault(ReportKind::Misaligned, message, at, what));
        }
        if !write {
            return self.read_place(address, bytes, at, what);
        }
        if !self.memory.writable(place) {
            let message = format!("{} is read-only", self.memory.describe(address));
            return Err(self.fault(ReportKind::ReadOnlyWrite, message, at, what));
        }
        Ok(place)
    }

    /// The place of bytes that are read. Fails unless they are allocated and written.
    pub(crate) fn read_place(
        &self,
        address: u64,
        bytes: u32,
        at: At,
        what: &str,
    ) -> Outcome<Place> {
        let place = self.allocated_place(address, bytes, at, what)?;
        if self.checks.uninitialised
            && let Some(offset) = self.memory.first_uninitialised(place, bytes as usize)
        {
            let byte = self.memory.describe(address + offset as u64).to_string();
            let message = format!("{byte} is read, but nothing has written it");
            return Err(self.fault(ReportKind::UninitialisedRead, message, at, what));
        }
        Ok(place)
    }

    pub(crate) fn load(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        (access, size): (Access, u32),
        address: Slot,
        dests: &[Slot],
    ) -> Outcome<Flow> {
        let what = "loads";
        let bytes = size * access.vector;
        let strong = access.order != Order::Weak;
        let addresses = Addresses::read(program, warp, address);
        let mut found = strong.then(DefaultHasher::new);
        for &(lane, from) in &*addresses {
            let data = match access.space {
                Space::Shared => {
                    let offset = self.shared_offset(at.id.rank, from, bytes, bytes, at, what)?;
                    let smem = &self.cluster(at.id.slot).ctas[at.id.rank].smem;
                    &smem[offset..offset + bytes as usize]
                }
                Space::Global => {
                    self.after_dependency(program, warp, at, what)?;
                    let place = self.global_place(from, bytes, false, at, what)?;
                    self.memory.bytes(place, bytes as usize)
                }
            };
            if let Some(found) = &mut found {
                (from, data).hash(found);
            }
            // Each element is an access of its own.
            for element in 0..access.vector {
                self.acquire(warp, at, access, from + u64::from(element * size));
            }
            for (&dest, data) in dests.iter().zip(data.chunks_exact(size as usize)) {
                warp.set(dest, lane, bits(data));
            }
        }
        if access.space == Space::Shared {
            self.count_wavefronts(at, &addresses, bytes, Sharing::Loads);
        }
        if !strong {
            let accesses = addresses.by_lanes(program, warp, address);
            self.observe_lanes(warp, at, access.space, accesses, bytes, false, what)?;
        }
        // The acquire comes first: what it orders before the load is no race.
        self.observe(warp, at, access.space, &addresses, bytes, false, strong, what)?;
        let Some(found) = found else { return Ok(Flow::Next) };
        warp.note_load(found.finish());
        Ok(Flow::Visible)
    }

    pub(crate) fn store(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        (access, size): (Access, u32),
        address: Slot,
        values: &[Slot],
    ) -> Outcome<Flow> {
        let what = "stores";
        let bytes = size * access.vector;
        let strong = access.order != Order::Weak;
        let addresses = Addresses::active(program, warp, address);
        for &(_, to) in &*addresses {
            match access.space {
                Space::Shared => {
                    self.shared_offset(at.id.rank, to, bytes, bytes, at, what)?;
                }
                Space::Global => {
                    self.after_dependency(program, warp, at, what)?;
                    self.global_place(to, bytes, true, at, what)?;
                }
            }
        }
        self.observe(warp, at, access.space, &addresses, bytes, true, strong, what)?;
        if access.space == Space::Shared {
            self.count_wavefronts(at, &addresses, bytes, Sharing::Stores);
        }
        if !strong {
            let accesses = addresses.iter().map(|&(lane, to)| (1 << lane, to));
            self.observe_lanes(warp, at, access.space, accesses, bytes, true, what)?;
        }
        let may_meet = self.checks.races && !ascend(&addresses);
        let late = strong && access.space == Space::Global;
        let publishes = strong || self.publishes_among(at, access.space, &addresses);
        let mut late_stores = Vec::new();
        let mut written: Vec<(u64, [u8; 32])> = Vec::new();
        for &(lane, to) in &*addresses {
            let mut data = [0u8; 32];
            for (element, &value) in values.iter().enumerate() {
                let start = element * size as usize;
                let value = warp.get(program, value, lane);
                match size {
                    4 => data[start..start + 4].copy_from_slice(&(value as u32).to_le_bytes()),
                    _ => data[start..start + 8].copy_from_slice(&value.to_le_bytes()),
                }
            }
            if may_meet {
                self.check_lanes_agree(at, lane, (to, data), &written)?;
                written.push((to, data));
            }
            let data = &data[..bytes as usize];
            if late {
                // Each element is an access of its own.
                for (address, data) in (to..).step_by(size as usize).zip(data.chunks(size as usize))
                {
                    let released = self.released(warp, at, access);
                    late_stores.push(LateStore { address, data: data.into(), released });
                }
                continue;
            }
            match access.space {
                Space::Shared => {
                    let offset = (to - u64::from(SMEM_BASE)) as usize;
                    let smem = &mut self.cluster_mut(at.id.slot).ctas[at.id.rank].smem;
                    smem[offset..offset + data.len()].copy_from_slice(data);
                }
                Space::Global => {
                    if let Some(place) = self.memory.locate(to, data.len()) {
                        self.memory.store(place, data);
                    }
                }
            }
            if publishes {
                self.publish(warp, at, access, to, false);
            }
        }
        warp.unfenced_lanes |= warp.active;
        if strong {
            self.store_late(warp, at.id, late_stores);
            warp.tick();
            return Ok(Flow::Visible);
        }
        Ok(Flow::Next)
    }

    /// Loads an element of 16 or 8 bits for each lane.
    pub(crate) fn load_element(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        element: Element,
        address: Slot,
        dest: Slot,
    ) -> Outcome {
        let what = "loads";
        self.after_dependency(program, warp, at, what)?;
        let size = element.bytes();
        let addresses = Addresses::read(program, warp, address);
        for &(lane, from) in &*addresses {
            let place = self.global_place(from, size, false, at, what)?;
            let bits = word(self.memory.bytes(place, size as usize)) as u16;
            warp.set(dest, lane, number::widen(element, bits).to_bits().into());
        }
        let accesses = addresses.by_lanes(program, warp, address);
        self.observe_lanes(warp, at, Space::Global, accesses, size, false, what)?;
        self.observe(warp, at, Space::Global, &addresses, size, false, false, what)
    }

    /// Checks that each lane prefetches from an allocation. The emulator has no caches.
    pub(crate) fn prefetch_line(
        &self,
        program: &Program,
        warp: &Warp,
        at: At,
        address: Slot,
    ) -> Outcome {
        for &(_, from) in &*Addresses::read(program, warp, address) {
            self.allocated_place(from, 1, at, "prefetches")?;
        }
        Ok(())
    }

    /// Stores an element of 16 or 8 bits for each lane.
    pub(crate) fn store_element(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        element: Element,
        address: Slot,
        value: Slot,
    ) -> Outcome {
        let what = "stores";
        self.after_dependency(program, warp, at, what)?;
        let size = element.bytes();
        let addresses = Addresses::active(program, warp, address);
        for &(_, to) in &*addresses {
            self.global_place(to, size, true, at, what)?;
        }
        self.observe(warp, at, Space::Global, &addresses, size, true, false, what)?;
        let accesses = addresses.iter().map(|&(lane, to)| (1 << lane, to));
        self.observe_lanes(warp, at, Space::Global, accesses, size, true, what)?;
        let may_meet = self.checks.races && !ascend(&addresses);
        let publishes = self.publishes_among(at, Space::Global, &addresses);
        let mut written: Vec<(u64, [u8; 32])> = Vec::new();
        for &(lane, to) in &*addresses {
            let value = f32::from_bits(warp.get(program, value, lane) as u32);
            let bytes = number::round(element, value).to_le_bytes();
            let bytes = &bytes[..size as usize];
            if may_meet {
                let mut data = [0u8; 32];
                data[..bytes.len()].copy_from_slice(bytes);
                self.check_lanes_agree(at, lane, (to, data), &written)?;
                written.push((to, data));
            }
            if let Some(place) = self.memory.locate(to, bytes.len()) {
                self.memory.store(place, bytes);
            }
            if publishes {
                self.publish(warp, at, WEAK_WORD, to, false);
            }
        }
        warp.unfenced_lanes |= warp.active;
        Ok(())
    }

    /// Fails if two lanes of one store write different values to the same address: the result would
    /// be undefined.
    pub(crate) fn check_lanes_agree(
        &self,
        at: At,
        lane: usize,
        (to, data): (u64, [u8; 32]),
        written: &[(u64, [u8; 32])],
    ) -> Outcome {
        if written.iter().any(|&(other, before)| other == to && before != data) {
            let message = "two lanes store different values to the same address".to_owned();
            let mut fault = self.fault(ReportKind::Race, message, at, "stores");
            fault.sites[0].0.lane = Some(lane as u32);
            return Err(fault);
        }
        Ok(())
    }

    /// Records an access of some lanes in shadow memory. Fails if it conflicts with another access.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn observe(
        &mut self,
        warp: &mut Warp,
        at: At,
        space: Space,
        addresses: &[(usize, u64)],
        bytes: u32,
        write: bool,
        strong: bool,
        what: &str,
    ) -> Outcome {
        if !self.shadowing() || addresses.is_empty() {
            return Ok(());
        }
        warp.note_access(write);
        let Some(Split { knowing, others, known }) = warp.by_knowledge(addresses, strong) else {
            let known = &warp.knowledge;
            return self
                .observe_knowing(warp, known, at, space, addresses, bytes, write, strong, what);
        };
        let all = &warp.knowledge;
        self.observe_knowing(warp, all, at, space, &knowing, bytes, write, strong, what)?;
        let outcome =
            self.observe_knowing(warp, &known, at, space, &others, bytes, write, strong, what);
        outcome.map_err(|mut fault| {
            let note = "other lanes of its warp have acquired something since the lanes last met: \
                        a barrier of the warp passes that on";
            fault.notes.push(note.to_owned());
            fault
        })
    }

    /// Records an access of some lanes that know so much.
    #[allow(clippy::too_many_arguments)]
    fn observe_knowing(
        &mut self,
        warp: &Warp,
        known: &Knowledge,
        at: At,
        space: Space,
        addresses: &[(usize, u64)],
        bytes: u32,
        write: bool,
        strong: bool,
        what: &str,
    ) -> Outcome {
        let single = match addresses {
            [(lane, _)] if warp.active.count_ones() == 1 => Some(*lane),
            _ => None,
        };
        let mut access = self.generic_access(warp, at, single, strong);
        let checks = (self.checks.races, self.checks.uninitialised && space == Space::Shared);
        let shadow_space = match space {
            Space::Shared => ShadowSpace::Shared,
            Space::Global => ShadowSpace::Global,
        };
        let log = &mut self.log;
        let mut observer = Observer::new(log, known, access, shadow_space, checks);
        let mut failed: Option<(usize, u64, Conflict)> = None;
        // Neighbouring lanes that access consecutive words are checked together.
        let together = |a: &(usize, u64), b: &(usize, u64)| {
            bytes.is_multiple_of(CELL_BYTES as u32) && a.1 + u64::from(bytes) == b.1
        };
        for lanes in addresses.chunk_by(together) {
            let (address, each) = (lanes[0].1, bytes as usize);
            let bytes = bytes * lanes.len() as u32;
            let (cells, cell_bytes) = match space {
                Space::Shared => {
                    let cta = &mut self.clusters[at.id.slot]
                        .as_mut()
                        .expect("a running warp's cluster is resident")
                        .ctas[at.id.rank];
                    let offset = (address - u64::from(SMEM_BASE)) as usize;
                    cta.shadow.cells(offset, bytes)
                }
                Space::Global => {
                    let Some(place) = self.memory.locate(address, bytes as usize) else { continue };
                    if !self.memory.writable(place) {
                        continue;
                    }
                    let size = self.memory.size(place.allocation);
                    self.global_shadow.of(place.allocation, size).cells(place.offset, bytes)
                }
            };
            let outcome = if write { observer.write(cells) } else { observer.read(cells) };
            if let Err((index, conflict)) = outcome {
                let (lane, _) = lanes[index * cell_bytes / each];
                failed = Some((lane, address + (index * cell_bytes) as u64, conflict));
                break;
            }
        }
        let Some((lane, address, conflict)) = failed else { return Ok(()) };
        access.actor.lane = Some(lane as u32);
        let place = match space {
            Space::Shared => self.describe_shared(at.id.slot, at.id.rank, address as u32),
            Space::Global => self.memory.describe(address).to_string(),
        };
        Err(self.conflict(conflict, &access, what, &place))
    }
}

/// Whether addresses increase with the lanes, as they mostly do. Then no two lanes access the same
/// address.
fn ascend(addresses: &[(usize, u64)]) -> bool {
    addresses.is_sorted_by(|(_, before), (_, after)| before < after)
}

pub(crate) fn word(bytes: &[u8]) -> u32 {
    bits(bytes) as u32
}

/// A little-endian number. 4 and 8 bytes, the most frequent sizes, have a fast path.
fn bits(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte)),
    }
}

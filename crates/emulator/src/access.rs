//! Ordinary and atomic accesses, single elements, reductions, and `ldmatrix`/`stmatrix`: the generic proxy.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;

use pgemm_ir::{Access, AtomicOp, Element, Order, Scope, Space, Type};

use crate::execute::Flow;
use crate::late::LateStore;
use crate::machine::{At, Emulator, Outcome};
use crate::memory::Place;
use crate::program::{Program, SMEM_BASE, Slot};
use crate::report::ReportKind;
use crate::shadow::{self, CELL_BYTES, Conflict, Observer, ShadowSpace};
use crate::state::{LANES, Warp};
use crate::value::{narrow, widen};

/// Bytes of one row of an 8×8 matrix of 16-bit elements.
const MATRIX_ROW_BYTES: u32 = 16;

/// A weak access of a word in global memory.
pub(crate) const WEAK_WORD: Access = Access {
    space: Space::Global,
    ty: Type::U32,
    vector: 1,
    order: Order::Weak,
    scope: Scope::Cta,
    once: false,
};

/// Lanes with the addresses that they access, in the order of the lanes.
struct Addresses {
    all: [(usize, u64); LANES],
    count: usize,
}

impl Addresses {
    fn of(
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

    /// Of all active lanes.
    fn active(program: &Program, warp: &Warp, address: Slot) -> Self {
        Self::of(program, warp, address, warp.active_lanes())
    }

    /// Of the lanes that read on their own: one where the address is uniform and all read the same.
    fn read(program: &Program, warp: &Warp, address: Slot) -> Self {
        let count = if warp.scalar(program, address).is_some() { 1 } else { LANES };
        Self::of(program, warp, address, warp.active_lanes().take(count))
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

    /// The offset in shared memory of a range that must lie inside and be aligned.
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

    fn global_place(
        &self,
        address: u64,
        bytes: u32,
        write: bool,
        at: At,
        what: &str,
    ) -> Outcome<Place> {
        let Some(place) = self.memory.locate(address, bytes as usize) else {
            let message = format!("{bytes} bytes at {}", self.memory.describe(address));
            return Err(self.fault(ReportKind::OutOfBounds, message, at, what));
        };
        if !address.is_multiple_of(u64::from(bytes)) {
            let message =
                format!("{} is not a multiple of {bytes} bytes", self.memory.describe(address));
            return Err(self.fault(ReportKind::Misaligned, message, at, what));
        }
        if write && !self.memory.writable(place) {
            let message = format!("{} is read-only", self.memory.describe(address));
            return Err(self.fault(ReportKind::ReadOnlyWrite, message, at, what));
        }
        if !write
            && self.checks.uninitialised
            && let Some(offset) = self.memory.first_uninitialised(place, bytes as usize)
        {
            let byte = self.memory.describe(address + offset as u64).to_string();
            let message = format!("{byte} is read, but nobody has written it");
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
        // An acquire orders what was written before it: check with what is known now.
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
            warp.set(dest, lane, widen(element, bits));
        }
        self.observe(warp, at, Space::Global, &addresses, size, false, false, what)
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
        let may_meet = self.checks.races && !ascend(&addresses);
        let publishes = self.publishes_among(at, Space::Global, &addresses);
        let mut written: Vec<(u64, [u8; 32])> = Vec::new();
        for &(lane, to) in &*addresses {
            let bytes = narrow(element, warp.get(program, value, lane)).to_le_bytes();
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

    /// Lanes go one after the other, in their order.
    pub(crate) fn atomic(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        op: AtomicOp,
        (order, scope): (Order, Scope),
        (address, value, dest): (Slot, Slot, Slot),
    ) -> Outcome<Flow> {
        let what = "writes atomically";
        let access = Access { order, scope, ..WEAK_WORD };
        self.after_dependency(program, warp, at, what)?;
        for lane in warp.active_lanes() {
            let to = warp.get(program, address, lane);
            self.global_place(to, 4, true, at, what)?;
            let place = self.global_place(to, 4, false, at, what)?;
            // What it acquires is ordered before what it writes.
            self.acquire(warp, at, access, to);
            self.observe(warp, at, Space::Global, &[(lane, to)], 4, true, true, what)?;
            let old = word(self.memory.bytes(place, 4));
            let value = warp.get(program, value, lane) as u32;
            let new = match op {
                AtomicOp::Add => old.wrapping_add(value),
                AtomicOp::Inc if old >= value => 0,
                AtomicOp::Inc => old + 1,
                AtomicOp::Exch => value,
            };
            self.memory.store(place, &new.to_le_bytes());
            warp.set(dest, lane, u64::from(old));
            self.publish(warp, at, access, to, true);
        }
        self.words_changed();
        warp.unfenced_lanes |= warp.active;
        warp.tick();
        Ok(Flow::Visible)
    }

    /// Sums are made in the order in which warps come here, so that their rounding depends on the schedule.
    pub(crate) fn reduce(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        address: Slot,
        values: &[Slot],
    ) -> Outcome<Flow> {
        let what = "adds to memory";
        let bytes = 4 * values.len() as u32;
        self.after_dependency(program, warp, at, what)?;
        let addresses = Addresses::active(program, warp, address);
        for &(lane, to) in &*addresses {
            self.global_place(to, bytes, true, at, what)?;
            let place = self.global_place(to, bytes, false, at, what)?;
            let mut sums = [0; 16];
            sums[..bytes as usize].copy_from_slice(self.memory.bytes(place, bytes as usize));
            for (sum, &value) in sums.chunks_exact_mut(4).zip(values) {
                let (old, value) = (word(sum), warp.get(program, value, lane) as u32);
                sum.copy_from_slice(&add_flushed(old, value).to_le_bytes());
            }
            self.memory.store(place, &sums[..bytes as usize]);
        }
        self.observe(warp, at, Space::Global, &addresses, bytes, true, true, what)?;
        warp.unfenced_lanes |= warp.active;
        Ok(Flow::Visible)
    }

    /// Two lanes of one store must not put different values into the same place: which one stays is undefined.
    fn check_lanes_agree(
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

    /// Records an access of some lanes in shadow memory and fails where it conflicts with another.
    #[allow(clippy::too_many_arguments)]
    fn observe(
        &mut self,
        warp: &Warp,
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
        let mut observer = Observer::new(log, &warp.knowledge, access, shadow_space, checks);
        let mut failed: Option<(usize, u64, Conflict)> = None;
        // Lanes whose whole words lie side by side are looked at together.
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
                    (shadow::cells(&mut cta.shadow, offset, bytes), CELL_BYTES)
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

    /// The row addresses of `ldmatrix` and `stmatrix`, checked.
    fn matrix_rows(
        &self,
        program: &Program,
        warp: &Warp,
        at: At,
        address: Slot,
        count: usize,
        what: &str,
    ) -> Outcome<Addresses> {
        self.whole_warp(warp, at, what)?;
        let rows = Addresses::of(program, warp, address, 0..8 * count);
        for &(_, row) in &*rows {
            let (bytes, align) = (MATRIX_ROW_BYTES, MATRIX_ROW_BYTES);
            self.shared_offset(at.id.rank, row, bytes, align, at, what)?;
        }
        Ok(rows)
    }

    pub(crate) fn load_matrix(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        transpose: bool,
        address: Slot,
        dests: &[Slot],
    ) -> Outcome {
        let what = "loads matrices";
        let rows = self.matrix_rows(program, warp, at, address, dests.len(), what)?;
        self.observe(warp, at, Space::Shared, &rows, MATRIX_ROW_BYTES, false, false, what)?;
        let smem = &self.cluster(at.id.slot).ctas[at.id.rank].smem;
        for (matrix, &dest) in dests.iter().enumerate() {
            for lane in 0..LANES {
                let element = |i: usize| {
                    let (row, column) = matrix_element(lane, i, transpose);
                    let start = (rows[matrix * 8 + row].1 - u64::from(SMEM_BASE)) as usize;
                    let at = start + column * 2;
                    u64::from(u16::from_le_bytes([smem[at], smem[at + 1]]))
                };
                warp.set(dest, lane, element(0) | element(1) << 16);
            }
        }
        Ok(())
    }

    pub(crate) fn store_matrix(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        transpose: bool,
        address: Slot,
        values: &[Slot],
    ) -> Outcome {
        let what = "stores matrices";
        let rows = self.matrix_rows(program, warp, at, address, values.len(), what)?;
        self.observe(warp, at, Space::Shared, &rows, MATRIX_ROW_BYTES, true, false, what)?;
        let smem = &mut self.cluster_mut(at.id.slot).ctas[at.id.rank].smem;
        for (matrix, &value) in values.iter().enumerate() {
            for lane in 0..LANES {
                let pair = warp.get(program, value, lane);
                for i in 0..2 {
                    let (row, column) = matrix_element(lane, i, transpose);
                    let start = (rows[matrix * 8 + row].1 - u64::from(SMEM_BASE)) as usize;
                    let half = (pair >> (16 * i)) as u16;
                    let at = start + column * 2;
                    smem[at..at + 2].copy_from_slice(&half.to_le_bytes());
                }
            }
        }
        warp.unfenced_lanes |= warp.active;
        Ok(())
    }
}

/// Whether each lane's address is beyond the last one's, as it mostly is: then no two lanes access the same.
fn ascend(addresses: &[(usize, u64)]) -> bool {
    addresses.is_sorted_by(|(_, before), (_, after)| before < after)
}

/// Row and column of element `i` of a lane's pair in an 8×8 matrix.
fn matrix_element(lane: usize, i: usize, transpose: bool) -> (usize, usize) {
    let (row, column) = (lane / 4, lane % 4 * 2 + i);
    if transpose { (column, row) } else { (row, column) }
}

fn word(bytes: &[u8]) -> u32 {
    bits(bytes) as u32
}

/// A little-endian number, of 4 and 8 bytes the quickest.
fn bits(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte)),
    }
}

/// A sum of binary32 as reductions in global memory make it: subnormal operands and sums are zero (PTX ISA, "red").
fn add_flushed(a: u32, b: u32) -> u32 {
    let flush = |bits: u32| {
        let value = f32::from_bits(bits);
        if value.is_subnormal() { 0f32.copysign(value) } else { value }
    };
    flush((flush(a) + flush(b)).to_bits()).to_bits()
}

pub(crate) fn element_bytes(ty: Type) -> u32 {
    if matches!(ty, Type::U64 | Type::F64) { 8 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_flush_subnormals() {
        let add = |a: f32, b: f32| f32::from_bits(add_flushed(a.to_bits(), b.to_bits()));
        let least = f32::MIN_POSITIVE;
        assert_eq!(add(1.5, 2.25), 3.75);
        assert_eq!(add(least, least / 2.0), least);
        assert_eq!(add(1.5 * least, -least), 0.0);
        assert!(add(-1.5 * least, least).is_sign_negative());
        assert!(add(-least / 2.0, -0.0).is_sign_negative());
        assert!(add(f32::NAN, 1.0).is_nan());
    }
}

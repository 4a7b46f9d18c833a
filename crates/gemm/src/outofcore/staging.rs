//! Copies of host memory that is not pinned: lines are packed into pinned buffers, and unpacked
//! from them, by rayon's threads, while the device copies others.

use std::collections::VecDeque;
use std::ops::Range;

use rayon::prelude::*;

use crate::driver::{Device, Direction, Event, Lines, PinnedBuffer, StreamRef, Timing, copy_lines};
use crate::error::Result;

/// Number of pinned buffers, which are used round-robin.
const BUFFERS: usize = 4;
/// Bytes that a thread copies at a time at least.
const PIECE: usize = 1 << 18;

/// A region of a host matrix: the offset of its first line, and distance, length and number of its
/// lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub first: usize,
    pub pitch: usize,
    pub line_bytes: usize,
    pub lines: usize,
}

impl Region {
    /// The part of it with these lines and these bytes of each.
    fn part(&self, lines: Range<usize>, bytes: Range<usize>) -> Region {
        Region {
            first: self.first + lines.start * self.pitch + bytes.start,
            line_bytes: bytes.len(),
            lines: lines.len(),
            ..*self
        }
    }

    /// Parts of at most `room` bytes: some lines, or some of one line, and where each begins on the
    /// device.
    pub(super) fn parts(&self, room: usize, device_pitch: usize) -> Vec<(Region, u64)> {
        let mut parts = vec![];
        let lines_at_once = (room / self.line_bytes.max(1)).clamp(1, self.lines.max(1));
        for first in (0..self.lines).step_by(lines_at_once) {
            let lines = first..self.lines.min(first + lines_at_once);
            for start in (0..self.line_bytes).step_by(room.max(1)) {
                let bytes = start..self.line_bytes.min(start + room);
                let offset = (first * device_pitch + start) as u64;
                parts.push((self.part(lines.clone(), bytes), offset));
            }
        }
        parts
    }

    fn bytes(&self) -> usize {
        self.lines * self.line_bytes
    }
}

/// Copies lines into a buffer without gaps.
pub(super) fn pack(source: &[u8], region: Region, target: &mut [u8]) {
    let target = &mut target[..region.bytes()];
    if region.lines <= 1 || region.pitch == region.line_bytes {
        let source = &source[region.first..region.first + region.bytes()];
        target.par_chunks_mut(PIECE).zip(source.par_chunks(PIECE)).for_each(|(target, source)| {
            target.copy_from_slice(source);
        });
        return;
    }
    target
        .par_chunks_mut(region.line_bytes)
        .with_min_len(PIECE / region.line_bytes + 1)
        .enumerate()
        .for_each(|(line, target)| {
            let start = region.first + line * region.pitch;
            target.copy_from_slice(&source[start..start + target.len()]);
        });
}

/// Copies lines from a buffer without gaps.
pub(super) fn unpack(source: &[u8], region: Region, target: &mut [u8]) {
    let source = &source[..region.bytes()];
    let target = &mut target[region.first..];
    if region.lines <= 1 || region.pitch == region.line_bytes {
        let target = &mut target[..region.bytes()];
        target.par_chunks_mut(PIECE).zip(source.par_chunks(PIECE)).for_each(|(target, source)| {
            target.copy_from_slice(source);
        });
        return;
    }
    target
        .par_chunks_mut(region.pitch)
        .with_min_len(PIECE / region.line_bytes + 1)
        .zip(source.par_chunks(region.line_bytes))
        .for_each(|(target, source)| target[..source.len()].copy_from_slice(source));
}

/// Pinned buffers, each with the event after the copy that used it last.
pub(super) struct Ring {
    buffers: VecDeque<(PinnedBuffer, Event)>,
    room: usize,
}

impl Ring {
    /// Buffers of `bytes` bytes in total.
    pub(super) fn new(device: &Device, bytes: usize) -> Result<Self> {
        let room = (bytes / BUFFERS).max(1 << 16);
        let buffers = (0..BUFFERS)
            .map(|_| Ok((PinnedBuffer::new(device, room)?, Event::new(device, Timing::Disabled)?)))
            .collect::<Result<_>>()?;
        Ok(Ring { buffers, room })
    }

    /// Enqueues copies of a region to the device, waiting only for buffers.
    ///
    /// # Safety
    /// The device memory must have room for the lines and must not be used otherwise until the
    /// stream has passed this. The ring must live as long.
    pub(super) unsafe fn upload(
        &mut self,
        source: &[u8],
        region: Region,
        (address, device_pitch): (u64, usize),
        stream: StreamRef<'_>,
    ) -> Result<()> {
        for (part, offset) in region.parts(self.room, device_pitch) {
            let Some((mut buffer, event)) = self.buffers.pop_front() else { return Ok(()) };
            let copied = event.synchronize().and_then(|()| {
                pack(source, part, buffer.as_mut_slice());
                let lines = packed(part, device_pitch);
                let host = buffer.as_mut_slice().as_mut_ptr();
                // SAFETY: the caller vouches for the device; the buffer is used again only after
                // its event.
                unsafe { copy_lines(Direction::ToDevice, address + offset, host, lines, stream) }?;
                event.record(stream)
            });
            self.buffers.push_back((buffer, event));
            copied?;
        }
        Ok(())
    }

    /// Copies a region from the device, after the work on the stream, and calls `enqueued` once all
    /// device copies are enqueued.
    ///
    /// # Safety
    /// The device memory must have the lines, and not be written until the stream has passed this.
    pub(super) unsafe fn download(
        &mut self,
        target: &mut [u8],
        region: Region,
        (address, device_pitch): (u64, usize),
        stream: StreamRef<'_>,
        enqueued: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut waiting: VecDeque<(PinnedBuffer, Event, Region)> = VecDeque::new();
        let mut outcome = Ok(());
        for (part, offset) in region.parts(self.room, device_pitch) {
            if self.buffers.is_empty() {
                outcome = outcome.and(self.empty(&mut waiting, target));
            }
            let Some((mut buffer, event)) = self.buffers.pop_front() else { break };
            let host = buffer.as_mut_slice().as_mut_ptr();
            let lines = packed(part, device_pitch);
            // SAFETY: the caller vouches for the device; the buffer waits for its event.
            let copied =
                unsafe { copy_lines(Direction::ToHost, address + offset, host, lines, stream) };
            outcome = outcome.and(copied).and(event.record(stream));
            waiting.push_back((buffer, event, part));
            if outcome.is_err() {
                break;
            }
        }
        outcome = outcome.and_then(|()| enqueued());
        while !waiting.is_empty() {
            outcome = outcome.and(self.empty(&mut waiting, target));
        }
        outcome
    }

    /// Brings the buffer that was filled first to the host's matrix.
    fn empty(
        &mut self,
        waiting: &mut VecDeque<(PinnedBuffer, Event, Region)>,
        target: &mut [u8],
    ) -> Result<()> {
        let Some((buffer, event, part)) = waiting.pop_front() else { return Ok(()) };
        let there = event.synchronize();
        if there.is_ok() {
            unpack(buffer.as_slice(), part, target);
        }
        self.buffers.push_back((buffer, event));
        there
    }
}

/// The lines of a buffer without gaps on the host.
fn packed(part: Region, device_pitch: usize) -> Lines {
    Lines {
        lines: part.lines,
        line_bytes: part.line_bytes,
        device_pitch,
        host_pitch: part.line_bytes,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_packed_in_parts_is_unpacked_to_where_it_was(
            first in 0usize..9, gap in 0usize..5, line_bytes in 1usize..30, lines in 1usize..12, room in 1usize..70,
        ) {
            let pitch = line_bytes + gap;
            let region = Region { first, pitch, line_bytes, lines };
            let size = first + (lines - 1) * pitch + line_bytes;
            let source: Vec<u8> = (0..size).map(|at| at as u8).collect();
            let mut target = vec![0xff; size];
            let mut expected = target.clone();
            for line in 0..lines {
                let at = first + line * pitch;
                expected[at..at + line_bytes].copy_from_slice(&source[at..at + line_bytes]);
            }
            let device_pitch = line_bytes + 3;
            let mut device = vec![0u8; lines * device_pitch];
            for (part, offset) in region.parts(room, device_pitch) {
                prop_assert!(part.bytes() <= room || part.lines == 1);
                let mut buffer = vec![0; part.bytes()];
                pack(&source, part, &mut buffer);
                for (line, bytes) in buffer.chunks(part.line_bytes).enumerate() {
                    let at = offset as usize + line * device_pitch;
                    device[at..at + bytes.len()].copy_from_slice(bytes);
                }
                unpack(&buffer, part, &mut target);
            }
            prop_assert_eq!(target, expected);
            for line in 0..lines {
                let at = first + line * pitch;
                prop_assert_eq!(&device[line * device_pitch..][..line_bytes], &source[at..at + line_bytes]);
            }
        }
    }
}

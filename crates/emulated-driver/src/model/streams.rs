//! Streams, events and captures. Work is done when it is enqueued, so that a stream outside of a
//! capture is always idle.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::ThreadId;
use std::time::Instant;

/// What is forbidden during captures (CUDA driver API, `cuThreadExchangeStreamCaptureMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Global = 0,
    ThreadLocal = 1,
    Relaxed = 2,
}

impl Mode {
    /// The mode of its number in `cuda.h`.
    pub(crate) fn of(number: u32) -> Option<Mode> {
        [Mode::Global, Mode::ThreadLocal, Mode::Relaxed]
            .into_iter()
            .find(|mode| *mode as u32 == number)
    }
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Unique in the life of the process.
    pub(crate) id: u64,
    /// Whether it waits for the legacy default stream, and that one for it.
    pub(crate) blocking: bool,
    /// The capture that it is part of.
    pub(crate) capture: Option<u64>,
}

/// The nodes of a capture that come before something, by the number of the node.
pub(crate) type Before = BTreeSet<usize>;

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) has_time: bool,
    pub(crate) recorded: Recorded,
}

/// When an event was recorded last.
#[derive(Clone, Debug)]
pub(crate) enum Recorded {
    Never,
    At(Instant),
    /// In a capture, after these nodes.
    InCapture(u64, Before),
}

/// A capture in progress, or one that has failed and must still be ended.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The handle of the graph that the work goes into.
    pub(crate) graph: usize,
    /// The stream that it began on.
    pub(crate) origin: usize,
    pub(crate) mode: Mode,
    pub(crate) thread: ThreadId,
    pub(crate) is_invalid: bool,
    /// Number of nodes so far.
    pub(crate) nodes: usize,
    /// The nodes of each stream, with all that come before them.
    pub(crate) streams: BTreeMap<usize, Before>,
}

impl Capture {
    /// Whether the stream that it began on has waited for all of its work.
    pub(crate) fn is_joined(&self) -> bool {
        self.streams.get(&self.origin).map_or(0, BTreeSet::len) == self.nodes
    }
}

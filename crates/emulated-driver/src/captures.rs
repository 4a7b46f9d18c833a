//! Which stream a handle names, and the rules of captures (CUDA driver API, "Stream Management").

use std::thread;

use crate::codes::{Code, Outcome};
use crate::model::streams::{Capture, Mode, Recorded, Stream};
use crate::model::work::Op;
use crate::state::{State, thread_mode};

/// Handles of `cuda.h`: the legacy default stream, and the one of the calling thread. Null is the
/// former.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

impl State {
    /// The key of the stream that a handle names.
    pub(crate) fn stream_key(&mut self, handle: usize) -> Outcome<usize> {
        match handle {
            0 | LEGACY => {
                if !self.streams.contains_key(&LEGACY) {
                    self.make_stream(LEGACY, true);
                }
                Ok(LEGACY)
            }
            PER_THREAD => {
                let thread = thread::current().id();
                if let Some((_, key)) = self.of_threads.iter().find(|(of, _)| *of == thread) {
                    return Ok(*key);
                }
                let key = self.new_handle();
                self.make_stream(key, true);
                self.of_threads.push((thread, key));
                Ok(key)
            }
            key if self.streams.contains_key(&key) => Ok(key),
            _ => Err(Code::INVALID_HANDLE),
        }
    }

    pub(crate) fn make_stream(&mut self, key: usize, blocking: bool) {
        let id = self.new_handle() as u64;
        self.streams.insert(key, Stream { id, blocking, capture: None });
    }

    /// The capture that a stream is part of.
    pub(crate) fn capture_of(&self, key: usize) -> Option<u64> {
        self.streams.get(&key)?.capture
    }

    /// Refuses the legacy default stream while a capture is in progress that it would have to wait
    /// for.
    pub(crate) fn check_implicit(&mut self, key: usize) -> Outcome {
        let blocking = |capture: &Capture| {
            let streams = capture.streams.keys().filter_map(|key| self.streams.get(key));
            capture.mode != Mode::Relaxed && streams.into_iter().any(|stream| stream.blocking)
        };
        if key != LEGACY {
            return Ok(());
        }
        let waited_for: Vec<u64> = self
            .captures
            .iter()
            .filter(|(_, capture)| blocking(capture))
            .map(|(id, _)| *id)
            .collect();
        waited_for.iter().for_each(|id| self.invalidate(*id));
        if waited_for.is_empty() { Ok(()) } else { Err(Code::STREAM_CAPTURE_IMPLICIT) }
    }

    /// The capture that work on a stream becomes part of. `None` if the work is to be done.
    pub(crate) fn capture_for_work(&mut self, key: usize) -> Outcome<Option<u64>> {
        self.check_implicit(key)?;
        let capture = self.capture_of(key);
        if capture.and_then(|id| self.captures.get(&id)).is_some_and(|capture| capture.is_invalid) {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        Ok(capture)
    }

    pub(crate) fn invalidate(&mut self, id: u64) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.is_invalid = true;
        }
    }

    /// Begins every function that may not be called during captures, such as one that waits for all
    /// streams: the captures that forbid it fail.
    pub(crate) fn unsafe_in_captures(&mut self) -> Outcome {
        let (here, mode) = (thread::current().id(), thread_mode());
        let mut refused = false;
        for capture in self.captures.values_mut().filter(|capture| !capture.is_invalid) {
            let forbids = match capture.mode {
                Mode::Relaxed => false,
                Mode::ThreadLocal => capture.thread == here,
                Mode::Global => capture.thread == here || mode == Mode::Global,
            };
            if mode != Mode::Relaxed && forbids {
                capture.is_invalid = true;
                refused = true;
            }
        }
        if refused { Err(Code::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Begins a function that waits for a stream, or asks whether it is idle.
    pub(crate) fn waits_for(&mut self, key: usize) -> Outcome {
        self.check_implicit(key)?;
        match self.capture_of(key) {
            Some(id) => {
                self.invalidate(id);
                Err(Code::STREAM_CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }

    pub(crate) fn begin_capture(&mut self, key: usize, mode: Mode) -> Outcome {
        if key == LEGACY {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        let (id, graph) = (self.new_handle() as u64, self.new_handle());
        let stream = self.streams.get_mut(&key).ok_or(Code::INVALID_HANDLE)?;
        if stream.capture.is_some() {
            return Err(Code::INVALID_VALUE);
        }
        stream.capture = Some(id);
        self.graphs.insert(graph, Default::default());
        let capture = Capture {
            graph,
            origin: key,
            mode,
            thread: thread::current().id(),
            is_invalid: false,
            nodes: 0,
            streams: [(key, Default::default())].into(),
        };
        self.captures.insert(id, capture);
        Ok(())
    }

    /// Ends the capture that began on a stream, and returns the handle of the graph.
    pub(crate) fn end_capture(&mut self, key: usize) -> Outcome<usize> {
        let id = self.capture_of(key).ok_or(Code::INVALID_VALUE)?;
        let capture = self.captures.get(&id).ok_or(Code::INVALID_VALUE)?;
        if capture.origin != key {
            self.invalidate(id);
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != Mode::Relaxed && capture.thread != thread::current().id() {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let (graph, is_invalid, is_joined) =
            (capture.graph, capture.is_invalid, capture.is_joined());
        self.captures.remove(&id);
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(id)) {
            stream.capture = None;
        }
        if is_invalid || !is_joined {
            self.graphs.remove(&graph);
            return Err(match is_invalid {
                true => Code::STREAM_CAPTURE_INVALIDATED,
                false => Code::STREAM_CAPTURE_UNJOINED,
            });
        }
        Ok(graph)
    }

    /// Adds work to a capture.
    pub(crate) fn record(&mut self, id: u64, key: usize, op: Op) -> Outcome {
        let capture = self.captures.get_mut(&id).ok_or(Code::INVALID_HANDLE)?;
        let graph = self.graphs.get_mut(&capture.graph).ok_or(Code::INVALID_HANDLE)?;
        graph.ops.push(op);
        capture.streams.entry(key).or_default().insert(capture.nodes);
        capture.nodes += 1;
        Ok(())
    }

    /// What an event is recorded as on a stream.
    pub(crate) fn mark(&mut self, key: usize) -> Outcome<Recorded> {
        let Some(id) = self.capture_for_work(key)? else {
            return Ok(Recorded::At(std::time::Instant::now()));
        };
        let capture = self.captures.get(&id).ok_or(Code::INVALID_HANDLE)?;
        Ok(Recorded::InCapture(id, capture.streams.get(&key).cloned().unwrap_or_default()))
    }

    /// Lets a stream wait for an event. One of a capture makes the stream part of it.
    pub(crate) fn wait(&mut self, key: usize, recorded: Recorded) -> Outcome {
        let own = self.capture_for_work(key)?;
        let (id, before) = match (recorded, own) {
            (Recorded::InCapture(id, before), own) if own.is_none_or(|own| own == id) => {
                (id, before)
            }
            (Recorded::InCapture(other, _), Some(own)) => {
                self.invalidate(own);
                self.invalidate(other);
                return Err(Code::STREAM_CAPTURE_MERGE);
            }
            (Recorded::At(_), Some(own)) => {
                self.invalidate(own);
                return Err(Code::STREAM_CAPTURE_ISOLATION);
            }
            _ => return Ok(()),
        };
        // The event of a capture that has ended orders nothing any more.
        let capture = self.captures.get_mut(&id).ok_or(Code::CAPTURED_EVENT)?;
        capture.streams.entry(key).or_default().extend(before);
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.capture = Some(id);
        }
        Ok(())
    }
}

//! Execution of a schedule on a device, with three streams and two events for each step. A second
//! thread handles downloads, because it may have to wait at times when uploads must continue.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use pgemm_kernels::BiasAlong;
use pgemm_plan::{Order, Plan};

use super::blocking::{Blocking, Shapes};
use super::schedule::{Lane, Schedule, Work};
use super::staging::{Region, Ring};
use super::tile::{Operand, Tile};
use super::{Budget, PlannedProduct, Progress, Report};
use crate::driver::{
    DeviceBuffer, Direction, Event, Lines, Stream, StreamRef, Timing, copy_lines, is_pinned,
};
use crate::error::{Error, Result};
use crate::gemm::{CallerWorkspace, Gemm, Prepared, RunRequest};
use crate::matrix::HostMatrix;
use crate::operands::{HostOperands, Operands};
use crate::work::Pointers;

/// The prepared products of a schedule, by extents and by whether they read C. Blocks at the ends
/// of the matrices are smaller than others.
pub(super) struct PreparedProducts(HashMap<([usize; 3], bool), Arc<Prepared>>);

impl PreparedProducts {
    /// The plan of the first block.
    pub(super) fn first_plan(&self, blocking: &Blocking) -> Option<Plan> {
        let extents = blocking.extents([0; 3]);
        let mut found = [true, false].iter().filter_map(|&reads_c| self.0.get(&(extents, reads_c)));
        found.next().map(|prepared| prepared.plan().clone())
    }

    /// Bytes of the largest workspace.
    pub(super) fn workspace_bytes(&self) -> u64 {
        self.0.values().map(|prepared| prepared.workspace_required_bytes()).max().unwrap_or(0)
    }
}

/// Prepares the products of a schedule.
///
/// # Errors
/// The errors of [`Gemm::prepare`].
pub(super) fn prepare(
    gemm: &Gemm,
    shapes: &Shapes,
    blocking: &Blocking,
    schedule: &Schedule,
) -> Result<PreparedProducts> {
    let mut prepared = HashMap::new();
    if shapes.problem.is_empty() {
        return Ok(PreparedProducts(prepared));
    }
    for step in &schedule.steps {
        let Work::Product { at, first, .. } = step.work else { continue };
        let problem = shapes.product(blocking, at, first);
        let key = (blocking.extents(at), problem.beta != 0.0);
        if let Entry::Vacant(place) = prepared.entry(key) {
            place.insert(gemm.prepare(&problem)?);
        }
    }
    Ok(PreparedProducts(prepared))
}

/// The number of downloads that the second thread has enqueued.
#[derive(Default)]
struct Downloads {
    enqueued: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Downloads {
    fn change(&self, change: impl FnOnce(&mut (usize, bool))) {
        change(&mut self.enqueued.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits until `count` downloads are enqueued. False if the thread ended before.
    fn wait(&self, count: usize) -> bool {
        let guard = self.enqueued.lock().unwrap_or_else(PoisonError::into_inner);
        let (enqueued, _) = *self
            .changed
            .wait_while(guard, |(enqueued, over)| *enqueued < count && !*over)
            .unwrap_or_else(PoisonError::into_inner);
        enqueued >= count
    }
}

/// Marks on drop that the thread has ended, also after a panic.
struct EndGuard<'a>(&'a Downloads);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.change(|(_, over)| *over = true);
    }
}

/// Waits for the streams on drop, because the memory that they use must not be freed before.
struct SynchronizeOnDrop<'a>(&'a [Stream; 3]);

impl SynchronizeOnDrop<'_> {
    fn wait(&self) -> Result<()> {
        self.0.iter().map(Stream::synchronize).fold(Ok(()), Result::and)
    }
}

impl Drop for SynchronizeOnDrop<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            tracing::warn!(%error, "a product by blocks could not be waited for");
        }
    }
}

/// The state that both threads read.
struct Run<'a> {
    planned: &'a PlannedProduct,
    memory: &'a DeviceBuffer,
    streams: &'a [Stream; 3],
    /// The events before and after each step.
    events: &'a [[Event; 2]],
    /// For each step, its number among the downloads, from 1.
    ordinals: Vec<usize>,
}

/// Runs a schedule and waits for it.
///
/// # Errors
/// A call of the driver fails, or memory is lacking.
pub(super) fn execute(
    planned: &PlannedProduct,
    memory: &DeviceBuffer,
    operands: HostOperands<'_>,
    d: &mut HostMatrix,
    budget: &Budget,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    let device = planned.gemm.device();
    let stream = || Stream::new(device);
    let streams = [stream()?, stream()?, stream()?];
    let steps = &planned.schedule.steps;
    let event = || Event::new(device, Timing::Enabled);
    let events =
        steps.iter().map(|_| Ok([event()?, event()?])).collect::<Result<Vec<[Event; 2]>>>()?;
    let pins = |matrix: &HostMatrix| is_pinned(device, matrix.bytes());
    let Operands { a, b, c, .. } = operands;
    let pinned = [pins(a), pins(b), c.is_none_or(pins), pins(d)];
    let ring =
        |needed: bool| needed.then(|| Ring::new(device, budget.staging_bytes / 2)).transpose();
    let mut rings = [ring(pinned[..3].contains(&false))?, ring(!pinned[3])?];
    let mut downs = 0;
    let ordinals = steps.iter().map(|step| {
        downs += usize::from(step.work.lane() == Lane::Down);
        downs
    });
    let ordinals = ordinals.collect();
    let run = Run { planned, memory, streams: &streams, events: &events, ordinals };
    let [up_ring, down_ring] = &mut rings;
    // Dropped before rings and events.
    let finish = SynchronizeOnDrop(&streams);

    let start = Instant::now();
    let downloads = Downloads::default();
    let outcome = std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        let down = || {
            let _over = EndGuard(&downloads);
            run.down(receiver, &downloads, d, down_ring.as_mut())
        };
        let worker = std::thread::Builder::new().spawn_scoped(scope, down);
        let worker = worker.map_err(|source| Error::NoThreads { source })?;
        let staged = [!pinned[0], !pinned[1], !pinned[2]];
        let up = run.up(operands, staged, up_ring.as_mut(), sender, &downloads, budget, progress);
        match worker.join() {
            // If the second thread failed first, its error is the cause.
            Ok(down) => down.and(up),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    let waited = finish.wait();
    let seconds = start.elapsed().as_secs_f64();
    outcome.and(waited)?;
    let mut busy = [0.0; 3];
    for (step, [before, after]) in steps.iter().zip(&events) {
        busy[step.work.lane() as usize] += f64::from(after.elapsed_ms(before)?) / 1e3;
    }
    Ok(planned.report(busy, seconds, pinned))
}

impl Run<'_> {
    /// Enqueues uploads and products, and sends the downloads to the second thread.
    #[allow(clippy::too_many_arguments)]
    fn up(
        &self,
        operands: HostOperands<'_>,
        staged: [bool; 3],
        mut ring: Option<&mut Ring>,
        sender: Sender<usize>,
        downloads: &Downloads,
        budget: &Budget,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let steps = &self.planned.schedule.steps;
        let mut reporter = ProgressReporter::new(self, progress);
        for (index, step) in steps.iter().enumerate() {
            let waits_down =
                step.waits.iter().filter(|&&wait| steps[wait].work.lane() == Lane::Down);
            let needed = waits_down.map(|&wait| self.ordinals[wait]).max().unwrap_or(0);
            // An event that was not recorded yet would not be waited for.
            if !downloads.wait(needed) {
                return Ok(());
            }
            match step.work {
                Work::Upload { tile, slot } => {
                    let stream = self.begin(index)?;
                    let matrix = match tile.operand {
                        Operand::A => operands.a,
                        Operand::B => operands.b,
                        Operand::C => operands.c.unwrap_or(operands.a),
                    };
                    let ring = ring.as_deref_mut().filter(|_| staged[tile.operand as usize]);
                    self.upload(matrix, tile, slot, ring, stream)?;
                    self.end(index)?;
                }
                Work::Product { at, slots, first } => {
                    let stream = self.begin(index)?;
                    self.product(at, slots, first, stream)?;
                    self.end(index)?;
                }
                Work::Download { .. } => {
                    if sender.send(index).is_err() {
                        return Ok(());
                    }
                }
            }
            if budget.one_at_a_time {
                if step.work.lane() == Lane::Down && !downloads.wait(self.ordinals[index]) {
                    return Ok(());
                }
                self.events[index][1].synchronize()?;
            }
            reporter.look(index, false)?;
        }
        reporter.look(steps.len(), true)
    }

    /// Enqueues the downloads that it receives, and unpacks them.
    fn down(
        &self,
        receiver: Receiver<usize>,
        downloads: &Downloads,
        d: &mut HostMatrix,
        mut ring: Option<&mut Ring>,
    ) -> Result<()> {
        for index in receiver {
            let Work::Download { row, column, slot } = self.planned.schedule.steps[index].work
            else {
                continue;
            };
            let tile = Tile { operand: Operand::C, row, column };
            let stream = self.begin(index)?;
            let (region, device_pitch) = self.region(d, tile);
            let target = (self.address(Operand::C, slot), device_pitch);
            let enqueued = || {
                self.end(index)?;
                downloads.change(|(enqueued, _)| *enqueued += 1);
                Ok(())
            };
            match ring.as_deref_mut() {
                Some(ring) => {
                    // SAFETY: the slot holds the block until the events after this are waited for.
                    unsafe { ring.download(d.bytes_mut(), region, target, stream, enqueued) }?
                }
                None => {
                    let host = d.bytes_mut()[region.first..].as_mut_ptr();
                    let lines = direct(region, device_pitch);
                    // SAFETY: as above; D is pinned, borrowed alone, and waited for before it is
                    // given back.
                    unsafe { copy_lines(Direction::ToHost, target.0, host, lines, stream) }?;
                    enqueued()?;
                }
            }
        }
        Ok(())
    }

    /// Makes the step's stream wait for the steps that it depends on.
    fn begin(&self, index: usize) -> Result<StreamRef<'_>> {
        let step = &self.planned.schedule.steps[index];
        let stream = self.streams[step.work.lane() as usize].as_ref();
        for &wait in &step.waits {
            stream.wait(&self.events[wait][1])?;
        }
        self.events[index][0].record(stream)?;
        Ok(stream)
    }

    fn end(&self, index: usize) -> Result<()> {
        let lane = self.planned.schedule.steps[index].work.lane();
        self.events[index][1].record(self.streams[lane as usize].as_ref())
    }

    fn address(&self, operand: Operand, slot: usize) -> u64 {
        self.memory.address() + self.planned.places.offset(operand, slot)
    }

    /// The region of a tile in its matrix, and the bytes between lines in its slot.
    fn region(&self, matrix: &HostMatrix, tile: Tile) -> (Region, usize) {
        let PlannedProduct { blocking, shapes, .. } = self.planned;
        let size = matrix.dtype().bytes() as usize;
        let [rows, columns] = shapes.tile_range(blocking, tile);
        let row_major = matrix.layout().order == Order::RowMajor;
        let [[first_line, lines], [offset, length]] =
            if row_major { [rows, columns] } else { [columns, rows] };
        let pitch = matrix.layout().leading_dimension * size;
        let first = first_line * pitch + offset * size;
        let device_pitch = shapes.tile_layout(blocking, tile).leading_dimension * size;
        (Region { first, pitch, line_bytes: length * size, lines }, device_pitch)
    }

    fn upload(
        &self,
        matrix: &HostMatrix,
        tile: Tile,
        slot: usize,
        ring: Option<&mut Ring>,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let (region, device_pitch) = self.region(matrix, tile);
        if region.lines == 0 || region.line_bytes == 0 {
            return Ok(());
        }
        let address = self.address(tile.operand, slot);
        match ring {
            // SAFETY: the slot is this tile's from the events before to those after.
            Some(ring) => unsafe {
                ring.upload(matrix.bytes(), region, (address, device_pitch), stream)
            },
            None => {
                let host = matrix.bytes()[region.first..].as_ptr().cast_mut();
                let lines = direct(region, device_pitch);
                // SAFETY: as above; the matrix is pinned, only read, and borrowed until the stream
                // was waited for.
                unsafe { copy_lines(Direction::ToDevice, address, host, lines, stream) }
            }
        }
    }

    /// The device address of the part of the bias that belongs to a block.
    fn bias(&self, at: [usize; 3]) -> u64 {
        let config = self.planned.gemm.config();
        let axis = match config.epilogue.bias() {
            Some(BiasAlong::M) => 0,
            Some(BiasAlong::N) => 1,
            None => return 0,
        };
        let before = self.planned.blocking.start(axis, at[axis]) as u64;
        let first = self.memory.address() + self.planned.bias_offset();
        first + before * u64::from(config.bias_dtype().bytes())
    }

    fn product(
        &self,
        at: [usize; 3],
        slots: [usize; 3],
        first: bool,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let PlannedProduct { gemm, shapes, blocking, places, prepared, workspace, .. } =
            self.planned;
        let problem = shapes.product(blocking, at, first);
        let [a, b, d] = [Operand::A, Operand::B, Operand::C]
            .map(|operand| self.address(operand, slots[operand as usize]));
        let pointers = Pointers::new(a, b, d, d).with_bias(self.bias(at));
        let address = self.memory.address() + places.bytes();
        let workspace = CallerWorkspace { address, bytes: *workspace };
        let Some(prepared) = prepared.0.get(&(blocking.extents(at), problem.beta != 0.0)) else {
            // All products were prepared.
            return Ok(());
        };
        let request = RunRequest::prepared(prepared, problem.alpha, problem.beta);
        let request = request.with_workspace(workspace);
        // SAFETY: the slots hold the tiles, as the events before it say, until those after it;
        // products follow each other on the stream, so that they share the workspace.
        unsafe { gemm.run_at(request, &pointers, stream) }
    }
}

/// The lines of a region in a host matrix.
fn direct(region: Region, device_pitch: usize) -> Lines {
    Lines {
        lines: region.lines,
        line_bytes: region.line_bytes,
        device_pitch,
        host_pitch: region.pitch,
    }
}

/// Reports finished products to the caller's progress function.
struct ProgressReporter<'a> {
    run: &'a Run<'a>,
    /// Steps that are products.
    products: Vec<usize>,
    done: usize,
    progress: &'a mut dyn FnMut(Progress),
}

impl<'a> ProgressReporter<'a> {
    fn new(run: &'a Run<'a>, progress: &'a mut dyn FnMut(Progress)) -> Self {
        let steps = run.planned.schedule.steps.iter().enumerate();
        let products = steps.filter(|(_, step)| step.work.lane() == Lane::Compute);
        let products = products.map(|(index, _)| index).collect();
        ProgressReporter { run, products, done: 0, progress }
    }

    /// Reports the finished products among the steps before `enqueued`. Waits for them if `wait` is
    /// set.
    fn look(&mut self, enqueued: usize, wait: bool) -> Result<()> {
        while let Some(&next) = self.products.get(self.done).filter(|&&next| next < enqueued) {
            let event = &self.run.events[next][1];
            if wait {
                event.synchronize()?;
            } else if !event.has_happened()? {
                break;
            }
            self.done += 1;
            (self.progress)(Progress { done: self.done, products: self.products.len() });
        }
        Ok(())
    }
}

//! The relay is one warp of the grid. It polls the host's doorbells, takes jobs into the ring in
//! device memory, and publishes them to all CTAs. Loads from host memory are slow, so no other warp
//! reads it. All lanes run together, and each lane takes in one job.

use pgemm_ir::{
    Element, KernelBuilder, Order, RegionId, RegionKind, Scope, SmemRequest, Special, Val, ty,
};

use super::layout::{
    ENTRY_BYTES, Entry, JOB_MASK, LANE_SLOTS, LANES, RECORD_BYTES, RING_SLOTS, SLOT_BYTES, Slot,
    Word, doorbell, queue,
};
use super::{QueueQuantity, leader};
use crate::params::Params;
use crate::queue::smem::RELAY_BYTES;

/// Lanes of a warp.
const WARP: u32 = 32;

/// The bit of the published word that says that no more jobs will come.
pub(crate) const LAST: u64 = 1 << 63;

/// The published word that gives up all tiles that no CTA has taken.
pub(crate) const GIVEN_UP: u64 = u64::MAX;

/// The relay of a kernel: its parameters and its shared memory.
pub(crate) struct Relay<'k> {
    b: &'k KernelBuilder,
    /// Words through which lanes pass values to each other.
    word: RegionId,
    doorbells: Val<'k, ty::U64>,
    entries: Val<'k, ty::U64>,
    state: Val<'k, ty::U64>,
    queue: Val<'k, ty::U64>,
    records: Val<'k, ty::U64>,
    launch: Val<'k, ty::U32>,
    idle: Val<'k, ty::U64>,
}

/// The state of the relay between two polls of the doorbells.
#[derive(Clone)]
struct Progress<'k> {
    /// For each lane of the queue, the number of jobs that the relay has taken in.
    heads: Vec<Val<'k, ty::U32>>,
    /// The numbers of tiles and of jobs that the relay has published.
    tiles: Val<'k, ty::U32>,
    jobs: Val<'k, ty::U32>,
    /// The slots of all jobs before this one are known to be free.
    free_to: Val<'k, ty::U32>,
}

/// The fields of [`Progress`]: heads, tiles, jobs, and the end of the free slots.
type Parts<'k> = (Vec<Val<'k, ty::U32>>, Val<'k, ty::U32>, Val<'k, ty::U32>, Val<'k, ty::U32>);

impl<'k> Progress<'k> {
    fn parts(self) -> Parts<'k> {
        (self.heads, self.tiles, self.jobs, self.free_to)
    }

    fn of((heads, tiles, jobs, free_to): Parts<'k>) -> Self {
        Progress { heads, tiles, jobs, free_to }
    }

    /// The state in which all published jobs are done.
    fn all_done(self) -> Self {
        Progress { free_to: (self.jobs + RING_SLOTS) & JOB_MASK, ..self }
    }

    /// The state with more jobs published. The end of the free slots never falls behind these
    /// jobs. Otherwise, as job numbers wrap, knowledge about old jobs would be taken for knowledge
    /// about future jobs.
    fn with_published(self, tiles: Val<'k, ty::U32>, count: Val<'k, ty::U32>) -> Self {
        let jobs = (self.jobs + count) & JOB_MASK;
        let is_ahead = ((self.free_to - jobs) & JOB_MASK).lt(RING_SLOTS);
        Progress { tiles, jobs, free_to: is_ahead.select(self.free_to, jobs), ..self }
    }

    /// Whether all published jobs are known to be done.
    fn is_all_done(&self) -> Val<'k, ty::Bool> {
        self.free_to.eq((self.jobs + RING_SLOTS) & JOB_MASK)
    }

    /// Whether a job's slot is known to be free.
    fn is_free(&self, job: Val<'k, ty::U32>) -> Val<'k, ty::Bool> {
        ((self.free_to - job - 1) & JOB_MASK).lt(RING_SLOTS)
    }
}

/// The content of the doorbells. It has the number of jobs of each lane of the queue, and the
/// command. It also has the record of the host's last job, or [`doorbell::LOOK`], and the tiles of
/// this job, or 0.
struct Doorbells<'k> {
    jobs: Vec<Val<'k, ty::U32>>,
    hint: Val<'k, ty::U32>,
    tiles: Val<'k, ty::U32>,
    control: Val<'k, ty::U32>,
}

/// What a doorbell says about a job.
#[derive(Clone, Copy)]
struct JobHint<'k> {
    /// Whether the doorbell names the job.
    is_known: Val<'k, ty::Bool>,
    record: Val<'k, ty::U32>,
    /// The job's tiles, or 0 if the doorbell does not say.
    tiles: Val<'k, ty::U32>,
}

impl<'k> Relay<'k> {
    /// Declares its parameters and its shared memory.
    pub(crate) fn declare(
        params: &Params<'k, QueueQuantity>,
        [queue, records]: [Val<'k, ty::U64>; 2],
    ) -> Self {
        let b = params.b;
        let word = SmemRequest::whole(RELAY_BYTES, 16);
        Relay {
            b,
            word: b.region("relay", RegionKind::Data(Element::S32), word),
            doorbells: params.scalar(QueueQuantity::Doorbells),
            entries: params.scalar(QueueQuantity::Entries),
            state: params.scalar(QueueQuantity::State),
            queue,
            records,
            launch: params.scalar(QueueQuantity::Launch),
            idle: params.scalar(QueueQuantity::IdleNanoseconds),
        }
    }

    /// Takes in jobs until the kernel is to end. One warp runs this.
    pub(crate) fn run(&self) {
        let b = self.b;
        let heads = (0..LANES).map(|lane| self.load(queue::HEADS_AT + lane * 4));
        let heads: Vec<_> = heads.collect();
        let at = self.queue.byte_offset(queue::PUBLISHED_AT);
        let published = leader::load_u64s::<1>(b, at, Order::Relaxed, Scope::Gpu);
        let (tiles, jobs) = (published[0].low_word(), (published[0] >> 32).low_word());
        // After an abort there is no state to continue from.
        let stays = published[0].ne(GIVEN_UP);
        b.if_(stays, || self.report(true));
        // The previous launch has completed all of its jobs.
        let start = Progress { heads, tiles, jobs, free_to: jobs }.all_done();
        let ((heads, ..), _, _) = b.while_(
            (start.parts(), b.clock(), stays),
            |(_, _, stays)| stays,
            |(progress, since, _)| {
                let before = Progress::of(progress);
                let doorbells = self.doorbells();
                let after = self.take_all(before.clone(), &doorbells);
                b.if_else(
                    after.jobs.ne(before.jobs),
                    || (after.clone().parts(), b.clock(), b.constant(true)),
                    || {
                        let (after, stays) = self.stays(doorbells.control, after.clone(), since);
                        b.if_else(
                            stays,
                            || (after.clone().parts(), since, b.constant(true)),
                            || {
                                let job_arrived = self.leave(&after, doorbells.control);
                                (
                                    after.clone().parts(),
                                    job_arrived.select(b.clock(), since),
                                    job_arrived,
                                )
                            },
                        )
                    },
                )
            },
        );
        self.in_lane_0(|| {
            for (lane, head) in (0..).zip(heads) {
                let at = self.queue.byte_offset(queue::HEADS_AT + lane * 4);
                b.store_ordered(at, head, Order::Relaxed, Scope::Gpu);
            }
        });
    }

    /// Runs `then` in lane 0 only.
    fn in_lane_0(&self, then: impl FnOnce()) {
        self.b.if_(self.b.special(Special::Lane).eq(0), then);
    }

    fn uniform(&self, value: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
        value.warp_uniform()
    }

    fn load(&self, at: u32) -> Val<'k, ty::U32> {
        let [word] = leader::load(self.b, self.queue.byte_offset(at), Order::Relaxed, Scope::Gpu);
        word
    }

    /// Tells the host whether this launch takes in jobs.
    fn report(&self, runs: bool) {
        let reported = (self.launch << 1) | u32::from(runs);
        self.in_lane_0(|| {
            self.b.store_ordered(self.state, reported, Order::Relaxed, Scope::System)
        });
    }

    /// Writes the published word. Only lane 0 writes.
    fn publish(&self, tiles: Val<'k, ty::U32>, jobs: Val<'k, ty::U32>, last: u64) {
        let word = tiles.to_u64() | (jobs.to_u64() << 32) | last;
        let at = self.queue.byte_offset(queue::PUBLISHED_AT);
        self.b.store_ordered(at, word, Order::Release, Scope::Gpu);
    }

    /// Reads the doorbells. A submitter writes the entry of a job before it rings.
    fn doorbells(&self) -> Doorbells<'k> {
        let b = self.b;
        let [host, reported, one, other] =
            leader::load(b, self.doorbells, Order::Acquire, Scope::System);
        // The words are not read atomically: a hint may be older or newer than the count.
        let count_difference = ((reported >> doorbell::COUNT_BIT) ^ host) & doorbell::COUNT_MASK;
        Doorbells {
            jobs: vec![host, one, other],
            hint: count_difference.eq(0).select(reported & doorbell::LOOK, doorbell::LOOK),
            tiles: (reported >> doorbell::TILES_BIT) & doorbell::MOST_TILES,
            control: reported >> doorbell::COMMAND_BIT,
        }
    }

    /// Takes in the jobs that the doorbells announce.
    fn take_all(&self, progress: Progress<'k>, doorbells: &Doorbells<'k>) -> Progress<'k> {
        let b = self.b;
        let parts = progress.parts();
        let all = b.for_carry(0, LANES, 1, parts, |lane, (heads, tiles, jobs, free_to)| {
            let lane_value = |words: &[Val<'k, ty::U32>]| {
                let rest = (1..).zip(&words[1..]);
                rest.fold(words[0], |word, (at, &other)| lane.eq(at).select(other, word))
            };
            let (head, end) = (lane_value(&heads), lane_value(&doorbells.jobs));
            let hint = lane.eq(0).select(doorbells.hint, doorbell::LOOK);
            let start = Progress { heads: vec![head], tiles, jobs, free_to };
            let taken = b.while_(
                start.parts(),
                |(heads, ..)| heads[0].ne(end),
                |parts| {
                    let before = Progress::of(parts);
                    let head = before.heads[0];
                    let count = (end - head).min(WARP);
                    let is_known = (end - head).eq(1) & hint.ne(doorbell::LOOK);
                    let hint = JobHint { is_known, record: hint, tiles: doorbells.tiles };
                    let tiles = self.take(lane, count, &before, hint);
                    let after = before.with_published(tiles, count);
                    Progress { heads: vec![head + count], ..after }.parts()
                },
            );
            let (own, tiles, jobs, free_to) = taken;
            let heads = (0..).zip(heads).map(|(at, old)| lane.eq(at).select(own[0], old));
            (heads.collect(), tiles, jobs, free_to)
        });
        Progress::of(all)
    }

    /// Takes in and publishes `count` jobs of a lane of the queue, starting with the job at the
    /// lane's head. Returns the number of tiles published so far. If there is one job and its
    /// record is known, its entry need not be read.
    fn take(
        &self,
        lane: Val<'k, ty::U32>,
        count: Val<'k, ty::U32>,
        before: &Progress<'k>,
        hint: JobHint<'k>,
    ) -> Val<'k, ty::U32> {
        let b = self.b;
        let thread = b.special(Special::Lane);
        let Progress { ref heads, tiles, jobs, .. } = *before;
        let head = heads[0];
        // Lanes without a job read the entry of the first job.
        let has_job = thread.lt(count);
        let number = head + has_job.select(thread, 0);
        let place = lane * LANE_SLOTS + number % LANE_SLOTS;
        let zero = b.constant::<ty::U32>(0);
        let [record, own, to_end, a, b_, c, d] = {
            let read = b.if_else(
                hint.is_known,
                || {
                    let in_record = || {
                        let words = self.records.byte_offset(hint.record * RECORD_BYTES);
                        let [own] = b.load_global(words.byte_offset(Word::Tiles.at()));
                        own
                    };
                    let own = b.if_else(hint.tiles.eq(0), in_record, || hint.tiles);
                    vec![hint.record, own, own, zero, zero, zero, zero]
                },
                || {
                    let at = self.entries.byte_offset(place * ENTRY_BYTES);
                    let [record, own, to_end, _] = b.load_global::<ty::U32, 4>(at);
                    let after = at.byte_offset(Entry::After as u32 * 4);
                    let after = b.load_global::<ty::U32, 4>(after);
                    [vec![record, own, to_end], after.to_vec()].concat()
                },
            );
            std::array::from_fn(|at| read[at])
        };
        let skipped = self.uniform(to_end - own);
        let job = (jobs + thread) & JOB_MASK;
        let slot = job % RING_SLOTS;
        let first = tiles + (to_end - own - skipped);
        b.if_(has_job & !before.is_free(job), || self.wait_until_free(slot, job));
        // A slot is reused only after the slots of all earlier jobs are free. The search for a
        // tile's job relies on this.
        b.warp_sync();
        b.if_(has_job, || {
            let at = self.queue.byte_offset(slot * SLOT_BYTES + queue::SLOTS_AT);
            b.store_ordered(at, first.to_u64() | (job.to_u64() << 32), Order::Relaxed, Scope::Gpu);
            let rest = at.byte_offset(Slot::Record as u32 * 4);
            let of_record = record.to_u64() | (own.to_u64() << 32);
            b.store_ordered(rest, of_record, Order::Relaxed, Scope::Gpu);
            let completion = [place, number + 1, zero, zero];
            b.store_global(at.byte_offset(Slot::Completion as u32 * 4), completion);
            b.store_global(at.byte_offset(Slot::After as u32 * 4), [a, b_, c, d]);
        });
        // The lane of the last job has the new number of tiles.
        let shared = b.smem_address(self.word);
        b.if_((thread + 1).eq(count), || b.store_shared(shared, [to_end, first, record, job]));
        b.warp_sync();
        let [end, first, record, job] = b.load_shared::<ty::U32, 4>(shared);
        let tiles = tiles + (self.uniform(end) - skipped);
        self.in_lane_0(|| {
            let at = self.queue.byte_offset(queue::LATEST_AT);
            let named = (record.to_u64() << queue::RECORD_BIT) | (job.to_u64() << queue::JOB_BIT);
            b.store_ordered(at, first.to_u64() | named, Order::Relaxed, Scope::Gpu);
            self.publish(tiles, (jobs + count) & JOB_MASK, 0);
        });
        // The next jobs overwrite the word.
        b.warp_sync();
        tiles
    }

    /// Waits until the job that was in a slot of the ring before `job` is done.
    fn wait_until_free(&self, slot: Val<'k, ty::U32>, job: Val<'k, ty::U32>) {
        let b = self.b;
        let before = (job - RING_SLOTS) & JOB_MASK;
        let at = self.queue.byte_offset(slot * 4 + queue::FREED_AT);
        let freed = || b.load_acquire(at) & JOB_MASK;
        b.while_(freed(), |freed| freed.ne(before), |_| freed());
    }

    /// Whether the relay goes on waiting for jobs. It does if published jobs are not done yet, or
    /// if it has not been idle for long.
    fn stays(
        &self,
        control: Val<'k, ty::U32>,
        progress: Progress<'k>,
        since: Val<'k, ty::U64>,
    ) -> (Progress<'k>, Val<'k, ty::Bool>) {
        let b = self.b;
        // An idle relay reads only the doorbells.
        let load_done = || {
            let at = self.queue.byte_offset(queue::DONE_AT);
            let [done] = leader::load(b, at, Order::Acquire, Scope::Gpu);
            let all_done = progress.clone().all_done().free_to;
            done.eq(progress.tiles).select(all_done, progress.free_to)
        };
        let free_to = b.if_else(progress.is_all_done(), || progress.free_to, load_done);
        let progress = Progress { free_to, ..progress.clone() };
        let patient = control.eq(doorbell::RUN) & (b.clock() - since).lt(self.idle);
        let stays = (!progress.is_all_done() | patient) & control.ne(doorbell::ABORT);
        let stays = self.uniform(stays.select(1, 0)).ne(0);
        (progress, stays)
    }

    /// Leaves, unless a job arrives at the last moment. Returns whether one did. The host rings
    /// first and then reads the state. The relay writes the state first and then reads the
    /// doorbells. So at least one of them sees the write of the other.
    fn leave(&self, progress: &Progress<'k>, control: Val<'k, ty::U32>) -> Val<'k, ty::Bool> {
        let b = self.b;
        self.report(false);
        b.fence(Order::SequentiallyConsistent, Scope::System);
        let doorbells = self.doorbells();
        let fresh = progress.heads.iter().zip(&doorbells.jobs).map(|(head, rung)| head.ne(*rung));
        let fresh = fresh.reduce(|one, other| one | other).unwrap_or_else(|| b.constant(false));
        let stays = fresh & control.ne(doorbell::ABORT);
        b.if_else(
            stays,
            || self.report(true),
            || {
                self.in_lane_0(|| {
                    b.if_else(
                        control.eq(doorbell::ABORT),
                        || {
                            let at = self.queue.byte_offset(queue::PUBLISHED_AT);
                            let given_up = b.constant(GIVEN_UP);
                            b.store_ordered(at, given_up, Order::Release, Scope::Gpu);
                        },
                        || self.publish(progress.tiles, progress.jobs, LAST),
                    );
                });
            },
        );
        stays
    }
}

#[cfg(test)]
mod tests {
    use pgemm_emulator::{Emulator, Memory, Options};
    use pgemm_ir::{Argument, Kernel, Launch};

    use super::*;

    const THREADS: u32 = 128;

    /// A kernel in which each thread publishes batches of one warp's jobs, as many as there are
    /// threads before it. Each thread then stores for how many more jobs slots are known to be
    /// free. It also stores whether the slots of the next job and of the ring's last job are known
    /// to be free.
    fn kernel() -> Kernel {
        let b = KernelBuilder::new("free", 1);
        b.warp_roles(pgemm_ir::Occupancy::ONE_CTA, |roles| {
            roles.role("all", 1, 128, |_| {
                let jobs = b.param::<ty::U32>("jobs");
                let shared = b.param::<ty::U64>("shared");
                let thread = b.special(Special::Thread);
                b.grid_dependency_wait();
                let tiles = b.constant(0);
                let start = Progress { heads: vec![], tiles, jobs, free_to: jobs }.all_done();
                let (_, parts) = b.while_(
                    (tiles, start.parts()),
                    |(batches, _)| batches.lt(thread),
                    |(batches, parts)| {
                        let count = b.constant(WARP);
                        (batches + 1, Progress::of(parts).with_published(tiles, count).parts())
                    },
                );
                let after = Progress::of(parts);
                let next = after.is_free(after.jobs).select(1, 0);
                let last = after.is_free((after.jobs + (RING_SLOTS - 1)) & JOB_MASK).select(1, 0);
                let ahead = (after.free_to - after.jobs) & JOB_MASK;
                b.store_global(shared.byte_offset(thread * 16), [ahead, next, last, after.jobs]);
            });
        });
        pgemm_ir::optimise(b.finish().unwrap()).unwrap()
    }

    /// Slots that were known to be free must not count as free again when numbers wrap. The
    /// knowledge ends with the jobs that it is about.
    #[test]
    fn slots_are_known_to_be_free_for_as_many_jobs_as_the_ring_has() {
        let kernel = kernel();
        for jobs in [0, 7, JOB_MASK - 500, JOB_MASK] {
            let mut memory = Memory::new();
            let shared = memory.allocate("shared", THREADS as usize * 16);
            let arguments = vec![Argument::U32(jobs), Argument::U64(shared)];
            let launch = Launch { grid: [1, 1, 1], arguments };
            let emulator = Emulator::new(&kernel, &launch, &mut memory, Options::default());
            emulator.unwrap().run().unwrap();
            let words = memory.read_raw(shared, THREADS as usize * 16).unwrap();
            let words = words.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
            let words: Vec<_> = words.collect();
            for (batches, found) in (0..).zip(words.as_chunks::<4>().0) {
                let published = batches * WARP;
                let ahead = RING_SLOTS.saturating_sub(published);
                let next = u32::from(ahead > 0);
                let last = u32::from(published == 0);
                let expected = [ahead, next, last, jobs.wrapping_add(published) & JOB_MASK];
                assert_eq!(*found, expected, "{batches} batches from {jobs}");
            }
        }
    }
}

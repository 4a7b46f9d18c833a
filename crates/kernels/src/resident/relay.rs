//! The relay: one thread of the grid that watches the host's doorbells, takes records of jobs into the ring in device memory,
//! and publishes them to all CTAs. Host memory is far away: nobody else reads it.

use pgemm_ir::{
    Element, KernelBuilder, Order, RegionId, RegionKind, Scope, SmemRequest, SwizzleMode,
    TensorMap, TensorMapSpec, Val, ty,
};

use super::layout::{JOB_MASK, LANE_SLOTS, LANES, RECORD_BYTES, RING_SLOTS, Word, doorbell, queue};

/// Records that are on their way at once.
const STAGES: u32 = 16;

const MBARRIER_BYTES: u32 = 8;

/// Bytes of shared memory that it takes.
pub(crate) const SMEM_BYTES: u32 = STAGES * (RECORD_BYTES + MBARRIER_BYTES);

/// The bit of what is published that says that no more will be.
pub(crate) const LAST: u64 = 1 << 63;

/// What is published where tiles that nobody has taken are given up.
pub(crate) const GIVEN_UP: u64 = u64::MAX;

/// Declarations of the relay.
pub(crate) struct Relay<'k> {
    b: &'k KernelBuilder,
    stages: RegionId,
    full: RegionId,
    submitted: TensorMap<'k>,
    ring: TensorMap<'k>,
    doorbells: Val<'k, ty::U64>,
    state: Val<'k, ty::U64>,
    queue: Val<'k, ty::U64>,
    launch: Val<'k, ty::U32>,
    idle: Val<'k, ty::U64>,
}

/// What it knows between two looks at the doorbells.
type Progress<'k> = (Vec<Val<'k, ty::U32>>, Val<'k, ty::U32>, Val<'k, ty::U32>, Val<'k, ty::U32>);

impl<'k> Relay<'k> {
    /// Declares its parameters and its shared memory.
    pub(crate) fn new(b: &'k KernelBuilder, queue: Val<'k, ty::U64>) -> Self {
        let records = TensorMapSpec {
            element: Element::S32,
            box_extents: vec![RECORD_BYTES / 4, 1],
            swizzle: SwizzleMode::None,
        };
        let stages = SmemRequest::whole(STAGES * RECORD_BYTES, 128);
        let barriers = SmemRequest::whole(STAGES * MBARRIER_BYTES, MBARRIER_BYTES);
        Relay {
            b,
            stages: b.region("records", RegionKind::Data(Element::S32), stages),
            full: b.region("records_full", RegionKind::Mbarrier, barriers),
            submitted: b.tensor_map("submitted", records.clone()),
            ring: b.tensor_map("ring", records),
            doorbells: b.param("doorbells"),
            state: b.param("state"),
            queue,
            launch: b.param("launch"),
            idle: b.param("idle_nanoseconds"),
        }
    }

    /// Initialises the barriers: one thread.
    pub(crate) fn init(&self) {
        for stage in 0..STAGES {
            self.b.smem_address(self.full).offset(stage * MBARRIER_BYTES).mbarrier_init(1);
        }
    }

    /// Takes jobs in until there is no use in staying. One thread.
    pub(crate) fn run(&self) {
        let b = self.b;
        let heads = (0..LANES).map(|lane| {
            let at = self.queue.byte_offset(queue::HEADS_AT + lane * 4);
            b.load_ordered::<ty::U32>(at, Order::Relaxed, Scope::Gpu)
        });
        let heads: Vec<_> = heads.collect();
        let published = self.published();
        let (tiles, jobs) = (published.low_word(), (published >> 32).low_word());
        self.say(true);
        let start = (heads, tiles, jobs, b.constant::<ty::U32>(0));
        let stays = b.constant(true);
        let ((heads, ..), _, _) = b.while_(
            (start, b.clock(), stays),
            |(_, _, stays)| stays,
            |(progress, since, _)| {
                let (progress, control, any) = self.look(progress);
                b.if_else(
                    any,
                    || (progress.clone(), b.clock(), b.constant(true)),
                    || {
                        let (_, tiles, ..) = &progress;
                        let stays = self.stays(control, *tiles, since);
                        b.if_else(
                            stays,
                            || (progress.clone(), since, stays),
                            || self.leave(progress.clone(), control, since),
                        )
                    },
                )
            },
        );
        for (lane, head) in (0..).zip(heads) {
            let at = self.queue.byte_offset(queue::HEADS_AT + lane * 4);
            b.store_ordered(at, head, Order::Relaxed, Scope::Gpu);
        }
    }

    /// Tells the host whether this launch takes jobs.
    fn say(&self, runs: bool) {
        let said = (self.launch << 1) | u32::from(runs);
        self.b.store_ordered(self.state, said, Order::Relaxed, Scope::System);
    }

    fn published(&self) -> Val<'k, ty::U64> {
        let at = self.queue.byte_offset(queue::PUBLISHED_AT);
        self.b.load_ordered(at, Order::Relaxed, Scope::Gpu)
    }

    fn publish(&self, tiles: Val<'k, ty::U32>, jobs: Val<'k, ty::U32>, last: u64) {
        let word = tiles.widen() | (jobs.widen() << 32) | last;
        let at = self.queue.byte_offset(queue::PUBLISHED_AT);
        self.b.store_ordered(at, word, Order::Release, Scope::Gpu);
    }

    /// The doorbells of the lanes, and the control word behind them.
    fn doorbells(&self) -> (Vec<Val<'k, ty::U32>>, Val<'k, ty::U32>) {
        let words =
            self.b.load_ordered_many::<ty::U32, 4>(self.doorbells, Order::Relaxed, Scope::System);
        (words[..LANES as usize].to_vec(), words[doorbell::CONTROL_AT as usize / 4])
    }

    /// Looks at the doorbells once and takes in what they tell of. Gives the control word, and whether there was anything.
    fn look(
        &self,
        (heads, tiles, jobs, rounds): Progress<'k>,
    ) -> (Progress<'k>, Val<'k, ty::U32>, Val<'k, ty::Bool>) {
        let b = self.b;
        let (doorbells, control) = self.doorbells();
        let before = jobs;
        let all = b.for_carry(0, LANES, 1, (heads, tiles, jobs, rounds), |lane, progress| {
            let (heads, tiles, jobs, rounds) = progress;
            let of_lane = |words: &[Val<'k, ty::U32>]| {
                let rest = (1..).zip(&words[1..]);
                rest.fold(words[0], |word, (at, &other)| lane.eq(at).select(other, word))
            };
            let (head, doorbell) = (of_lane(&heads), of_lane(&doorbells));
            let (head, tiles, jobs, rounds) = b.while_(
                (head, tiles, jobs, rounds),
                |(head, ..)| head.ne(doorbell),
                |(head, tiles, jobs, rounds)| {
                    let count = (doorbell - head).min(STAGES);
                    self.take_in(lane, head, count, tiles, jobs, rounds)
                },
            );
            let heads = (0..).zip(heads).map(|(at, old)| lane.eq(at).select(head, old));
            (heads.collect(), tiles, jobs, rounds)
        });
        let any = all.2.ne(before);
        (all, control, any)
    }

    /// Takes in `count` records of a lane, from its job number `head` on, and publishes them.
    fn take_in(
        &self,
        lane: Val<'k, ty::U32>,
        head: Val<'k, ty::U32>,
        count: Val<'k, ty::U32>,
        tiles: Val<'k, ty::U32>,
        jobs: Val<'k, ty::U32>,
        rounds: Val<'k, ty::U32>,
    ) -> (Val<'k, ty::U32>, Val<'k, ty::U32>, Val<'k, ty::U32>, Val<'k, ty::U32>) {
        let b = self.b;
        let zero = b.constant(0);
        let full =
            |stage: Val<'k, ty::U32>| b.smem_address(self.full).offset(stage * MBARRIER_BYTES);
        let record =
            |stage: Val<'k, ty::U32>| b.smem_address(self.stages).offset(stage * RECORD_BYTES);
        // Records were written before their doorbell was rung; TMA reads them, and overwrites what was read here before.
        b.fence(Order::AcquireRelease, Scope::System);
        b.fence_proxy_async_global();
        b.fence_proxy_async();
        b.for_range(0, count, 1, |stage| {
            let row = lane * LANE_SLOTS + (head + stage) % LANE_SLOTS;
            full(stage).mbarrier_arrive_expect(RECORD_BYTES);
            self.submitted.load(record(stage), full(stage), &[zero, row]);
        });
        let (tiles, rounds) =
            b.for_carry(0, count, 1, (tiles, rounds), |stage, (tiles, rounds)| {
                let job = (jobs + stage) & JOB_MASK;
                let slot = job % RING_SLOTS;
                full(stage).mbarrier_wait((rounds >> stage) & 1);
                let [of_job] = b.load_shared::<ty::U32, 1>(record(stage).offset(Word::Tiles.at()));
                self.wait_until_free(slot, job);
                let entry = tiles.widen() | (job.widen() << 32);
                let at = self.queue.byte_offset(slot * 8 + queue::DIRECTORY_AT);
                b.store_ordered(at, entry, Order::Relaxed, Scope::Gpu);
                self.ring.store(record(stage), &[zero, slot]);
                b.bulk_commit();
                (tiles + of_job, rounds ^ (b.constant::<ty::U32>(1) << stage))
            });
        b.bulk_wait(0);
        b.fence_proxy_async_global();
        b.fence_map_release(Scope::Gpu);
        let jobs = (jobs + count) & JOB_MASK;
        self.publish(tiles, jobs, 0);
        (head + count, tiles, jobs, rounds)
    }

    /// Waits until the job that was in a slot of the ring before `job` is done.
    fn wait_until_free(&self, slot: Val<'k, ty::U32>, job: Val<'k, ty::U32>) {
        let b = self.b;
        let before = (job - RING_SLOTS) & JOB_MASK;
        let at = self.queue.byte_offset(slot * 4 + queue::FREED_AT);
        b.while_(
            b.load_acquire(at),
            |freed| freed.ne(before),
            |_| {
                b.sleep(100);
                b.load_acquire(at)
            },
        );
    }

    /// Whether it goes on waiting for jobs: those that it published are not done yet, or it has not been idle for long.
    fn stays(
        &self,
        control: Val<'k, ty::U32>,
        tiles: Val<'k, ty::U32>,
        since: Val<'k, ty::U64>,
    ) -> Val<'k, ty::Bool> {
        let b = self.b;
        let done = b.load_acquire(self.queue.byte_offset(queue::DONE_AT));
        let patient = control.eq(doorbell::RUN) & (b.clock() - since).lt(self.idle);
        (done.ne(tiles) | patient) & control.ne(doorbell::ABORT)
    }

    /// Leaves, unless a job comes in at the last moment: the host rings first and then looks at the state, the relay writes the state
    /// first and then looks at the doorbells, so that one of them sees what the other did.
    fn leave(
        &self,
        progress: Progress<'k>,
        control: Val<'k, ty::U32>,
        since: Val<'k, ty::U64>,
    ) -> (Progress<'k>, Val<'k, ty::U64>, Val<'k, ty::Bool>) {
        let b = self.b;
        let (heads, tiles, jobs, _) = &progress;
        self.say(false);
        b.fence(Order::SequentiallyConsistent, Scope::System);
        let (doorbells, _) = self.doorbells();
        let fresh = heads.iter().zip(&doorbells).map(|(head, rung)| head.ne(*rung));
        let fresh = fresh.reduce(|one, other| one | other).unwrap_or_else(|| b.constant(false));
        let stays = fresh & control.ne(doorbell::ABORT);
        b.if_else(
            stays,
            || self.say(true),
            || {
                b.if_else(
                    control.eq(doorbell::ABORT),
                    || {
                        let at = self.queue.byte_offset(queue::PUBLISHED_AT);
                        b.store_ordered(at, b.constant(GIVEN_UP), Order::Release, Scope::Gpu);
                    },
                    || self.publish(*tiles, *jobs, LAST),
                );
            },
        );
        let since = stays.select(b.clock(), since);
        (progress, since, stays)
    }
}

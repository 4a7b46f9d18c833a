//! The host: an actor beside the kernel that submits jobs and checks their results.

use pgemm_emulator::{
    Emulator, HostStep, HostView, Memory, Options, Permission, Report, Schedule, Statistics,
};
use pgemm_ir::Launch;
use pgemm_kernels::GemmKernel;
use pgemm_kernels::resident::layout::{ENTRY_BYTES, LANE_SLOTS, LANES, doorbell, initial_queue};
use pgemm_kernels::resident::record::QueueMemory;

use crate::job::{Job, Placed, is_right, numbers, place};

/// What the host does next.
enum Next {
    Write(usize),
    Ring(usize),
    Fence(usize),
    Look(usize),
    Pause(u64),
    Await,
    Stop,
    Leave,
}

/// Runs jobs; the host pauses for so many nanoseconds before each.
pub fn run(
    name: &str,
    jobs: &[Job],
    ctas: u32,
    schedule: Schedule,
    pauses: &[u64],
) -> (Statistics, u32) {
    let (statistics, launches, done) = run_to(name, jobs, ctas, schedule, pauses, doorbell::STOP);
    assert_eq!(done, jobs.len());
    (statistics, launches)
}

/// Runs jobs like [`run`], and ends the kernel by a command: once all jobs are done, or at once if
/// they are abandoned. Also returns how many jobs were done.
pub fn run_to(
    name: &str,
    jobs: &[Job],
    ctas: u32,
    schedule: Schedule,
    pauses: &[u64],
    command: u32,
) -> (Statistics, u32, usize) {
    let kernel = GemmKernel::build(&name.parse().unwrap()).unwrap();
    let result = run_kernel(&kernel, jobs, ctas, schedule, pauses, command);
    result.unwrap_or_else(|report| panic!("{name}: {report}"))
}

/// Runs jobs like [`run_to`] in a kernel that may have been changed.
pub fn run_kernel(
    kernel: &GemmKernel,
    jobs: &[Job],
    ctas: u32,
    schedule: Schedule,
    pauses: &[u64],
    command: u32,
) -> Result<(Statistics, u32, usize), Box<Report>> {
    const IDLE: u64 = 20_000;
    let spec = *kernel.spec();
    let mut memory = Memory::new();
    let placed = place(kernel, jobs, &mut memory);
    let host = memory.upload("doorbells", &[0; 64], Permission::ReadWrite);
    let completions_bytes = vec![0; (LANES * LANE_SLOTS * 4) as usize];
    let records: Vec<u8> = placed.iter().flat_map(|placed| placed.record.clone()).collect();
    let entries_bytes = (LANES * LANE_SLOTS * ENTRY_BYTES) as usize;
    let queue = QueueMemory {
        queue: memory.upload("queue", &initial_queue(), Permission::ReadWrite),
        records: memory.upload("records", &records, Permission::ReadOnly),
        doorbells: host,
        state: memory.upload("state", &[0; 4], Permission::ReadWrite),
        completions: memory.upload("completions", &completions_bytes, Permission::ReadWrite),
        entries: memory.allocate("entries", entries_bytes),
    };
    let launch =
        |number| -> Launch { kernel.signature.bind_queue(&queue, ctas, number, IDLE).unwrap() };
    let is_done = |view: &mut HostView<'_>, placed: &Placed| {
        let at = queue.completions + u64::from(placed.own.word * 4);
        placed.own.is_done(view.load_acquire_u32(at))
    };
    let (mut launches, mut rung) = (1, [0u32; LANES as usize]);
    let mut next = Next::Pause(pauses.first().copied().unwrap_or(0));
    let (mut at, mut finished) = (0, 0);
    let mut since = None;
    let mut act = |view: &mut HostView<'_>| -> HostStep {
        match next {
            Next::Pause(time) => {
                let begin = *since.get_or_insert(view.nanoseconds());
                if view.nanoseconds() - begin < time {
                    return HostStep::Ran;
                }
                since = None;
                next = Next::Write(at);
            }
            Next::Write(job) => {
                let own = placed[job].own;
                let slot = queue.entries + u64::from(own.word * ENTRY_BYTES);
                view.write(slot, &placed[job].entry);
                next = Next::Ring(job);
            }
            Next::Ring(job) => {
                let lane = placed[job].job.lane;
                rung[lane as usize] += 1;
                // Some jobs say at the doorbell which record they have.
                let plain = placed[job].job.after.is_empty() && job % 2 == 0;
                let (hint, tiles) =
                    if plain { (job as u32, placed[job].tiles) } else { (doorbell::LOOK, 0) };
                let count = rung[lane as usize];
                let at = match lane {
                    0 => {
                        let hint = doorbell::hint(hint, tiles, count, doorbell::RUN);
                        view.store_release_u32(host + u64::from(doorbell::HINT_AT), hint);
                        doorbell::HOST_AT
                    }
                    _ => doorbell::STREAMS_AT + (lane - 1) * 4,
                };
                view.store_release_u32(host + u64::from(at), count);
                next = Next::Fence(job);
            }
            Next::Fence(job) => {
                view.fence_seq_cst();
                next = Next::Look(job);
            }
            Next::Look(job) => {
                at = job + 1;
                let pause = pauses.get(at).copied().unwrap_or(0);
                next = if at < placed.len() { Next::Pause(pause) } else { Next::Await };
                if view.load_acquire_u32(queue.state) == launches << 1 {
                    launches += 1;
                    return HostStep::Launch(launch(launches));
                }
            }
            Next::Await => {
                let mut all_done = || placed.iter().all(|placed| is_done(view, placed));
                if command == doorbell::STOP && !all_done() {
                    return HostStep::Waits;
                }
                next = Next::Stop;
            }
            Next::Stop => {
                let hint = doorbell::hint(doorbell::LOOK, 0, rung[0], command);
                view.store_release_u32(host + u64::from(doorbell::HINT_AT), hint);
                next = Next::Leave;
            }
            Next::Leave => {
                if view.kernel_runs() {
                    return HostStep::Waits;
                }
                // The kernel reports to the device, not to the host, that D is stored.
                for placed in &placed {
                    if !is_done(view, placed) {
                        continue;
                    }
                    finished += 1;
                    let Placed { d, expected, job, .. } = placed;
                    let element = spec.output.bytes() as usize;
                    let found = numbers(spec.output, &view.read(*d, expected.len() * element));
                    let mut both = found.iter().zip(expected);
                    let wrong = both.position(|(found, wanted)| !is_right(&spec, *found, *wanted));
                    assert_eq!(wrong, None, "{job:?}");
                }
                return HostStep::Done;
            }
        }
        HostStep::Ran
    };
    let options = Options { schedule, max_steps: 30_000_000, ..Options::default() };
    let emulator = Emulator::new(&kernel.kernel, &launch(1), &mut memory, options).unwrap();
    let statistics = emulator.with_host(&mut act).run()?;
    Ok((statistics, launches, finished))
}

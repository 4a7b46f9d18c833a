//! Resident kernels in the emulator, with the host as one more actor, and through every installed
//! assembler. Jobs have several shapes and come in order and in no order. They run under many
//! schedules, over idle times and several launches.

#[path = "common/assemblers.rs"]
mod assemblers;

use assemblers::assemblers;
use half::{bf16, f16};
use pgemm_emulator::{
    Emulator, HostStep, HostView, Memory, Options, Permission, Schedule, Statistics,
    tensor_map_image,
};
use pgemm_ir::{Element, Launch, OperandMajor};
use pgemm_kernels::resident::layout::{
    ENTRY_BYTES, LANE_SLOTS, LANES, RECORD_BYTES, doorbell, initial_queue,
};
use pgemm_kernels::resident::record::{Completion, QueueMemory, entry};
use pgemm_kernels::{
    BiasAlong, Epilogue, EpilogueShape, GemmKernel, MatrixArgument, Spec, Summation, Work,
    catalogue,
};

const SPECS: [&str; 3] = [
    "bf16-kk-bf16-64x32x64-s3-w1-c1x1-resident",
    "bf16-kk-f32-64x16x64-s2-p2-c1x1-resident",
    "bf16-kk-bf16-128x32x64-s2-w2-c1x1-resident",
];

/// A product D = A·Bᵀ + beta·C with the kernel's epilogue, which depends on other jobs.
#[derive(Clone, Debug)]
struct Job {
    extents: [u32; 3],
    beta: f64,
    /// The jobs that it depends on. The first of them stores its A.
    after: Vec<usize>,
    lane: u32,
}

fn job(m: u32, n: u32, k: u32) -> Job {
    Job { extents: [m, n, k], beta: 0.0, after: vec![], lane: 0 }
}

/// A job whose matrices are in memory.
struct Placed {
    job: Job,
    record: Vec<u8>,
    tiles: u32,
    entry: Vec<u8>,
    own: Completion,
    d: u64,
    expected: Vec<f64>,
}

fn integers(seed: u64, count: u32) -> Vec<f64> {
    let mut state = seed;
    let next = |_| {
        // This is Knuth's MMIX generator.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        f64::from((state >> 33) as u32 % 5) - 2.0
    };
    (0..count).map(next).collect()
}

/// Small integers as bytes of elements.
fn bytes_of(element: Element, values: &[f64]) -> Vec<u8> {
    let one = |value: f64| -> Vec<u8> {
        // Sign, exponent and fraction of 0, 1 and 2.
        let of_8_bits = |one: u8, two: u8| {
            let magnitude = [0, one, two][value.abs() as usize];
            vec![magnitude | u8::from(value < 0.0) << 7]
        };
        match element {
            Element::Bf16 => bf16::from_f64(value).to_le_bytes().into(),
            Element::F16 => f16::from_f64(value).to_le_bytes().into(),
            Element::F32 | Element::Tf32 => (value as f32).to_le_bytes().into(),
            Element::S32 => (value as i32).to_le_bytes().into(),
            Element::E4m3 => of_8_bits(0x38, 0x40),
            Element::E5m2 => of_8_bits(0x3c, 0x40),
            Element::S8 => (value as i8).to_le_bytes().into(),
            other => panic!("no test writes {other}"),
        }
    };
    values.iter().flat_map(|value| one(*value)).collect()
}

/// The elements of D as numbers.
fn numbers(element: Element, bytes: &[u8]) -> Vec<f64> {
    let one = |bytes: &[u8]| match (element, bytes) {
        (Element::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f64(),
        (Element::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f64(),
        (Element::S32, &[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]).into(),
        (_, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]).into(),
        other => panic!("no test reads {other:?}"),
    };
    bytes.chunks(element.bytes() as usize).map(one).collect()
}

fn matrix(address: u64, leading_dimension: u32) -> MatrixArgument {
    MatrixArgument { address, leading_dimension: leading_dimension.into(), batch_stride: 0 }
}

/// The activation of a result.
fn activated(epilogue: EpilogueShape, parameters: &[f64], x: f64) -> f64 {
    epilogue.activation().map_or(x, |activation| activation.reference(x, parameters))
}

/// Whether a result is correct. Integers must be exact, and results of smooth functions must be
/// close.
fn is_right(spec: &Spec, found: f64, wanted: f64) -> bool {
    match spec.epilogue.activation() {
        None => found == wanted,
        Some(activation) if activation.error(Element::F32) == [0.0; 2] => found == wanted,
        _ => {
            let rounding = if spec.output == Element::F32 { 1e-5 } else { 1.0 / 256.0 };
            (found - wanted).abs() <= rounding * wanted.abs() + 1e-6
        }
    }
}

/// Puts the jobs' matrices and records in memory.
fn place(kernel: &GemmKernel, jobs: &[Job], memory: &mut Memory) -> Vec<Placed> {
    let Spec { a: operand, b_major, output, epilogue, .. } = *kernel.spec();
    let mut placed: Vec<Placed> = vec![];
    let mut submitted = [0; LANES as usize];
    let mut tiles = [0u32; LANES as usize];
    for (seed, job) in (0u64..).zip(jobs) {
        let [m, n, k] = job.extents;
        let b = integers(7 * seed + 1, n * k);
        let c = integers(7 * seed + 2, m * n);
        let (a_address, a) = match job.after.first() {
            Some(&before) => (placed[before].d, placed[before].expected.clone()),
            None => {
                let a = integers(7 * seed + 3, m * k);
                (memory.upload("a", &bytes_of(operand, &a), Permission::ReadOnly), a)
            }
        };
        // The same numbers, with a row of B for each k.
        let along_n = (0..n * k).map(|at| b[(at % n * k + at / n) as usize]).collect::<Vec<_>>();
        let (stored, b_line) = match b_major {
            OperandMajor::K => (&b, k),
            OperandMajor::Mn => (&along_n, n),
        };
        let b_address = memory.upload("b", &bytes_of(operand, stored), Permission::ReadOnly);
        let c_bytes = bytes_of(output, &c);
        let c_address = memory.upload("c", &c_bytes, Permission::ReadOnly);
        let d = memory.allocate("d", (m * n * output.bytes()) as usize);
        let bias_type = Epilogue::bias_type(output);
        // Every other job has addresses at which no two elements can be loaded at once.
        let shift = seed as usize % 2;
        let bias = integers(7 * seed + 4, epilogue.bias_length(m as usize, n as usize) as u32);
        let shifted = [&vec![0.0; shift][..], &bias].concat();
        let bias_bytes = bytes_of(bias_type, &shifted);
        let bias_address = match epilogue.bias() {
            None => 0,
            Some(_) => {
                memory.upload("bias", &bias_bytes, Permission::ReadOnly)
                    + shift as u64 * u64::from(bias_type.bytes())
            }
        };
        // Each job has other parameters.
        let parameters = [-3.0 - seed as f64, 2.0 + seed as f64];
        let expected = (0..m * n)
            .map(|at| {
                let (row, column) = ((at / n * k) as usize, (at % n * k) as usize);
                let k = k as usize;
                let products = a[row..row + k].iter().zip(&b[column..column + k]);
                let product = products.map(|(a, b)| a * b).sum::<f64>();
                let added = match epilogue.bias() {
                    None => 0.0,
                    Some(BiasAlong::N) => bias[(at % n) as usize],
                    Some(BiasAlong::M) => bias[(at / n) as usize],
                };
                activated(epilogue, &parameters, product + job.beta * c[at as usize] + added)
            })
            .collect();
        let d_matrix = matrix(d, n);
        let work = Work {
            m,
            n,
            k,
            beta: job.beta,
            a: matrix(a_address, k),
            b: matrix(b_address, b_line),
            c: if job.beta == 0.0 { d_matrix } else { matrix(c_address, n) },
            d: d_matrix,
            raster_rows: 2,
            bias: bias_address,
            parameters,
            ..Work::default()
        };
        let number = &mut submitted[job.lane as usize];
        let own = Completion::of(job.lane, *number);
        *number += 1;
        let record = kernel.signature.record(&work, seed as u32 + 1).unwrap();
        let after: Vec<_> = job.after.iter().map(|&before| placed[before].own).collect();
        let to_end = &mut tiles[job.lane as usize];
        *to_end += record.tiles();
        let entry = entry(seed as u32, record.tiles(), *to_end, &after).unwrap();
        let entry = entry.iter().flat_map(|word| word.to_le_bytes()).collect();
        let images = record.maps.iter().map(|(spec, map)| tensor_map_image(spec, map).unwrap());
        let mut bytes: Vec<u8> = images.flatten().collect();
        bytes.extend(record.words.iter().flat_map(|word| word.to_le_bytes()));
        assert_eq!(bytes.len(), RECORD_BYTES as usize);
        let (job, tiles) = (job.clone(), record.tiles());
        placed.push(Placed { job, record: bytes, tiles, entry, own, d, expected });
    }
    placed
}

/// The next action of the host.
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

/// Runs jobs. Before each job the host pauses for this number of nanoseconds.
fn run(
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

/// Runs jobs and ends with a command: once all jobs are done, or at once if they are given up. Also
/// returns the number of completed jobs.
fn run_to(
    name: &str,
    jobs: &[Job],
    ctas: u32,
    schedule: Schedule,
    pauses: &[u64],
    command: u32,
) -> (Statistics, u32, usize) {
    const IDLE: u64 = 20_000;
    let spec: Spec = name.parse().unwrap();
    let kernel = GemmKernel::build(&spec).unwrap();
    let mut memory = Memory::new();
    let placed = place(&kernel, jobs, &mut memory);
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
                // For some jobs the doorbell names the record.
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
                let done = |placed: &Placed| {
                    let at = queue.completions + u64::from(placed.own.word * 4);
                    placed.own.is_done(view.load_acquire_u32(at))
                };
                if command == doorbell::STOP && !placed.iter().all(done) {
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
                // The kernel reports to the device, not to the host, that D is stored. Copies see
                // D, and so does this check of the memory after the run.
                for Placed { d, expected, job, own, .. } in &placed {
                    let said = queue.completions + u64::from(own.word * 4);
                    if !own.is_done(view.load_acquire_u32(said)) {
                        continue;
                    }
                    finished += 1;
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
    let statistics =
        emulator.with_host(&mut act).run().unwrap_or_else(|report| panic!("{name}: {report}"));
    (statistics, launches, finished)
}

#[test]
fn one_job_is_done() {
    for name in SPECS {
        run(name, &[job(64, 32, 128)], 2, Schedule::round_robin(), &[]);
    }
}

#[test]
fn kernels_of_all_types_are_right() {
    for spec in picked().into_iter().filter(|spec| spec.a != Element::U8) {
        let jobs = [job(64, 64, 256), job(144, 80, 128)];
        run(&spec.to_string(), &jobs, 2, Schedule::round_robin(), &[]);
    }
}

#[test]
fn jobs_of_many_shapes_are_right_under_any_schedule() {
    let mut jobs = vec![
        job(64, 32, 64),
        job(8, 8, 8),
        job(200, 72, 136),
        Job { beta: 2.0, ..job(72, 40, 64) },
        Job { lane: 1, ..job(128, 64, 192) },
    ];
    jobs.push(Job { lane: 2, ..job(64, 64, 320) });
    for name in SPECS {
        for seed in 0..3 {
            for schedule in
                [Schedule::seeded(seed), Schedule::async_late(seed), Schedule::async_early(seed)]
            {
                run(name, &jobs, 3, schedule, &[]);
            }
        }
    }
}

/// A kernel with another epilogue.
fn with_epilogue(spec: Spec, epilogue: &str) -> Spec {
    Spec { epilogue: epilogue.parse::<Epilogue>().unwrap().shape(), ..spec }
}

#[test]
fn epilogues_take_the_bias_of_each_job() {
    // There are so few products that bf16 holds the sums that become operands.
    let after = Job { after: vec![0], ..job(72, 40, 16) };
    let jobs = [job(72, 16, 8), Job { beta: 2.0, ..job(200, 72, 136) }, after, job(8, 8, 8)];
    for (name, epilogue) in [
        (SPECS[0], "bias_n"),
        (SPECS[0], "bias_m|relu"),
        (SPECS[1], "bias_n|silu"),
        (SPECS[1], "bias_m"),
        (SPECS[1], "gelu"),
        (SPECS[0], "clamp(0,1)"),
        (SPECS[1], "bias_m|clamp(0,1)"),
        (SPECS[2], "bias_n|relu"),
        (SPECS[2], "bias_m|gelu"),
    ] {
        let spec = with_epilogue(name.parse().unwrap(), epilogue);
        // Rounded results are not operands of exact products.
        let exact = spec.output == Element::Bf16 && !epilogue.contains("gelu");
        let jobs: Vec<_> =
            jobs.iter().filter(|job| exact || job.after.is_empty()).cloned().collect();
        let name = spec.to_string();
        assert_eq!(name.parse(), Ok(spec));
        run(&name, &jobs, 2, Schedule::round_robin(), &[]);
        for seed in 0..2 {
            run(&name, &jobs, 3, Schedule::seeded(seed), &[]);
            run(&name, &jobs, 3, Schedule::async_late(seed), &[]);
        }
    }
}

#[test]
fn kernels_of_all_types_take_epilogues() {
    let floats = |spec: &Spec| spec.output != Element::S32;
    for (at, spec) in picked().into_iter().filter(floats).enumerate() {
        let spec = with_epilogue(spec, ["bias_n|relu", "bias_m"][at % 2]);
        let jobs = [job(64, 64, 256), job(144, 80, 128)];
        run(&spec.to_string(), &jobs, 2, Schedule::round_robin(), &[]);
    }
}

#[test]
fn jobs_wait_for_those_they_come_after() {
    let after = |others: &[usize], m, n, k| Job { after: others.to_vec(), ..job(m, n, k) };
    // Results stay small, since bf16 has eight bits.
    let jobs =
        [job(64, 64, 8), after(&[0], 64, 32, 64), job(128, 32, 64), after(&[0, 2], 64, 8, 64)];
    for seed in 0..4 {
        run(SPECS[1].replace("f32", "bf16").as_str(), &jobs[..2], 2, Schedule::seeded(seed), &[]);
        run(SPECS[2], &jobs[..1], 2, Schedule::async_late(seed), &[]);
    }
}

#[test]
fn what_is_aborted_is_given_up() {
    let jobs = vec![job(512, 256, 64); 6];
    for name in [SPECS[0], SPECS[2]] {
        for ctas in [1, 2] {
            for seed in 0..2 {
                let schedule = Schedule::seeded(seed);
                let (.., done) = run_to(name, &jobs, ctas, schedule, &[], doorbell::ABORT);
                assert!(done < jobs.len(), "{done} were done");
            }
        }
    }
}

/// This is a regression test. A job that was waiting for another job continued without it when jobs
/// were given up, and reported that it was done.
#[test]
fn who_waits_for_others_is_given_up_too() {
    let name = "tf32-kk-f32-64x32x32-s3-w1-c1x1-resident";
    // The first job takes so long that a waiting job checks whether tiles are given up. Sums stay
    // integers that tf32 holds.
    let jobs = [job(64, 32, 2560), Job { after: vec![0], ..job(64, 32, 32) }];
    for seed in 0..4 {
        let (.., done) = run_to(name, &jobs, 2, Schedule::seeded(seed), &[], doorbell::ABORT);
        assert!(done < jobs.len(), "{done} were done");
    }
}

#[test]
fn what_left_comes_back_and_no_job_is_missed() {
    let jobs = [job(64, 32, 64), job(8, 8, 8), job(64, 64, 64), job(16, 16, 16)];
    let mut most = 0;
    for seed in 0..6 {
        // Some jobs arrive while the kernel is about to leave.
        let pauses = [0, 30_000, 15_000 + 1500 * seed, 40_000];
        let (_, launches) = run(SPECS[0], &jobs, 2, Schedule::seeded(seed), &pauses);
        most = most.max(launches);
        // This shows if a fence is missing between the report of one side and its check of the
        // other.
        let pauses = [0, 20_000, 20_000 + 100 * seed, 20_500];
        run(SPECS[0], &jobs, 2, Schedule::stores_late(seed), &pauses);
    }
    assert!(most > 1, "the kernel never left");
}

/// The protocol's model visits all runs. Here the kernel itself runs, and the host's second job
/// arrives at every moment around the kernel's end.
#[test]
fn a_job_is_done_whenever_it_comes_while_the_kernel_leaves() {
    let jobs = [job(8, 8, 8), job(8, 8, 8)];
    let launches = |pause| run(SPECS[0], &jobs, 1, Schedule::round_robin(), &[0, pause]).1;
    // The first pause after which the kernel has left.
    let (mut short, mut long) = (0, 100_000);
    assert_eq!((launches(short), launches(long)), (1, 2));
    while long - short > 1 {
        let middle = (short + long) / 2;
        match launches(middle) {
            1 => short = middle,
            _ => long = middle,
        }
    }
    // A step is a nanosecond here. The host has one step for each step of all warps.
    for pause in (long - 300..long + 300).step_by(3) {
        assert!(launches(pause) <= 2, "{pause} ns");
    }
}

/// The kernels that engines keep on the device if no knob requests another kernel.
fn picked() -> Vec<Spec> {
    use Element::{Bf16, E4m3, E5m2, F16, F32, S8, S32, Tf32, U8};
    let types = [
        (Bf16, Bf16),
        (Bf16, F32),
        (F16, F16),
        (F16, F32),
        (Tf32, F32),
        (E4m3, Bf16),
        (E5m2, Bf16),
        (S8, S32),
        (U8, S32),
    ];
    let mut specs = vec![];
    for (element, output) in types {
        for small in [false, true] {
            for b in [OperandMajor::K, OperandMajor::Mn] {
                if b == OperandMajor::K || element.bytes() == 2 {
                    let majors = [OperandMajor::K, b];
                    let promoted = Summation::Promoted { interval: 128 };
                    let summations = match element {
                        E4m3 | E5m2 => &[Summation::TensorCore, promoted][..],
                        _ => &[Summation::TensorCore],
                    };
                    specs.extend(summations.iter().map(|&summation| {
                        catalogue::resident([element; 2], output, majors, summation, small)
                    }));
                }
            }
        }
    }
    specs
}

#[test]
fn assemblers_take_it_without_spills() {
    for assembler in assemblers() {
        let specs: Vec<Spec> =
            SPECS.map(|name| name.parse().unwrap()).into_iter().chain(picked()).collect();
        let fused = specs.iter().filter(|spec| spec.output != Element::S32).flat_map(|spec| {
            let epilogues = ["bias_n|gelu", "bias_m|silu", "bias_n|relu"];
            epilogues.map(|epilogue| with_epilogue(*spec, epilogue))
        });
        for spec in fused.chain(specs.iter().copied()) {
            let (name, kernel) = (spec.to_string(), GemmKernel::build(&spec).unwrap());
            let ptx = pgemm_ptx::emit(&kernel.kernel).unwrap();
            let report = assembler.assemble(&ptx).unwrap();
            assert!(report.is_clean(), "{name}: {report:?}");
        }
    }
}

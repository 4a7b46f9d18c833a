//! Resident kernels in the emulator, with the host as one more actor, and through every installed
//! assembler. Jobs have several shapes and come in order and in no order. They run under many
//! schedules, over idle times and several launches.

#[path = "common/clean.rs"]
mod clean;
#[path = "resident/host.rs"]
mod host;
#[path = "resident/job.rs"]
mod job;

use clean::{assemblers, assert_clean};
use host::{run, run_kernel, run_to};
use job::{Job, job};
use pgemm_emulator::{ReportKind, Schedule};
use pgemm_ir::{Element, Op, OperandMajor, Order, ProxyFence, Scope};
use pgemm_kernels::resident::layout::{RING_SLOTS, doorbell};
use pgemm_kernels::{Epilogue, GemmKernel, Spec, Summation, catalogue};

const SPECS: [&str; 3] = [
    "bf16-kk-bf16-64x32x64-s3-w1-c1x1-resident",
    "bf16-kk-f32-64x16x64-s2-p2-c1x1-resident",
    "bf16-kk-bf16-128x32x64-s2-w2-c1x1-resident",
];

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
    // Sums that become operands stay integers that the operands' type holds. The third job is so
    // deep that the fourth, whose C it stores, finds it under way.
    let jobs = [
        job(64, 64, 8),
        after(&[0], 64, 32, 64),
        job(64, 32, 2560),
        Job { beta: 1.0, ..after(&[0, 2], 64, 32, 64) },
    ];
    for seed in 0..4 {
        run(SPECS[1].replace("f32", "bf16").as_str(), &jobs[..2], 2, Schedule::seeded(seed), &[]);
        run(SPECS[2], &jobs[..2], 2, Schedule::async_late(seed), &[]);
        for schedule in [Schedule::seeded(seed), Schedule::async_late(seed)] {
            run("tf32-kk-f32-64x32x32-s3-w1-c1x1-resident", &jobs, 3, schedule, &[]);
        }
    }
}

/// A job loads by TMA what another CTA has stored by TMA. Any one of the proxy fences on the way
/// between the two suffices by the rules of PTX, so all are left out here.
#[test]
fn jobs_after_others_need_a_proxy_fence() {
    let jobs = [job(64, 64, 8), Job { after: vec![0], ..job(64, 32, 64) }];
    let name = "tf32-kk-f32-64x32x32-s3-w1-c1x1-resident";
    let mut kernel = GemmKernel::build(&name.parse().unwrap()).unwrap();
    kernel.kernel.visit_blocks_mut(&mut |block| {
        block.insts.retain(|inst| inst.op != Op::FenceProxy(ProxyFence::Global));
    });
    let schedule = Schedule::round_robin();
    let report = run_kernel(&kernel, &jobs, 2, schedule, &[], doorbell::STOP).unwrap_err();
    assert_eq!(report.kind, ReportKind::MissingProxyFence, "{report}");
}

/// The jobs of two lanes together are more than the ring holds, and the first one is under way until
/// all slots are taken. A job behind it waits for the first slot.
#[test]
fn jobs_beyond_the_ring_wait_for_free_slots() {
    let mut jobs: Vec<Job> =
        (0..RING_SLOTS + 20).map(|at| Job { lane: at % 2, ..job(8, 8, 8) }).collect();
    jobs[0] = job(64, 16, 64 * 3000);
    run(SPECS[1], &jobs, 2, Schedule::round_robin(), &[]);
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
    }
    assert!(most > 1, "the kernel never left");
}

/// The first pause before the second of two jobs after which the kernel has left.
fn first_pause_after_leaving(jobs: &[Job; 2]) -> u64 {
    let launches = |pause| run(SPECS[0], jobs, 1, Schedule::round_robin(), &[0, pause]).1;
    let (mut short, mut long) = (0, 100_000);
    assert_eq!((launches(short), launches(long)), (1, 2));
    while long - short > 1 {
        let middle = (short + long) / 2;
        match launches(middle) {
            1 => short = middle,
            _ => long = middle,
        }
    }
    long
}

/// The protocol's model visits all runs. Here the kernel itself runs, and the host's second job
/// arrives at every moment around the kernel's end.
#[test]
fn a_job_is_done_whenever_it_comes_while_the_kernel_leaves() {
    let jobs = [job(8, 8, 8), job(8, 8, 8)];
    let leaves = first_pause_after_leaving(&jobs);
    // A step is a nanosecond here. The host has one step for each step of all warps.
    for pause in (leaves - 300..leaves + 300).step_by(3) {
        let (_, launches) = run(SPECS[0], &jobs, 1, Schedule::round_robin(), &[0, pause]);
        assert!(launches <= 2, "{pause} ns");
    }
}

/// The relay reports that it has left, and then looks at the doorbells. Without the fence between
/// the two it misses a job if its report becomes visible late.
#[test]
fn the_last_look_needs_its_fence() {
    let jobs = [job(8, 8, 8), job(8, 8, 8)];
    let leaves = first_pause_after_leaving(&jobs);
    let whole = GemmKernel::build(&SPECS[0].parse().unwrap()).unwrap();
    let mut unfenced = whole.clone();
    let mut fences = 0;
    unfenced.kernel.visit_blocks_mut(&mut |block| {
        let before = block.insts.len();
        let fence = Op::Fence(Order::SequentiallyConsistent, Scope::System);
        block.insts.retain(|inst| inst.op != fence);
        fences += before - block.insts.len();
    });
    assert_eq!(fences, 1);
    let misses = |kernel: &GemmKernel| {
        let runs = (0..4).flat_map(|seed| {
            let pauses = (leaves - 2000..leaves + 2000).step_by(40);
            pauses.map(move |pause| (Schedule::stores_late(seed), pause))
        });
        let result = |(schedule, pause)| {
            run_kernel(kernel, &jobs, 1, schedule, &[0, pause], doorbell::STOP).err()
        };
        runs.filter_map(result).next()
    };
    if let Some(report) = misses(&whole) {
        panic!("with the fence: {report}");
    }
    let report = misses(&unfenced).expect("no job is missed without the fence");
    assert!(matches!(report.kind, ReportKind::Deadlock | ReportKind::Livelock), "{report}");
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
    let specs: Vec<Spec> =
        SPECS.map(|name| name.parse().unwrap()).into_iter().chain(picked()).collect();
    let fused = specs.iter().filter(|spec| spec.output != Element::S32).flat_map(|spec| {
        let epilogues = ["bias_n|gelu", "bias_m|silu", "bias_n|relu"];
        epilogues.map(|epilogue| with_epilogue(*spec, epilogue))
    });
    let all = fused.chain(specs.iter().copied());
    assert_clean(&assemblers(), all.map(|spec| GemmKernel::build(&spec).unwrap().kernel));
}

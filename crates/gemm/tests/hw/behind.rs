//! Kernels that give the same bits, and those that stand in for others that are being compiled.

use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, Instant};

use persistent_gemm::driver::{Device, Graph, Stream};
use persistent_gemm::{
    Choice, Compile, Config, Dtype, Gemm, Major, Plan, Precision, Preparation, Problem, RunRequest,
    Split, SummationClass, assembled,
};
use pgemm_kernels::Spec;
use pgemm_plan::OperandAlignment;

use crate::device::device;
use crate::operands::{Fill, MatrixSet};

/// The device, if the build has kernels that were assembled in advance.
fn device_with_kernels(test: &str) -> Option<Device> {
    let device = device(test)?;
    let Err(why) = assembled::shipped_kernels() else { return Some(device) };
    if std::env::var_os("PGEMM_REQUIRE_GPU").is_some_and(|value| value == "1") {
        panic!("{test} needs kernels that were assembled in advance: {why}");
    }
    // Past the test harness's capture. Where stderr is closed there is nobody to tell.
    let _ = std::io::stderr().write_all(format!("SKIPPED: {test}: {why}\n").as_bytes());
    None
}

/// Plans for a problem with kernels that were assembled in advance, by what they give.
fn by_summation(
    device: &Device,
    problem: &Problem,
    config: &Config,
) -> HashMap<SummationClass, Vec<Choice>> {
    let mut classes: HashMap<SummationClass, Vec<Choice>> = HashMap::new();
    for split in [Split::Whole, Split::SplitK(2), Split::SplitK(5), Split::StreamK] {
        let config = config.clone().with_split(split);
        let aligned = OperandAlignment::ALIGNED;
        let every = |plan: &Plan| {
            classes.entry(plan.summation()).or_default().push(plan.choice());
            false
        };
        let (device, preferred) = (device.properties(), assembled::preferred());
        Plan::best_preferred(problem, &config, device, aligned, preferred, every).unwrap();
    }
    classes
}

/// The result of a choice, bit by bit.
fn result(gemm: &Gemm, matrices: &mut MatrixSet, problem: &Problem, choice: Choice) -> Vec<u8> {
    let prepared = gemm.prepare(Preparation::new(problem).with_choice(choice)).unwrap();
    let stream = gemm.stream();
    matrices.poison(stream);
    // SAFETY: the matrices are the problem's, and outlive the work, which is waited for.
    unsafe { gemm.run_at(&prepared, &matrices.pointers(), stream) }.unwrap();
    matrices.result(stream).bytes().to_vec()
}

#[test]
fn plans_of_one_summation_class_give_the_same_bits() {
    let Some(device) = device_with_kernels("plans_of_one_summation_class") else { return };
    /// Choices that are compared in each class.
    const CHOICES: usize = 12;
    let mut fast = Config::new(Dtype::E4m3);
    fast.precision = Some(Precision::Fast);
    let types = [Dtype::Bf16, Dtype::F16, Dtype::Tf32, Dtype::E4m3, Dtype::F64, Dtype::F32];
    let configs = types.map(Config::new).into_iter().chain([fast]);
    let (k, m, n) = (Major::K, Major::M, Major::N);
    let stream = Stream::new(&device).unwrap();
    for config in configs {
        let gemm = Gemm::create(&device, config.clone()).unwrap();
        let (mut classes, mut compared, mut moved) = (0, 0, vec![]);
        for ([rows, columns, depth], [a, b]) in [
            ([1000, 1304, 4104], [k, k]),
            ([24, 4096, 4096], [k, k]),
            ([264, 512, 1048], [k, n]),
            ([2000, 200, 776], [m, n]),
            ([40, 64, 96], [k, k]),
        ] {
            let problem = Problem::new(rows, columns, depth, a, b);
            let mut matrices = MatrixSet::new(&config, &problem, Fill::Normal, 7, &stream);
            for (class, choices) in by_summation(&device, &problem, &config) {
                // Those of different kernels, from the best to the worst.
                let mut choices: Vec<Choice> = choices;
                choices.dedup_by_key(|choice| choice.spec);
                let step = choices.len().div_ceil(CHOICES);
                let mut choices = choices.into_iter().step_by(step);
                let Some(first) = choices.next() else { continue };
                let expected = result(&gemm, &mut matrices, &problem, first);
                classes += 1;
                for choice in choices {
                    compared += 1;
                    if result(&gemm, &mut matrices, &problem, choice) != expected {
                        moved.push(format!("{problem:?}\n{first}\n{choice}\n{class:?}"));
                    }
                }
            }
        }
        let (dtype, precision) = (config.dtype, config.precision());
        println!(
            "{dtype} {precision}: {compared} plans in {classes} classes, {} differ",
            moved.len()
        );
        assert!(compared > 0 && moved.is_empty(), "{}", moved.join("\n"));
    }
}

/// The first of some problems whose best kernel is not there.
fn with_a_stand_in(gemm: &Gemm) -> Option<Problem> {
    let problem = |index: usize| {
        Problem::new(104 + 56 * index, 2000 + 8 * index, 1032 + 40 * index, Major::K, Major::N)
    };
    let is_stood_in_for =
        |problem: &Problem| gemm.prepare(problem).unwrap().stand_in_for().is_some();
    (0..200).map(problem).find(is_stood_in_for)
}

#[test]
fn another_kernel_computes_while_the_better_one_is_compiled() {
    let Some(device) = device_with_kernels("another_kernel_computes") else { return };
    let config = Config::new(Dtype::Bf16);
    let gemm = Gemm::create(&device, config.clone()).unwrap();
    gemm.set_compile(Compile::Behind);
    let Some(problem) = with_a_stand_in(&gemm) else {
        panic!("all 200 problems have kernels that were assembled in advance")
    };
    let stand_in = gemm.prepare(&problem).unwrap();
    let better: Plan = stand_in.stand_in_for().unwrap().clone();
    assert_ne!(stand_in.plan().spec, better.spec);
    assert_eq!(stand_in.plan().summation(), better.summation());
    let stream = Stream::new(&device).unwrap();
    let mut matrices = MatrixSet::new(&config, &problem, Fill::Normal, 3, &stream);
    let run = |request: RunRequest, matrices: &mut MatrixSet| {
        matrices.poison(stream.as_ref());
        // SAFETY: the matrices are the problem's, and outlive the work, which is waited for.
        unsafe { gemm.run_at(request, &matrices.pointers(), stream.as_ref()) }.unwrap();
        matrices.result(stream.as_ref())
    };
    let first = run((&problem).into(), &mut matrices);
    assert!(matrices.compare(&first).passed);
    // A graph keeps the stand-in, and what it needs.
    let pointers = matrices.pointers();
    // SAFETY: the matrices and the GEMM outlive the graph's launches.
    let mut graph = unsafe {
        Graph::capture(&device, stream.as_ref(), |stream| gemm.run_at(&problem, &pointers, stream))
    }
    .unwrap();
    // Others go on meanwhile.
    let (begin, mut longest, mut runs) = (Instant::now(), Duration::ZERO, 0);
    while !gemm.is_idle_behind() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{} is never there", better.spec);
        let other = Problem::new(8 + 8 * (runs % 40), 4096, 4096, Major::K, Major::K);
        let before = Instant::now();
        gemm.prepare(&other).unwrap();
        longest = longest.max(before.elapsed());
        runs += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{} was compiled in {:?}", better.spec, begin.elapsed());
    println!("meanwhile {runs} other problems were prepared, the slowest in {longest:?}");
    let second = run((&problem).into(), &mut matrices);
    let prepared = gemm.prepare(&problem).unwrap();
    assert!(prepared.stand_in_for().is_none());
    assert_eq!(prepared.plan().spec, better.spec);
    assert_eq!(first.bytes(), second.bytes());
    // The old one is right as well, alone and in its graph.
    assert_eq!(run((&stand_in).into(), &mut matrices).bytes(), first.bytes());
    drop(stand_in);
    gemm.trim().unwrap();
    matrices.poison(stream.as_ref());
    graph.launch(stream.as_ref()).unwrap();
    assert_eq!(matrices.result(stream.as_ref()).bytes(), first.bytes());
}

#[test]
fn a_kernel_that_is_named_is_not_stood_in_for() {
    let Some(device) = device_with_kernels("a_kernel_that_is_named") else { return };
    let spec: Spec = "bf16-kn-bf16-64x248x64-s4-w1-c1x1".parse().unwrap();
    let gemm = Gemm::create(&device, Config::for_spec(spec)).unwrap();
    gemm.set_compile(Compile::Behind);
    let prepared = gemm.prepare(&Problem::new(64, 496, 512, Major::K, Major::N)).unwrap();
    assert_eq!((prepared.plan().spec, prepared.stand_in_for()), (spec, None));
}

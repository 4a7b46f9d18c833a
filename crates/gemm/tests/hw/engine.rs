//! The resident engine: jobs of many shapes, in order and in none, from one thread and from many,
//! over idle times and to the end.

mod soak;
mod timing;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use persistent_gemm::driver::{DeviceBuffer, Stream};
use persistent_gemm::engine::{Engine, EngineOptions, Goal, Job};
use persistent_gemm::{Config, Dtype, Gemm, HostMatrix, Major, Pointers, Precision, Problem};

use crate::device::device;
use crate::known::{Known, SPECS, b_major, engine};

#[test]
fn jobs_of_many_shapes_are_right() {
    let Some(device) = device("jobs_of_many_shapes_are_right") else { return };
    let stream = Stream::new(&device).unwrap();
    for name in SPECS {
        let (config, spec, engine) = engine(&device, name);
        let shapes = [
            (128, 128, 128),
            (64, 64, 64),
            (8, 8, 8),
            (512, 512, 512),
            (1000, 1000, 1000),
            (136, 264, 72),
            (2048, 512, 256),
            (16, 4096, 1024),
        ];
        let mut known: Vec<_> = (0..)
            .zip(shapes)
            .map(|(at, (m, n, k))| {
                let problem = Problem::new(m, n, k, Major::K, b_major(&spec));
                Known::new(&device, &stream, &config, problem, 10 * at)
            })
            .collect();
        let jobs: Vec<Job> = known
            .iter()
            .map(|known| engine.prepare(&known.problem, &known.pointers()).unwrap())
            .collect();
        // One after the other, then all at once, three times with a pause that is longer than the
        // idle time.
        for (job, known) in jobs.iter().zip(&known) {
            // SAFETY: the buffers outlive the engine's work, which is waited for.
            unsafe { engine.submit(job) }.unwrap().wait_timeout(Duration::from_secs(3)).unwrap();
            known.check(&stream);
        }
        for _ in 0..3 {
            known.iter_mut().for_each(|known| known.poison(&stream));
            std::thread::sleep(Duration::from_millis(5));
            // SAFETY: as above.
            let tickets = unsafe { engine.submit_all(&jobs) }.unwrap();
            for ticket in &tickets {
                ticket.wait_timeout(Duration::from_secs(3)).unwrap();
            }
            known.iter().for_each(|known| known.check(&stream));
        }
        println!("{name}: {engine:?}");
        engine.stop().unwrap();
    }
}

#[test]
fn engines_of_all_types_are_right() {
    let Some(device) = device("engines_of_all_types_are_right") else { return };
    let stream = Stream::new(&device).unwrap();
    let types =
        [Dtype::Bf16, Dtype::F16, Dtype::Tf32, Dtype::E4m3, Dtype::E5m2, Dtype::S8, Dtype::U8];
    let configs = types.map(Config::new).into_iter().chain([
        Config::new(Dtype::F16).with_output(Dtype::F32),
        Config::new(Dtype::E4m3).with_precision(Precision::Fast),
        Config::new(Dtype::E5m2).with_precision(Precision::Fast),
    ]);
    for config in configs {
        for goal in [Goal::Throughput, Goal::Latency] {
            for b in [Major::K, Major::N] {
                if b == Major::N && config.dtype.bytes() != 2 {
                    continue;
                }
                let gemm = Gemm::create(&device, config.clone()).unwrap();
                let typical = Problem::new(512, 512, 512, Major::K, b);
                let options = EngineOptions { goal, ..EngineOptions::default() };
                let engine = Engine::start(&gemm, &typical, options).unwrap();
                let known: Vec<_> = [(512, 512, 512), (200, 176, 304), (64, 1024, 128)]
                    .map(|(m, n, k)| Problem::new(m, n, k, Major::K, b))
                    .map(|problem| Known::new(&device, &stream, &config, problem, 7))
                    .into();
                let jobs: Vec<Job> = known
                    .iter()
                    .map(|known| engine.prepare(&known.problem, &known.pointers()).unwrap())
                    .collect();
                // SAFETY: the buffers outlive the engine's work, which is waited for.
                let tickets = unsafe { engine.submit_all(&jobs) }.unwrap();
                for ticket in &tickets {
                    ticket.wait_timeout(Duration::from_secs(3)).unwrap();
                }
                known.iter().for_each(|known| known.check(&stream));
                println!("{}", engine.spec());
            }
        }
    }
}

/// Each job multiplies what the one before has stored.
#[test]
fn jobs_wait_for_those_they_come_after() {
    let Some(device) = device("jobs_wait_for_those_they_come_after") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[1]);
    let n = 512;
    let problem = Problem::new(n, n, n, Major::K, Major::K);
    // A permutation of rows, so that values stay integers: D = A·Bᵀ with B the identity turned by
    // one row.
    let mut turned = vec![0.0; n * n];
    (0..n).for_each(|row| turned[row * n + (row + 1) % n] = 1.0);
    let layout = problem.b_layout();
    let mut a = HostMatrix::zeros(problem.a_layout(), config.dtype).unwrap();
    a.fill_integers(5, 100);
    let b = HostMatrix::from_f64(layout, config.dtype, &turned).unwrap();
    let upload = |bytes: &[u8]| DeviceBuffer::from_host(&device, bytes, stream.as_ref()).unwrap();
    let (b, mut x, y) = (upload(b.bytes()), upload(a.bytes()), upload(a.bytes()));
    let there = Pointers::new(x.address(), b.address(), 0, y.address());
    let back = Pointers::new(y.address(), b.address(), 0, x.address());
    let jobs = [there, back].map(|pointers| engine.prepare(&problem, &pointers).unwrap());
    let mut last = None;
    let links = n * 4;
    for link in 0..links {
        let after: Vec<_> = last.iter().collect();
        // SAFETY: the buffers outlive the work, which is waited for.
        last = Some(unsafe { engine.submit_after(&jobs[link % 2], &after) }.unwrap());
    }
    last.unwrap().wait_timeout(Duration::from_secs(5)).unwrap();
    // Turned as often as there are columns, it is what it was.
    let mut found = vec![0; a.bytes().len()];
    x.copy_to_host(0, &mut found, stream.as_ref()).unwrap();
    assert!(found == a.bytes(), "after {links} links");
    x.fill_u8(0, 1, 0, stream.as_ref()).unwrap();
}

#[test]
fn threads_submit_at_the_same_time() {
    const THREADS: usize = 8;
    const JOBS: usize = 2000;
    let Some(device) = device("threads_submit_at_the_same_time") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[0]);
    let right = AtomicUsize::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (device, stream, config, engine, right) =
                (&device, &stream, &config, &engine, &right);
            scope.spawn(move || {
                let problem = Problem::new(64 << (thread % 3), 128, 192, Major::K, Major::K);
                let mut known = Known::new(device, stream, config, problem, 100 * thread as u64);
                let job = engine.prepare(&known.problem, &known.pointers()).unwrap();
                for round in 0..JOBS {
                    if round % 500 == 499 {
                        known.check(stream);
                        known.poison(stream);
                        std::thread::sleep(Duration::from_micros(900 + 100 * thread as u64));
                    }
                    // SAFETY: the buffers outlive the work, which is waited for.
                    let ticket = unsafe { engine.submit(&job) }.unwrap();
                    ticket.wait_timeout(Duration::from_secs(3)).unwrap();
                    right.fetch_add(1, Ordering::Relaxed);
                }
                known.check(stream);
            });
        }
    });
    println!(
        "{} jobs of {THREADS} threads in {:.0} ms, {} launches",
        right.load(Ordering::Relaxed),
        begin.elapsed().as_secs_f64() * 1e3,
        engine.launches()
    );
    assert_eq!(right.load(Ordering::Relaxed), THREADS * JOBS);
}

/// Jobs among a stream's other work: D is poisoned before each and copied to the host after it, on
/// the stream.
#[test]
fn streams_submit_in_their_order() {
    let Some(device) = device("streams_submit_in_their_order") else { return };
    let (config, _, engine) = engine(&device, SPECS[0]);
    // Nothing is allocated or freed while streams wait for jobs: that waits for streams, and would
    // hold up a launch.
    let mut lanes: Vec<_> = (0..2u64)
        .map(|lane| {
            let stream = Stream::new(&device).unwrap();
            let n = 256 << lane;
            let problem = Problem::new(n, n, n, Major::K, Major::K);
            let known = Known::new(&device, &stream, &config, problem, 1 + lane);
            let job = engine.prepare(&problem, &known.pointers()).unwrap();
            (stream, known, job)
        })
        .collect();
    std::thread::scope(|scope| {
        for (lane, (stream, known, job)) in (0u64..).zip(&mut lanes) {
            let engine = &engine;
            scope.spawn(move || {
                for round in 0..300 {
                    known.d.fill_u8(0, known.expected.len(), 0xff, stream.as_ref()).unwrap();
                    // SAFETY: the buffers outlive the work, which is waited for.
                    let ticket = unsafe { engine.submit_on(stream.as_ref(), job) }.unwrap();
                    if round % 3 == 0 {
                        ticket.wait_timeout(Duration::from_secs(3)).unwrap();
                    }
                    if round % 20 == 0 {
                        std::thread::sleep(Duration::from_millis(2 + lane));
                    }
                    known.check(stream);
                }
            });
        }
    });
    println!("{engine:?}");
    engine.stop().unwrap();
}

#[test]
fn what_was_submitted_is_finished_or_said_to_be_given_up() {
    let Some(device) = device("what_was_submitted_is_finished_or_said_to_be_given_up") else {
        return;
    };
    let stream = Stream::new(&device).unwrap();
    let problem = Problem::new(1024, 1024, 1024, Major::K, Major::K);
    for (end, sms) in [("drop", None), ("stop", None), ("abort", None), ("abort", Some(1))] {
        let config = Config::for_spec(SPECS[0].parse().unwrap());
        let gemm = Gemm::create(&device, config.clone()).unwrap();
        let options = EngineOptions { sms, ..EngineOptions::default() };
        let engine = Engine::start(&gemm, &problem, options).unwrap();
        let known = Known::new(&device, &stream, &config, problem, 3);
        let job = engine.prepare(&problem, &known.pointers()).unwrap();
        let jobs = vec![&job; 900];
        // SAFETY: the buffers outlive the work, which is waited for.
        let tickets = unsafe { engine.submit_all(jobs) }.unwrap();
        match end {
            "drop" => drop(engine),
            "stop" => {
                engine.stop().unwrap();
                // SAFETY: as above.
                let refused = unsafe { engine.submit(&job) }.unwrap_err().to_string();
                assert!(refused.contains("stopped"), "{refused}");
            }
            _ => engine.abort().unwrap(),
        }
        let given_up = tickets.iter().filter(|ticket| match ticket.wait() {
            Ok(()) => false,
            Err(error) => {
                assert!(error.to_string().contains("given up"), "{error}");
                true
            }
        });
        let given_up = given_up.count();
        println!("{end}, {sms:?} SMs: {given_up} of {} given up", tickets.len());
        assert_eq!(end == "abort", given_up > 0, "{end}, {sms:?} SMs: {given_up}");
        if end != "abort" {
            known.check(&stream);
        }
    }
}

#[test]
fn a_full_queue_and_wrong_jobs_are_refused() {
    let Some(device) = device("a_full_queue_and_wrong_jobs_are_refused") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[0]);
    let problem = Problem::new(2048, 2048, 2048, Major::K, Major::K);
    let known = Known::new(&device, &stream, &config, problem, 3);
    let job = engine.prepare(&problem, &known.pointers()).unwrap();
    let mut refused = 0;
    let mut tickets = vec![];
    for _ in 0..1500 {
        // SAFETY: the buffers outlive the work, which is waited for.
        match unsafe { engine.try_submit_after(&job, &[]) } {
            Ok(ticket) => tickets.push(ticket),
            Err(error) => {
                assert!(error.to_string().contains("1024 jobs are under way"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && tickets.len() >= 1024, "{refused} refused, {} taken", tickets.len());
    // All slots are taken, and one gets free as soon as a job is done.
    // SAFETY: as above.
    let submit = |timeout| unsafe { engine.submit_timeout(&job, &[], timeout) };
    let full = (0..10_000).find_map(|_| submit(Duration::ZERO).err()).unwrap().to_string();
    assert!(full.contains("1024 jobs are under way"), "{full}");
    submit(Duration::from_secs(10)).unwrap();
    let late = tickets.last().unwrap().wait_timeout(Duration::ZERO).unwrap_err().to_string();
    assert!(late.contains("not done"), "{late}");
    engine.drain().unwrap();
    known.check(&stream);

    let null = Pointers::new(0, known.b.address(), 0, known.d.address());
    let odd = Pointers::new(known.a.address() + 2, known.b.address(), 0, known.d.address());
    let turned = Problem::new(64, 64, 64, Major::K, Major::N);
    let ragged = Problem::new(64, 63, 64, Major::K, Major::K);
    for (problem, pointers, wanted) in [
        (&problem, null, "A"),
        (&problem, odd, "A"),
        (&turned, known.pointers(), "another engine"),
        (&ragged, known.pointers(), "TMA"),
    ] {
        let error = engine.prepare(problem, &pointers).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let gemm = Gemm::create(&device, config).unwrap();
    let sms = EngineOptions { sms: Some(1000), ..EngineOptions::default() };
    let error = Engine::start(&gemm, &problem, sms).unwrap_err().to_string();
    assert!(error.contains("1000 SMs"), "{error}");
}

/// Seconds of all of this process's threads on a CPU.
pub(crate) fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

/// Not a test of its own: what a child process does for the next one.
#[test]
fn child_that_exits() {
    if std::env::var_os("PGEMM_CHILD_EXITS").is_none() {
        return;
    }
    let Some(device) = device("child_that_exits") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[0]);
    let problem = Problem::new(2048, 2048, 2048, Major::K, Major::K);
    let known = Known::new(&device, &stream, &config, problem, 3);
    let job = engine.prepare(&problem, &known.pointers()).unwrap();
    // SAFETY: the process ends with all that the jobs use.
    unsafe { engine.submit_all(vec![&job; 900]) }.unwrap();
    std::process::exit(0);
}

#[test]
fn a_process_may_end_with_the_kernel_alive() {
    let Some(device) = device("a_process_may_end_with_the_kernel_alive") else { return };
    let begin = Instant::now();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["engine::child_that_exits", "--exact"])
        .env("PGEMM_CHILD_EXITS", "1")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    println!("the child ended after {:.1} s", begin.elapsed().as_secs_f64());
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[0]);
    let problem = Problem::new(128, 128, 128, Major::K, Major::K);
    let known = Known::new(&device, &stream, &config, problem, 3);
    let job = engine.prepare(&problem, &known.pointers()).unwrap();
    // SAFETY: the buffers outlive the work, which is waited for.
    unsafe { engine.submit(&job) }.unwrap().wait_timeout(Duration::from_secs(5)).unwrap();
    known.check(&stream);
}

/// Another process's kernels, an engine of its own among them, run in turns with this one's.
#[test]
fn another_context_may_use_the_device() {
    let Some(device) = device("another_context_may_use_the_device") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[0]);
    let problem = Problem::new(256, 256, 256, Major::K, Major::K);
    let known = Known::new(&device, &stream, &config, problem, 3);
    let job = engine.prepare(&problem, &known.pointers()).unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["engine::jobs_wait_for_those_they_come_after", "--exact"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let (begin, mut jobs) = (Instant::now(), 0);
    let status = loop {
        // SAFETY: the buffers outlive the work, which is waited for.
        unsafe { engine.submit(&job) }.unwrap().wait_timeout(Duration::from_secs(5)).unwrap();
        jobs += 1;
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "the other process does not end");
    };
    assert!(status.success(), "{status}");
    known.check(&stream);
    println!("{jobs} jobs beside another process in {:.1} s", begin.elapsed().as_secs_f64());
}

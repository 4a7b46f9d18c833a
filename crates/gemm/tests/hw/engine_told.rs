//! Who is told of jobs by the engine: callbacks, and tickets that are awaited.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use persistent_gemm::driver::Stream;
use persistent_gemm::engine::{Engine, EngineOptions, Job, Ticket};
use persistent_gemm::{Config, Gemm, Major, Problem};

use crate::device::device;
use crate::engine::cpu_seconds;
use crate::executor::block_on;
use crate::known::{Known, SPECS, engine};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn callbacks_and_futures_hear_of_every_job() {
    let Some(device) = device("callbacks_and_futures_hear_of_every_job") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[1]);
    let problem = Problem::new(256, 256, 256, Major::K, Major::K);
    let mut known = Known::new(&device, &stream, &config, problem, 3);
    let job = engine.prepare(&problem, &known.pointers()).unwrap();
    let (sender, told) = channel();
    const JOBS: usize = 2000;
    for _ in 0..JOBS {
        // SAFETY: the buffers outlive the work, which is waited for.
        let ticket = unsafe { engine.submit(&job) }.unwrap();
        let (sender, own) = (sender.clone(), ticket.clone());
        ticket.on_done(move |outcome| sender.send((outcome.is_ok(), own.is_done())).unwrap());
    }
    for _ in 0..JOBS {
        assert_eq!(told.recv_timeout(LONG).unwrap(), (true, true));
    }
    known.check(&stream);

    known.poison(&stream);
    thread::sleep(Duration::from_millis(5));
    let begin = Instant::now();
    block_on(async {
        // SAFETY: as above.
        let mut tickets: Vec<Ticket> =
            (0..JOBS / 2).map(|_| unsafe { engine.submit(&job) }.unwrap()).collect();
        // A ticket that is polled may still be one that others come after, and be awaited twice.
        let last = tickets.last_mut().unwrap();
        // SAFETY: as above.
        let after = unsafe { engine.submit_after(&job, &[last]) }.unwrap();
        (&mut *last).await.unwrap();
        last.await.unwrap();
        after.await.unwrap();
        for ticket in tickets {
            ticket.await.unwrap();
        }
    });
    println!("{} jobs awaited in {:.1} ms", JOBS / 2, begin.elapsed().as_secs_f64() * 1e3);
    known.check(&stream);

    let before = cpu_seconds();
    thread::sleep(Duration::from_secs(1));
    let idle = cpu_seconds() - before;
    println!("{idle:.2} s of a CPU in a second of idling");
    assert!(idle < 0.05, "{idle}");
}

/// Each callback submits the next job; the last one has the engine's last handle.
fn next(engine: Arc<Engine>, job: Job, left: usize, done: std::sync::mpsc::Sender<Ticket>) {
    // SAFETY: the buffers outlive the work: the test waits for the last job.
    let ticket = unsafe { engine.submit(&job) }.unwrap();
    let own = ticket.clone();
    ticket.on_done(move |outcome| {
        outcome.unwrap();
        if left > 0 {
            next(engine, job, left - 1, done);
        } else {
            drop(engine);
            done.send(own).unwrap();
        }
    });
}

#[test]
fn callbacks_submit_and_end_the_engine() {
    let Some(device) = device("callbacks_submit_and_end_the_engine") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[1]);
    let problem = Problem::new(128, 128, 128, Major::K, Major::K);
    let known = Known::new(&device, &stream, &config, problem, 3);
    let job = engine.prepare(&problem, &known.pointers()).unwrap();
    // SAFETY: the buffers outlive the work, which is waited for.
    let ticket = unsafe { engine.submit(&job) }.unwrap();
    ticket.on_done(|_| panic!("a callback of this test panics"));
    let (sender, done) = channel();
    next(Arc::new(engine), job, 500, sender);
    assert!(done.recv_timeout(LONG).unwrap().is_done());
    known.check(&stream);
}

/// Not a test of its own: what a child process does for the next one.
#[test]
fn child_that_exits_with_callbacks() {
    if std::env::var_os("PGEMM_CHILD_EXITS").is_none() {
        return;
    }
    let Some(device) = device("child_that_exits_with_callbacks") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[0]);
    let problem = Problem::new(2048, 2048, 2048, Major::K, Major::K);
    let known = Known::new(&device, &stream, &config, problem, 3);
    let job = engine.prepare(&problem, &known.pointers()).unwrap();
    // SAFETY: the process ends with all that the jobs use.
    for ticket in unsafe { engine.submit_all(vec![&job; 900]) }.unwrap() {
        ticket.on_done(|_| {});
    }
    std::process::exit(0);
}

/// The watcher may look at words that the driver takes away.
#[test]
fn a_process_may_end_with_callbacks_to_come() {
    let Some(_) = device("a_process_may_end_with_callbacks_to_come") else { return };
    for _ in 0..5 {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["engine_told::child_that_exits_with_callbacks", "--exact"])
            .env("PGEMM_CHILD_EXITS", "1")
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
    }
}

#[test]
fn callbacks_hear_of_an_abort() {
    let Some(device) = device("callbacks_hear_of_an_abort") else { return };
    let stream = Stream::new(&device).unwrap();
    let config = Config::for_spec(SPECS[0].parse().unwrap());
    let gemm = Gemm::create(&device, config.clone()).unwrap();
    let problem = Problem::new(1024, 1024, 1024, Major::K, Major::K);
    let engine = Engine::start(&gemm, &problem, EngineOptions::default()).unwrap();
    let known = Known::new(&device, &stream, &config, problem, 3);
    let job = engine.prepare(&problem, &known.pointers()).unwrap();
    // SAFETY: the buffers outlive the work, which is waited for.
    let tickets = unsafe { engine.submit_all(vec![&job; 900]) }.unwrap();
    let (errors, told) = (Arc::new(Mutex::new(vec![])), Arc::new(AtomicUsize::new(0)));
    for ticket in &tickets {
        let (errors, told) = (errors.clone(), told.clone());
        ticket.on_done(move |outcome| {
            errors.lock().unwrap().extend(outcome.err().map(|error| error.to_string()));
            told.fetch_add(1, Ordering::Release);
        });
    }
    engine.abort().unwrap();
    let begin = Instant::now();
    while told.load(Ordering::Acquire) < tickets.len() {
        assert!(begin.elapsed() < LONG, "{told:?} were told");
        thread::sleep(Duration::from_millis(1));
    }
    let errors = errors.lock().unwrap();
    assert!(!errors.is_empty() && errors.iter().all(|error| error.contains("given up")));
    println!("{} of {} given up", errors.len(), tickets.len());
}

//! The resident engine: order, streams, callbacks, futures, the end, and what is refused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use persistent_gemm::driver::{Graph, Stream};
use persistent_gemm::engine::{Engine, EngineOptions, Goal, Job, Ticket};
use persistent_gemm::{Config, Dtype, Gemm, Major, Pointers, Problem};

use crate::device::device;
use crate::executor::block_on;
use crate::known::{Known, SPECS, engine};

/// Longer than any job here takes, on any device.
const LONG: Duration = Duration::from_secs(60);

fn square(n: usize) -> Problem {
    Problem::new(n, n, n, Major::K, Major::K)
}

#[test]
fn jobs_are_done_after_idle_times_too() {
    let Some(device) = device("jobs_are_done_after_idle_times_too") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, spec, engine) = engine(&device, SPECS[1]);
    assert!(!engine.is_resident() && engine.launches() == 0 && engine.spec().is_resident());
    assert_eq!(engine.spec().tile, spec.tile);
    let shapes = [(64, 64, 64), (8, 8, 8), (136, 72, 200)];
    let mut known = shapes.map(|(m, n, k)| {
        let problem = Problem::new(m, n, k, Major::K, Major::K);
        Known::new(&device, &stream, &config, problem, 3)
    });
    let jobs = known.each_ref().map(|known| {
        let job = engine.prepare(&known.problem, &known.pointers()).unwrap();
        let tiles = known.problem.m.div_ceil(64) * known.problem.n.div_ceil(64);
        assert_eq!(job.tiles() as usize, tiles);
        job
    });
    for round in 0..3 {
        known.iter_mut().for_each(|known| known.poison(&stream));
        // SAFETY: the buffers outlive the engine's work, which is waited for.
        let tickets = unsafe { engine.submit_all(&jobs) }.unwrap();
        assert_eq!(tickets.len(), jobs.len());
        for (at, ticket) in tickets.iter().enumerate() {
            assert_eq!(ticket.number() as usize, round * jobs.len() + at);
            ticket.wait_timeout(LONG).unwrap();
            assert!(ticket.is_done() && ticket.poll().unwrap());
            let same = engine.ticket_from_raw(ticket.to_raw()).unwrap();
            assert!(same.is_done() && same.number() == ticket.number());
        }
        known.iter().for_each(|known| known.check(&stream));
        while engine.is_resident() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(engine.launches() as usize > round);
    }
    assert!(engine.ticket_from_raw(1 << 40).is_err());
    engine.stop().unwrap();
}

#[test]
fn engines_for_both_goals_have_types_of_their_own() {
    let Some(device) = device("engines_for_both_goals_have_types_of_their_own") else { return };
    let stream = Stream::new(&device).unwrap();
    for (dtype, goal) in
        [(Dtype::Tf32, Goal::Latency), (Dtype::E4m3, Goal::Throughput), (Dtype::S8, Goal::Latency)]
    {
        let config = Config::new(dtype);
        let gemm = Gemm::create(&device, config.clone()).unwrap();
        let options = EngineOptions { goal, sms: Some(2), ..EngineOptions::default() };
        let engine = Engine::start(&gemm, &square(128), options).unwrap();
        let problem = Problem::new(72, 80, 112, Major::K, Major::K);
        let known = Known::new(&device, &stream, &config, problem, 7);
        let job = engine.prepare(&problem, &known.pointers()).unwrap();
        // SAFETY: the buffers outlive the work, which is waited for.
        unsafe { engine.submit(&job) }.unwrap().wait_timeout(LONG).unwrap();
        known.check(&stream);
        let text = format!("{engine:?}");
        assert!(
            text.contains(&engine.spec().to_string()) && text.contains("launches: 1"),
            "{text}"
        );
    }
}

/// Each job adds a product to what the one before has stored.
#[test]
fn jobs_come_after_others() {
    let Some(device) = device("jobs_come_after_others") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[3]);
    let known = Known::new(&device, &stream, &config, square(64), 5);
    let once = known.pointers();
    let both = Pointers { c: once.d, ..once };
    let first = engine.prepare(&known.problem, &once).unwrap();
    let doubled = known.problem.with_alpha(2.0).with_beta(-1.0);
    let again = engine.prepare(&doubled, &both).unwrap();
    // SAFETY: the buffers outlive the work, which is waited for.
    let mut last = unsafe { engine.submit(&first) }.unwrap();
    for _ in 0..8 {
        // 2·A·B − A·B is A·B.
        // SAFETY: as above.
        last = unsafe { engine.submit_after(&again, &[&last]) }.unwrap();
    }
    last.wait_timeout(LONG).unwrap();
    known.check(&stream);
    // SAFETY: as above.
    let too_many = unsafe { engine.submit_after(&again, &[&last, &last, &last]) };
    assert!(too_many.unwrap_err().to_string().contains("3"));
}

#[test]
fn streams_and_threads_submit_jobs() {
    let Some(device) = device("streams_and_threads_submit_jobs") else { return };
    let (config, _, engine) = engine(&device, SPECS[1]);
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for lane in 0..4 {
            let (device, config, engine, done) = (&device, &config, &engine, &done);
            let on_stream = lane < 2;
            let stream = Stream::new(device).unwrap();
            let mut known = Known::new(device, &stream, config, square(64), lane);
            let job = engine.prepare(&known.problem, &known.pointers()).unwrap();
            scope.spawn(move || {
                for _ in 0..6 {
                    known.poison(&stream);
                    // SAFETY: the buffers outlive the work, which is waited for.
                    let ticket = unsafe {
                        match on_stream {
                            true => engine.submit_on(stream.as_ref(), &job),
                            false => engine.submit(&job),
                        }
                    }
                    .unwrap();
                    if !on_stream {
                        ticket.stream_wait(stream.as_ref()).unwrap();
                    }
                    known.check(&stream);
                    ticket.wait_timeout(LONG).unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.into_inner(), 4 * 6);
    // Two streams have lanes, and a third one gets that of a stream whose jobs are all done.
    let stream = Stream::new(&device).unwrap();
    let known = Known::new(&device, &stream, &config, square(64), 9);
    let job = engine.prepare(&known.problem, &known.pointers()).unwrap();
    // SAFETY: as above.
    unsafe { engine.submit_on(stream.as_ref(), &job) }.unwrap().wait_timeout(LONG).unwrap();
    known.check(&stream);
}

#[test]
fn callbacks_and_futures_hear_of_jobs() {
    let Some(device) = device("callbacks_and_futures_hear_of_jobs") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[1]);
    let known = Known::new(&device, &stream, &config, square(64), 3);
    let job = engine.prepare(&known.problem, &known.pointers()).unwrap();
    let (sender, told) = channel();
    for _ in 0..20 {
        // SAFETY: the buffers outlive the engine's work, which is waited for.
        let ticket = unsafe { engine.submit(&job) }.unwrap();
        let (sender, own) = (sender.clone(), ticket.clone());
        ticket.on_done(move |outcome| sender.send((outcome.is_ok(), own.is_done())).unwrap());
    }
    for _ in 0..20 {
        assert_eq!(told.recv_timeout(LONG).unwrap(), (true, true));
    }
    // A callback that panics does not keep others from being called.
    // SAFETY: as above.
    let ticket = unsafe { engine.submit(&job) }.unwrap();
    ticket.on_done(|_| panic!("a callback of this test panics"));
    let (sender, told) = channel();
    ticket.on_done(move |outcome| sender.send(outcome.is_ok()).unwrap());
    assert!(told.recv_timeout(LONG).unwrap());
    block_on(async {
        // SAFETY: as above.
        let mut ticket: Ticket = unsafe { engine.submit(&job) }.unwrap();
        (&mut ticket).await.unwrap();
        ticket.await.unwrap();
    });
    known.check(&stream);
}

#[test]
fn an_engine_ends_once() {
    let Some(device) = device("an_engine_ends_once") else { return };
    let stream = Stream::new(&device).unwrap();
    for abort in [false, true] {
        let (config, _, engine) = engine(&device, SPECS[1]);
        let known = Known::new(&device, &stream, &config, square(64), 3);
        let job = engine.prepare(&known.problem, &known.pointers()).unwrap();
        // SAFETY: the buffers outlive the work, which is waited for.
        let ticket = unsafe { engine.submit(&job) }.unwrap();
        ticket.wait_timeout(LONG).unwrap();
        engine.drain().unwrap();
        if abort {
            engine.abort().unwrap()
        } else {
            engine.stop().unwrap()
        }
        assert!(!engine.is_resident() && ticket.is_done());
        // SAFETY: as above.
        let refused = unsafe { engine.submit(&job) }.unwrap_err().to_string();
        assert!(refused.contains("stopped"), "{refused}");
        // SAFETY: as above.
        let refused = unsafe { engine.submit_on(stream.as_ref(), &job) }.unwrap_err().to_string();
        assert!(refused.contains("stopped"), "{refused}");
        engine.stop().unwrap();
        known.check(&stream);
    }
}

#[test]
fn wrong_jobs_and_engines_are_refused() {
    let Some(device) = device("wrong_jobs_and_engines_are_refused") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[1]);
    let known = Known::new(&device, &stream, &config, square(64), 3);
    let good = known.pointers();
    let ragged = Problem::new(64, 63, 64, Major::K, Major::K);
    let turned = Problem::new(64, 64, 64, Major::K, Major::N);
    for (problem, pointers, wanted) in [
        (known.problem, Pointers { a: 0, ..good }, "A"),
        (known.problem, Pointers { a: good.a + 2, ..good }, "A"),
        (known.problem, Pointers { d: good.d + 4, ..good }, "D"),
        (known.problem.with_beta(1.0), good, "C"),
        (known.problem.with_alpha(1e300), good, "alpha"),
        (turned, good, "another engine"),
        (ragged, good, "TMA"),
    ] {
        let error = engine.prepare(&problem, &pointers).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let gemm = Gemm::create(&device, config).unwrap();
    for sms in [0, 100_000] {
        let options = EngineOptions { sms: Some(sms), ..EngineOptions::default() };
        let error = Engine::start(&gemm, &known.problem, options).unwrap_err().to_string();
        assert!(error.contains(&format!("{sms} SMs")), "{error}");
    }
    // A job of another engine.
    let (_, _, other) = crate::known::engine(&device, SPECS[1]);
    let job: Job = other.prepare(&known.problem, &good).unwrap();
    // SAFETY: the buffers outlive the work, which is waited for.
    let error = unsafe { engine.submit(&job) }.unwrap_err().to_string();
    assert!(error.contains("engine"), "{error}");
    // Work of an engine cannot become part of a graph.
    let own = engine.prepare(&known.problem, &good).unwrap();
    // SAFETY: there is no work that would be launched later.
    let captured = unsafe {
        Graph::capture(&device, stream.as_ref(), |stream| engine.submit_on(stream, &own).map(drop))
    };
    let error = captured.unwrap_err().to_string();
    assert!(error.contains("captur"), "{error}");
}

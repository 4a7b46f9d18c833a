//! What this library does in a process in which streams wait for jobs: memory is allocated when
//! they are done, or not at all.

use std::time::{Duration, Instant};

use persistent_gemm::driver::{Device, DeviceBuffer, Stream};
use persistent_gemm::engine::{Engine, EngineOptions, Job};
use persistent_gemm::{Config, Gemm, Major, Pointers, Problem};

use crate::device::device;
use crate::known::{Known, SPECS, engine};

/// More than the driver takes from what it has at hand.
const BYTES: usize = 64 << 20;

/// An engine on so many SMs with a long job, some 45 ms on one SM and 0.4 on all, and what that one
/// uses.
fn long_job(device: &Device, sms: Option<u32>) -> (Engine, Job, [DeviceBuffer; 3]) {
    const EXTENTS: [usize; 3] = [8192, 8192, 2048];
    let [m, n, k] = EXTENTS;
    let gemm = Gemm::create(device, Config::for_spec(SPECS[0].parse().unwrap())).unwrap();
    let problem = Problem::new(m, n, k, Major::K, Major::K);
    let options = EngineOptions { sms, ..EngineOptions::default() };
    let engine = Engine::start(&gemm, &problem, options).unwrap();
    let stream = Stream::new(device).unwrap();
    let buffers = [m * k, n * k, m * n].map(|elements| {
        let mut buffer = DeviceBuffer::new(device, elements * 2).unwrap();
        buffer.fill_u8(0, elements * 2, 0, stream.as_ref()).unwrap();
        buffer
    });
    stream.synchronize().unwrap();
    let [a, b, d] = buffers.each_ref().map(DeviceBuffer::address);
    let job = engine.prepare(&problem, &Pointers::new(a, b, 0, d)).unwrap();
    (engine, job, buffers)
}

/// The kernel has left each time, and the stream's job needs it to be launched while memory is
/// asked for.
#[test]
fn allocations_wait_for_jobs_of_streams() {
    let Some(device) = device("allocations_wait_for_jobs_of_streams") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[0]);
    let problem = Problem::new(512, 512, 512, Major::K, Major::K);
    let mut known = Known::new(&device, &stream, &config, problem, 3);
    let job = engine.prepare(&problem, &known.pointers()).unwrap();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..100 {
                    drop(DeviceBuffer::new(&device, BYTES).unwrap());
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
        }
        for _ in 0..100 {
            known.poison(&stream);
            std::thread::sleep(Duration::from_millis(2));
            // SAFETY: the buffers outlive the work, which is waited for.
            let ticket = unsafe { engine.submit_on(stream.as_ref(), &job) }.unwrap();
            let freed = DeviceBuffer::new(&device, BYTES).unwrap();
            ticket.wait_timeout(Duration::from_secs(3)).unwrap();
            drop(freed);
            known.check(&stream);
        }
    });
    device.synchronize().unwrap();
    println!("{:.2} s, {} launches", begin.elapsed().as_secs_f64(), engine.launches());
}

#[test]
fn what_would_wait_too_long_is_refused_and_frees_are_put_off() {
    let Some(device) = device("what_would_wait_too_long_is_refused_and_frees_are_put_off") else {
        return;
    };
    let stream = Stream::new(&device).unwrap();
    let (engine, job, _buffers) = long_job(&device, Some(1));
    let kept = DeviceBuffer::new(&device, BYTES).unwrap();
    let free = device.free_memory_bytes().unwrap();
    // SAFETY: the buffers outlive the work, which is waited for.
    let submit = || unsafe { engine.submit_on(stream.as_ref(), &job) }.unwrap();
    let tickets: Vec<_> = (0..60).map(|_| submit()).collect();
    let last = tickets.last().unwrap();
    let begin = Instant::now();
    let error = DeviceBuffer::new(&device, BYTES).unwrap_err().to_string();
    let refused = begin.elapsed();
    assert!(error.contains("cuMemAlloc") && error.contains("Wait for"), "{error}");
    let begin = Instant::now();
    drop(kept);
    let dropped = begin.elapsed();
    let late = last.wait_timeout(Duration::ZERO).unwrap_err().to_string();
    assert!(late.contains("not done"), "the jobs were too short for this test: {late}");
    assert!(dropped < Duration::from_millis(200), "{dropped:?}");
    let more = free + BYTES as u64 / 2;
    assert!(device.free_memory_bytes().unwrap() < more, "it is not freed yet");
    last.wait_timeout(Duration::from_secs(60)).unwrap();
    stream.synchronize().unwrap();
    drop(DeviceBuffer::new(&device, BYTES).unwrap());
    let after = device.free_memory_bytes().unwrap();
    assert!(after > more, "{free} and {after}");
    println!("refused after {refused:.2?}, a drop took {dropped:.2?}");
}

#[test]
fn a_stream_waits_for_a_job_of_the_host() {
    let Some(device) = device("a_stream_waits_for_a_job_of_the_host") else { return };
    let stream = Stream::new(&device).unwrap();
    let (config, _, engine) = engine(&device, SPECS[0]);
    let problem = Problem::new(512, 512, 4096, Major::K, Major::K);
    let mut known = Known::new(&device, &stream, &config, problem, 5);
    let job = engine.prepare(&problem, &known.pointers()).unwrap();
    for _ in 0..200 {
        known.poison(&stream);
        stream.synchronize().unwrap();
        // SAFETY: the buffers outlive the work, which is waited for.
        let ticket = unsafe { engine.submit(&job) }.unwrap();
        ticket.stream_wait(stream.as_ref()).unwrap();
        // The copy that this makes is the stream's next work.
        known.check(&stream);
    }
    // What is given up lets the stream go on too.
    let (engine, job, _buffers) = long_job(&device, Some(1));
    // SAFETY: as above.
    let tickets = unsafe { engine.submit_all(vec![&job; 100]) }.unwrap();
    tickets.last().unwrap().stream_wait(stream.as_ref()).unwrap();
    engine.abort().unwrap();
    stream.synchronize().unwrap();
    let given_up = tickets.iter().filter(|ticket| ticket.wait().is_err()).count();
    assert!(given_up > 0);
    println!("{given_up} of 100 given up");
}

#[test]
fn a_job_after_a_streams_is_refused_until_that_one_is_done() {
    let Some(device) = device("a_job_after_a_streams_is_refused_until_that_one_is_done") else {
        return;
    };
    let stream = Stream::new(&device).unwrap();
    let (engine, job, _buffers) = long_job(&device, Some(1));
    // SAFETY: the buffers outlive the work, which is waited for.
    let submit = || unsafe { engine.submit_on(stream.as_ref(), &job) }.unwrap();
    let tickets: Vec<_> = (0..3).map(|_| submit()).collect();
    let last = tickets.last().unwrap();
    // SAFETY: as above.
    let refused =
        unsafe { [engine.submit_after(&job, &[last]), engine.try_submit_after(&job, &[last])] };
    let late = last.wait_timeout(Duration::ZERO).unwrap_err().to_string();
    assert!(late.contains("not done"), "the jobs were too short for this test: {late}");
    for refused in refused {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("job 2 of a stream is not done"), "{error}");
    }
    last.wait_timeout(Duration::from_secs(60)).unwrap();
    // SAFETY: as above.
    let after = unsafe { engine.submit_after(&job, &[last]) }.unwrap();
    after.wait_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(after.number(), 0, "nothing refused has a slot");
}

#[test]
fn streams_go_on_after_an_abort() {
    let Some(device) = device("streams_go_on_after_an_abort") else { return };
    let stream = Stream::new(&device).unwrap();
    let (engine, job, _buffers) = long_job(&device, None);
    // SAFETY: the buffers outlive the work, which is waited for.
    let submit = || unsafe { engine.submit_on(stream.as_ref(), &job) }.unwrap();
    let tickets: Vec<_> = (0..100).map(|_| submit()).collect();
    engine.abort().unwrap();
    let begin = Instant::now();
    while !stream.as_ref().is_idle().unwrap() {
        assert!(begin.elapsed() < Duration::from_secs(10), "the stream waits for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
    let given_up = tickets.iter().filter(|ticket| match ticket.wait() {
        Ok(()) => false,
        Err(error) => {
            assert!(error.to_string().contains("given up"), "{error}");
            true
        }
    });
    let given_up = given_up.count();
    println!("{given_up} of {} given up", tickets.len());
    assert!(given_up > 0);
    drop(DeviceBuffer::new(&device, BYTES).unwrap());
}

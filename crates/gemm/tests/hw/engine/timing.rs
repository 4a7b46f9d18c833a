//! How long jobs take.

use std::time::Instant;

use persistent_gemm::driver::{DeviceBuffer, Stream};
use persistent_gemm::{Major, Pointers, Problem};

use crate::device::device;
use crate::known::{SPECS, engine};

fn median(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

/// Prints how long jobs take.
#[test]
fn jobs_are_timed() {
    let Some(device) = device("jobs_are_timed") else { return };
    let stream = Stream::new(&device).unwrap();
    for name in SPECS[..2].iter().copied() {
        let (config, _, engine) = engine(&device, name);
        for (m, n, k) in [
            (128, 128, 128),
            (256, 256, 256),
            (512, 512, 512),
            (1024, 1024, 1024),
            (64, 4096, 4096),
            (4096, 4096, 4096),
        ] {
            let problem = Problem::new(m, n, k, Major::K, Major::K);
            let bytes = |rows: usize, columns: usize| {
                DeviceBuffer::from_host(&device, &vec![0x3c; rows * columns * 2], stream.as_ref())
                    .unwrap()
            };
            let _ = &config;
            let (a, b, d) = (bytes(m, k), bytes(n, k), bytes(m, n));
            let job = engine
                .prepare(&problem, &Pointers::new(a.address(), b.address(), 0, d.address()))
                .unwrap();
            // SAFETY: the buffers outlive the work, which is waited for.
            let submit = || unsafe { engine.submit(&job) }.unwrap();
            submit().wait().unwrap();
            let single = (0..2000).map(|_| {
                let begin = Instant::now();
                submit().wait().unwrap();
                begin.elapsed().as_secs_f64() * 1e6
            });
            let (single, late) = median(single.collect());
            let count = if m == 4096 { 100 } else { 1000 };
            let jobs = vec![&job; count];
            let batch = (0..7).map(|_| {
                submit().wait().unwrap();
                let begin = Instant::now();
                // SAFETY: as above.
                unsafe { engine.submit_all(jobs.iter().copied()) }.unwrap();
                engine.drain().unwrap();
                begin.elapsed().as_secs_f64() * 1e6 / count as f64
            });
            let (batch, _) = median(batch.collect());
            let each = (0..7).map(|_| {
                submit().wait().unwrap();
                let begin = Instant::now();
                (0..count).for_each(|_| drop(submit()));
                let submitted = begin.elapsed().as_secs_f64() * 1e6 / count as f64;
                engine.drain().unwrap();
                (submitted, begin.elapsed().as_secs_f64() * 1e6 / count as f64)
            });
            let each: Vec<_> = each.collect();
            let (submitted, _) = median(each.iter().map(|times| times.0).collect());
            let (each, _) = median(each.iter().map(|times| times.1).collect());
            let chain = (0..5).map(|_| {
                let begin = Instant::now();
                let mut last = submit();
                for _ in 1..count {
                    // SAFETY: as above.
                    last = unsafe { engine.submit_after(&job, &[&last]) }.unwrap();
                }
                last.wait().unwrap();
                begin.elapsed().as_secs_f64() * 1e6 / count as f64
            });
            let (chain, _) = median(chain.collect());
            let on_stream = (0..5).map(|_| {
                let begin = Instant::now();
                for _ in 0..count.min(500) {
                    // SAFETY: as above.
                    unsafe { engine.submit_on(stream.as_ref(), &job) }.unwrap();
                }
                let enqueued = begin.elapsed().as_secs_f64() * 1e6 / count.min(500) as f64;
                stream.synchronize().unwrap();
                (enqueued, begin.elapsed().as_secs_f64() * 1e6 / count.min(500) as f64)
            });
            let on_stream: Vec<_> = on_stream.collect();
            let (enqueued, _) = median(on_stream.iter().map(|times| times.0).collect());
            let (on_stream, _) = median(on_stream.iter().map(|times| times.1).collect());
            println!("{m}x{n}x{k} on a stream: {on_stream:.2} µs each, enqueued in {enqueued:.2}");
            println!(
                "{name} {m}x{n}x{k}: alone {single:.2} µs (p99 {late:.2}), of {count} at once \
                 {batch:.3}, one by one {each:.3} (submitting {submitted:.3}), in a chain \
                 {chain:.2}"
            );
        }
        println!("{engine:?}");
    }
}

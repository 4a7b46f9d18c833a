//! Many jobs from many threads and streams: each adds its product to D, so that one that is lost or
//! done twice shows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use persistent_gemm::driver::{Device, DeviceBuffer, Stream};
use persistent_gemm::engine::{Engine, Job, Ticket};
use persistent_gemm::{Dtype, HostMatrix, Major, Pointers, Problem, cpu};

use super::cpu_seconds;
use crate::device::device;
use crate::known::{SPECS, engine};

/// A product that is added to D again and again: D then says how often that was done.
struct Counted {
    job: Job,
    d: DeviceBuffer,
    /// Of one.
    product: Vec<f32>,
    times: u32,
    last: Option<Ticket>,
    _operands: [DeviceBuffer; 2],
}

impl Counted {
    fn new(
        device: &Device,
        stream: &Stream,
        engine: &Engine,
        extents: [usize; 3],
        seed: u64,
    ) -> Self {
        let [m, n, k] = extents;
        let problem = Problem::new(m, n, k, Major::K, Major::K);
        let matrix = |layout, seed| {
            let mut matrix = HostMatrix::zeros(layout, Dtype::Bf16).unwrap();
            matrix.fill_integers(seed, 1);
            matrix
        };
        let (a, b) = (matrix(problem.a_layout(), seed), matrix(problem.b_layout(), seed + 1));
        let mut d = HostMatrix::zeros(problem.d_layout(), Dtype::F32).unwrap();
        cpu::run(&problem, &a, &b, None, &mut d).unwrap();
        let product = d.to_f64_vec().into_iter().map(|value| value as f32).collect();
        let upload =
            |bytes: &[u8]| DeviceBuffer::from_host(device, bytes, stream.as_ref()).unwrap();
        let (a, b, d) = (upload(a.bytes()), upload(b.bytes()), upload(&vec![0; m * n * 4]));
        let pointers = Pointers::new(a.address(), b.address(), d.address(), d.address());
        let job = engine.prepare(&problem.with_beta(1.0), &pointers).unwrap();
        Counted { job, d, product, times: 0, last: None, _operands: [a, b] }
    }

    fn wait(&mut self) {
        if let Some(ticket) = self.last.take() {
            ticket.wait_timeout(Duration::from_secs(5)).unwrap();
        }
    }

    fn check(&mut self, stream: &Stream) {
        self.wait();
        let mut bytes = vec![0; self.product.len() * 4];
        self.d.copy_to_host(0, &mut bytes, stream.as_ref()).unwrap();
        let found = bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        let times = self.times as f32;
        let wrong = found.zip(&self.product).position(|(found, one)| found != times * one);
        assert_eq!(wrong, None, "{:?} was not added {times} times", self.job);
    }
}

#[test]
fn no_job_of_threads_is_lost_or_done_twice() {
    soak("no_job_of_threads_is_lost_or_done_twice", 0);
}

#[test]
fn no_job_of_threads_and_streams_is_lost_or_done_twice() {
    soak("no_job_of_threads_and_streams_is_lost_or_done_twice", 2);
}

/// `PGEMM_SOAK` jobs, 200 000 where it is not set, from eight threads and so many streams. Every
/// ten milliseconds all of them pause, for shorter and longer than the kernel's idle time of one.
fn soak(name: &str, streams: usize) {
    const THREADS: usize = 8;
    const EACH: usize = 24;
    const BETWEEN_PAUSES: Duration = Duration::from_millis(10);
    let pause = |round: u32| Duration::from_micros(900 + 190 * u64::from(round % 11));
    let Some(device) = device(name) else { return };
    let all: usize = std::env::var("PGEMM_SOAK").map_or(200_000, |text| text.parse().unwrap());
    let (_, _, engine) = engine(&device, SPECS[3]);
    let shapes =
        [[64, 64, 64], [8, 8, 16], [128, 64, 64], [200, 72, 40], [256, 128, 32], [16, 512, 48]];
    let done = AtomicUsize::new(0);
    // Nothing is allocated or freed while streams wait for jobs.
    let mut of_threads: Vec<(Stream, Vec<Counted>)> = (0..THREADS + streams)
        .map(|thread| {
            let stream = Stream::new(&device).unwrap();
            let counted = |at: usize| {
                let seed = (1000 * thread + 2 * at) as u64;
                Counted::new(&device, &stream, &engine, shapes[(thread + at) % 6], seed)
            };
            let counted = (0..EACH).map(counted).collect();
            (stream, counted)
        })
        .collect();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for (thread, (stream, counted)) in of_threads.iter_mut().enumerate() {
            let (engine, done) = (&engine, &done);
            scope.spawn(move || {
                // A tenth of them by streams.
                let of_streams = if streams > 0 { all / 10 } else { 0 };
                let share = match thread < THREADS {
                    true => (all - of_streams) / THREADS,
                    false => of_streams / streams.max(1),
                };
                let mut round = 1;
                for job in 0..share {
                    let next = BETWEEN_PAUSES * round;
                    if begin.elapsed() >= next {
                        let end = next + pause(round);
                        std::thread::sleep(end.saturating_sub(begin.elapsed()));
                        round += 1;
                    }
                    let own = &mut counted[job * 7 % EACH];
                    // SAFETY: the buffers outlive the work; each D has one job after the other.
                    own.last = Some(unsafe {
                        if thread >= THREADS {
                            engine.submit_on(stream.as_ref(), &own.job).unwrap()
                        } else if job % 3 == 0 && own.last.is_some() {
                            let before = own.last.take().unwrap();
                            engine.submit_after(&own.job, &[&before]).unwrap()
                        } else {
                            own.wait();
                            engine.submit(&own.job).unwrap()
                        }
                    });
                    own.times += 1;
                }
                done.fetch_add(share, Ordering::Relaxed);
            });
        }
    });
    engine.drain().unwrap();
    let seconds = begin.elapsed().as_secs_f64();
    for (stream, counted) in &mut of_threads {
        counted.iter_mut().for_each(|counted| counted.check(stream));
    }
    let before = cpu_seconds();
    std::thread::sleep(Duration::from_secs(1));
    let idle = cpu_seconds() - before;
    println!(
        "{} jobs in {seconds:.1} s, none lost, none done twice; {} launches; {idle:.2} s of a CPU \
         in a second of idling",
        done.load(Ordering::Relaxed),
        engine.launches()
    );
    assert!(idle < 0.05, "{idle}");
    assert!(engine.launches() > 2, "no pause was long enough: {} launches", engine.launches());
}

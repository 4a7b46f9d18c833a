//! A thread that submits jobs which depend on each other.

use pgemm_kernels::resident::layout::LANE_SLOTS;

use super::host::{self, EmulatedWords};
use super::products::{Extents, Factors, Output, Products, random};
use crate::engine::HOST;
use crate::engine::host_side::{HostSide, STOPPED};
use crate::engine::queue::JobId;
use crate::engine::records::JobRecord;

/// The host's side of the protocol under test.
pub(super) type EmulatedHost = HostSide<EmulatedWords, ()>;

/// Submits jobs after others, as an engine does.
pub(super) fn submit(host: &EmulatedHost, jobs: &[&JobRecord], after: &[JobId]) -> Vec<JobId> {
    let mut numbers = vec![];
    let mut jobs = jobs.iter().copied().peekable();
    loop {
        let submitted = |number| numbers.push(JobId { lane: HOST, number });
        host.submit(&mut jobs, after.iter().copied(), submitted).unwrap();
        keep_running(host);
        if jobs.peek().is_none() {
            return numbers;
        }
        host.queue().words().find_full();
        if numbers.len() % 2 == 0 {
            // Like a caller that tries again and again.
            host::pause();
        } else {
            let oldest = host.oldest(HOST);
            host::wait_until(|| host.is_done(oldest));
        }
    }
}

/// Launches the kernel if it has left.
pub(super) fn keep_running(host: &EmulatedHost) {
    let launched = host.launch_if_left(|_, number| {
        host::launch(number);
        Ok(())
    });
    launched.unwrap();
}

/// Waits for all jobs of the host's lane that may not be done.
pub(super) fn drain(host: &EmulatedHost) {
    let end = host.queue().submitted(HOST);
    for back in (1..=LANE_SLOTS.min(end)).rev() {
        let job = JobId { lane: HOST, number: end - back };
        host::wait_until(|| host.is_done(job));
    }
}

/// An accumulated sum. Each job adds a product to one of two outputs and stores the other: its own
/// or, if it joins another chain, that of the other. So a job that is lost, done twice or begun too
/// early shows in all results after it.
pub(super) struct Chain {
    /// The chain that it can join, by its place.
    other: usize,
    factors: [Factors; 2],
    pub(super) outputs: [Output; 2],
    /// Stores the first output.
    first: JobRecord,
    /// By the output that they store.
    next: [JobRecord; 2],
    /// By the output that they store, and that of the next chain that they add to.
    joins: [[JobRecord; 2]; 2],
    jobs: usize,
    last: Option<JobId>,
    /// By output: the job of another chain that loads it, if one does.
    reader: [Option<JobId>; 2],
}

/// Chains of outputs of this size, at places from `start` on. Each can join the one after it.
pub(super) fn chains(
    products: &mut Products,
    start: usize,
    count: usize,
    extents: Extents,
) -> Vec<Chain> {
    let outputs: Vec<[Output; 2]> =
        (0..count).map(|_| [(); 2].map(|()| products.output(extents))).collect();
    let mut made = vec![];
    for (at, own) in outputs.iter().enumerate() {
        let next_at = (at + 1) % count;
        let other = &outputs[next_at];
        let factors = [(); 2].map(|()| products.factors(extents));
        let first = products.record(&factors[0], None, &own[0]);
        let next = [0, 1].map(|to| products.record(&factors[to], Some(&own[1 - to]), &own[to]));
        let joins = [0, 1].map(|to| {
            [0, 1].map(|from| products.record(&factors[to], Some(&other[from]), &own[to]))
        });
        made.push((start + next_at, factors, first, next, joins));
    }
    let chain = |((other, factors, first, next, joins), outputs)| {
        let (jobs, last, reader) = (0, None, [None; 2]);
        Chain { other, factors, outputs, first, next, joins, jobs, last, reader }
    };
    made.into_iter().zip(outputs).map(chain).collect()
}

impl Chain {
    /// The output that the next job stores.
    fn to(&self) -> usize {
        self.jobs % 2
    }

    /// Notes a job that has added to these numbers.
    fn note(&mut self, job: JobId, added: Option<Vec<f64>>) {
        let to = self.to();
        let sums = &self.factors[to].sums;
        let stored = match added {
            Some(added) => sums.iter().zip(added).map(|(sum, added)| sum + added).collect(),
            None => sums.clone(),
        };
        self.outputs[to].expected = Some(stored);
        (self.last, self.reader[to]) = (Some(job), None);
        self.jobs += 1;
    }
}

/// The work of a submitter.
pub(super) struct Submitter {
    pub(super) chains: Vec<Chain>,
    /// Jobs that are submitted before all others.
    pub(super) first: Vec<Single>,
    /// Products on their own.
    pub(super) singles: Vec<Single>,
    /// Jobs of chains.
    pub(super) jobs: usize,
    pub(super) random: u64,
    /// The longest batch of products on their own.
    pub(super) batch: u32,
    /// Nanoseconds after which the kernel has left, if it is to leave now and then.
    pub(super) pause: Option<u64>,
}

/// A product on its own.
pub(super) struct Single {
    pub(super) record: JobRecord,
    pub(super) output: Output,
    pub(super) sums: Vec<f64>,
}

impl Single {
    /// Its record, when it is submitted.
    pub(super) fn submitted(&mut self) -> &JobRecord {
        self.output.expected = Some(self.sums.clone());
        &self.record
    }
}

/// Products on their own, with one pair of operands.
pub(super) fn singles(products: &mut Products, count: usize, extents: Extents) -> Vec<Single> {
    let factors = products.factors(extents);
    let single = |_| {
        let output = products.output(extents);
        let record = products.record(&factors, None, &output);
        Single { record, output, sums: factors.sums.clone() }
    };
    (0..count).map(single).collect()
}

impl Submitter {
    /// Submits all jobs in some order.
    pub(super) fn submit(&mut self, host: &EmulatedHost) {
        let first: Vec<&JobRecord> = self.first.iter_mut().map(Single::submitted).collect();
        submit(host, &first, &[]);
        let (mut done, mut singles) = (0, 0);
        while done < self.jobs || singles < self.singles.len() {
            let chain = random(&mut self.random, self.chains.len() as u32) as usize;
            let what = random(&mut self.random, 64);
            if what < 4 || done == self.jobs {
                let count = 1 + random(&mut self.random, self.batch) as usize;
                let batch = self.singles.iter_mut().skip(singles).take(count);
                let jobs: Vec<&JobRecord> = batch.map(Single::submitted).collect();
                submit(host, &jobs, &[]);
                singles += jobs.len();
                continue;
            }
            match what {
                4..24 => self.join(host, chain),
                _ => self.step(host, chain),
            }
            done += 1;
            if what == 63 && done % 4 == 0 {
                self.wait(host, chain);
            }
            if (self.jobs / 2..).step_by(self.jobs / 4 + 1).take(2).any(|at| at == done)
                && let Some(pause) = self.pause
            {
                drain(host);
                host::sleep(pause);
            }
        }
    }

    /// Waits for a chain, so that the host's clock gets ahead of others.
    fn wait(&self, host: &EmulatedHost, chain: usize) {
        if let Some(job) = self.chains[chain].last {
            host::wait_until(|| host.is_done(job));
        }
    }

    /// A job that adds to the other output of its chain.
    fn step(&mut self, host: &EmulatedHost, chain: usize) {
        let chain = &mut self.chains[chain];
        let to = chain.to();
        let record = if chain.jobs == 0 { &chain.first } else { &chain.next[to] };
        let after: Vec<JobId> = [chain.last, chain.reader[to]].into_iter().flatten().collect();
        let job = submit(host, &[record], &after)[0];
        let added = chain.outputs[1 - to].expected.clone();
        chain.note(job, added.filter(|_| chain.jobs > 0));
    }

    /// A job that adds to the output of the next chain, which has one, and comes after both. It is
    /// one of its own chain only if it would have to wait for a third job, or does not find one.
    fn join(&mut self, host: &EmulatedHost, at: usize) {
        let other = self.chains[at].other;
        let (own, from) = (&self.chains[at], &self.chains[other]);
        let (Some(before), to) = (from.last, own.to()) else { return self.step(host, at) };
        let stored = (from.jobs - 1) % 2;
        if at == other || own.reader[to].is_some() || from.reader[stored].is_some() {
            return self.step(host, at);
        }
        let after: Vec<JobId> = own.last.into_iter().chain([before]).collect();
        let job = submit(host, &[&own.joins[to][stored]], &after)[0];
        let added = from.outputs[stored].expected.clone();
        self.chains[at].note(job, added);
        self.chains[other].reader[stored] = Some(job);
    }
}

/// Enqueues a job on a stream, whose lane is not full, as an engine does.
pub(super) fn submit_on(host: &EmulatedHost, id: u64, stream: usize, record: &JobRecord) -> JobId {
    let bell = |_| {
        host::ring_bell(stream);
        Ok(())
    };
    let (lane, number) = host.submit_on(id, record, stream, bell).unwrap();
    JobId { lane, number: number.expect("the lane is not full") }
}

/// The products of a stream.
pub(super) struct OfStream {
    pub(super) jobs: Vec<Single>,
    /// The number by which the engine knows the stream, and that of its work.
    pub(super) id: u64,
    pub(super) stream: usize,
    pub(super) random: u64,
}

impl OfStream {
    /// Enqueues all jobs on the stream, with other work between them. Returns the last.
    pub(super) fn enqueue(&mut self, host: &EmulatedHost) -> JobId {
        let mut last = None;
        for single in &mut self.jobs {
            host::delay(self.stream, random(&mut self.random, 200));
            last = Some(submit_on(host, self.id, self.stream, single.submitted()));
        }
        last.expect("there are jobs")
    }

    /// Enqueues all jobs, and waits for them.
    pub(super) fn submit(&mut self, host: &EmulatedHost) {
        let last = self.enqueue(host);
        host::wait_until(|| host.is_done(last));
    }
}

/// Ends the kernel once all jobs are done, as an engine does.
pub(super) fn stop(host: &EmulatedHost) {
    host.close();
    drain(host);
    host.stop();
    host::await_end();
    host.give_up();
    assert_eq!(host.phase(), STOPPED, "a job was given up");
    host::end_bells();
}

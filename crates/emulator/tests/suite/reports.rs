//! What reports say, in at most ten lines: one cause, its line, and the schedule.

use pgemm_emulator::{Emulator, Memory, Options, Report, Schedule};
use pgemm_ir::{
    Element, Kernel, KernelBuilder, Launch, Occupancy, RegionKind, SmemRequest, Special, ty,
};

/// A kernel with eight warpgroups.
fn crowd(body: impl for<'k> FnOnce(&'k KernelBuilder)) -> Kernel {
    let b = KernelBuilder::new("crowd", 1);
    b.warp_roles(Occupancy::ONE_CTA, |roles| roles.role("all", 8, 64, |_| body(&b)));
    pgemm_ir::optimise(b.finish().unwrap()).unwrap()
}

fn report(kernel: &Kernel, schedule: Schedule) -> Box<Report> {
    let mut memory = Memory::new();
    let launch = Launch { grid: [1, 1, 1], arguments: vec![] };
    let options = Options { schedule, ..Options::default() };
    Emulator::new(kernel, &launch, &mut memory, options).unwrap().run().unwrap_err()
}

/// The lines of a report, with the places of this file as `line of "label"`.
fn lines(report: &Report) -> Vec<String> {
    let text = report.to_string();
    let count = text.lines().count();
    assert!(count <= 10, "{count} lines: {text}");
    text.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn warps_that_wait_at_the_same_place_are_one_line() {
    let kernel = crowd(|b| {
        let full = b.region("full", RegionKind::Mbarrier, SmemRequest::whole(8, 8));
        let full = b.smem_address(full);
        b.if_(b.special(Special::Thread).eq(0), || full.mbarrier_init(2));
        b.sync_cta();
        b.if_(b.special(Special::Thread).eq(0), || full.mbarrier_arrive());
        b.scope("wait", || full.mbarrier_wait(0));
    });
    let report = report(&kernel, Schedule::round_robin());
    assert_eq!(report.sites.len(), 32);
    let lines = lines(&report);
    assert_eq!(lines[0], "Deadlock: 32 warps wait and nothing can go on");
    assert!(lines[1].starts_with("cluster 0 CTA 0 warp 0 waits for parity 0 of the mbarrier at "));
    assert!(lines[1].ends_with(", and so do 31 others"), "{lines:?}");
    assert!(lines[2].contains("reports.rs") && lines[2].ends_with("(in all > wait)"), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "under Schedule::round_robin()");
}

#[test]
fn a_race_names_both_accesses_and_the_schedule() {
    let kernel = crowd(|b| {
        let region = b.region("sums", RegionKind::Data(Element::F32), SmemRequest::whole(512, 16));
        let sums = b.smem_address(region);
        let warp = b.special(Special::Warp);
        let own = sums.offset(warp * 4);
        b.scope("write", || b.store_shared(own, [warp]));
        b.if_((warp & 1).eq(1), || {
            let other = sums.offset((warp ^ 1) * 4);
            let [found] = b.scope("read", || b.load_shared::<ty::U32, 1>(other));
            b.store_shared(own, [found]);
        });
    });
    // Under some schedules, the read is found to come before any write.
    let found = (0..50).find_map(|seed| {
        let report = report(&kernel, Schedule::seeded(seed));
        (report.sites.len() == 2).then_some((seed, report))
    });
    let (seed, report) = found.unwrap();
    let lines = lines(&report);
    assert!(lines[0].starts_with("Race: nothing orders two accesses to shared memory of CTA 0"));
    assert!(lines[0].contains("('sums' + "), "{lines:?}");
    for at in [2, 4] {
        assert!(lines[at].ends_with("> read)") || lines[at].ends_with("> write)"), "{lines:?}");
    }
    assert_eq!(lines.last().unwrap(), &format!("under Schedule::seeded({seed})"));
}

#[test]
fn assertions_and_prints_name_their_line() {
    let kernel = crowd(|b| {
        let (warp, thread) = (b.special(Special::Warp), b.special(Special::Thread));
        b.if_(warp.eq(1), || {
            b.print("warp", warp);
            b.if_((thread & 31).lt(2), || b.print("half", thread.to_f32() * 0.5));
        });
        b.sync_cta();
        b.assert(thread.ne(70), "no thread has number 70");
    });
    let failed = report(&kernel, Schedule::round_robin());
    let lines = lines(&failed);
    assert_eq!(lines[0], "Assertion: no thread has number 70: this does not hold");
    assert_eq!(lines[1], "cluster 0 CTA 0 warp 2 lane 6 asserts it");
    assert!(lines[2].contains("reports.rs"), "{lines:?}");

    let kernel = crowd(|b| {
        let (warp, thread) = (b.special(Special::Warp), b.special(Special::Thread));
        b.if_(warp.eq(1), || {
            b.print("warp", warp);
            b.if_((thread & 31).lt(2), || b.print("half", thread.to_f32() * 0.5));
        });
        b.assert(thread.lt(1024), "a CTA has 1024 threads");
    });
    let launch = Launch { grid: [1, 1, 1], arguments: vec![] };
    let options = Options { echo: false, ..Options::default() };
    let mut memory = Memory::new();
    let statistics = Emulator::new(&kernel, &launch, &mut memory, options).unwrap().run().unwrap();
    let [first, second] = &statistics.printed[..] else { panic!("{:?}", statistics.printed) };
    assert!(first.ends_with(": warp = 1 in 32 lanes (cluster 0 CTA 0 warp 1)"), "{first}");
    assert!(first.contains("reports.rs:"), "{first}");
    let half = ": half = 16 in lane 0, 16.5 in lane 1 (cluster 0 CTA 0 warp 1)";
    assert!(second.ends_with(half), "{second}");
}

#[test]
fn bank_conflicts_are_counted_by_line() {
    let line = line!();
    let kernel = crowd(|b| {
        let region =
            b.region("tile", RegionKind::Data(Element::F32), SmemRequest::whole(36864, 16));
        let (tile, thread) = (b.smem_address(region), b.special(Special::Thread));
        b.store_shared(tile.offset(thread * 4 + 32768), [thread]);
        b.store_shared(tile.offset(thread * 32), [thread]);
    });
    let launch = Launch { grid: [1, 1, 1], arguments: vec![] };
    let mut memory = Memory::new();
    let emulator = Emulator::new(&kernel, &launch, &mut memory, Options::default()).unwrap();
    let statistics = emulator.run().unwrap();
    // Each of 32 warps stores once in a line. Eight lanes of the second store share a bank.
    let counts: Vec<_> = statistics
        .shared_accesses
        .iter()
        .map(|own| (own.line, own.accesses, own.wavefronts, own.ideal))
        .collect();
    assert_eq!(counts, [(line + 5, 32, 32, 32), (line + 6, 32, 256, 32)]);
    let [worst] = statistics.bank_conflicts()[..] else { panic!("one line has conflicts") };
    let text = worst.to_string();
    let end = ": 32 accesses to shared memory take 256 wavefronts, and 32 without bank conflicts";
    assert!(text.contains("reports.rs:") && text.ends_with(end), "{text}");
}

//! Rules of control flow: uniformity, wgmma order, bulk groups.

use super::{BOUNDS, Rule, accepts, copy, mma, rejects, simple, violations};

/// An operation under control flow that depends on each kind of value.
fn under(condition: &str, op: &str) -> String {
    simple(&format!(
        "%0: u32 = const.u32 64
         %1: u32 = const.u32 5
         %2: u32 = const.u32 7
         {condition}
         if %9 {{ {op}\n yield }} {{ yield }}"
    ))
    .replace("1 warpgroups", "3 warpgroups")
}

#[test]
fn uniformity_of_conditions() {
    let thread = "%3: u32 = special.thread\n%9: bool = eq %3, %0";
    let warp = "%3: u32 = special.warp\n%9: bool = eq %3, %1";
    let warpgroup = "%3: u32 = special.warpgroup\n%9: bool = eq %3, %1";
    let cta = "%3: u32 = special.cta\n%9: bool = eq %3, %1";
    for condition in [warp, warpgroup, cta] {
        accepts(&under(condition, "cluster_wait"));
    }
    for condition in [warpgroup, cta] {
        accepts(&under(condition, "wgmma_fence"));
    }
    for condition in [thread, warp, warpgroup, cta] {
        accepts(&under(condition, "fence_mbarrier_init"));
    }
    let rejects = |condition: &str, op: &str, words: &str| {
        rejects(&under(condition, op), Rule::Uniformity, words);
    };
    rejects(thread, "cluster_wait", "all threads of a warp execute");
    rejects(thread, "wgmma_fence", "from thread to thread");
    rejects(warp, "wgmma_fence", "from warp to warp");
    rejects("%9: bool = elect", "%4: bool = elect", "all threads of a warp execute");
    rejects(
        "%3: smem = smem_address[region0]
         %4: u32 = load.shared.u32.weak.cta[vector=1] %3
         %9: bool = eq %4, %0",
        "barrier_sync[threads=128] %1",
        "all threads of a warp execute",
    );
    let element = "%3: u64 = param[param0]\n%4: f32 = load_element.f16 %3\n%9: bool = eq %4, %4";
    rejects(element, "barrier_sync[threads=128] %1", "all threads of a warp execute");
    for op in ["%5: f32 = load_element.bf16 %3", "store_element.bf16 %3, %4"] {
        accepts(&under(element, op));
    }
    // The threads may read the clock at different times.
    let clock = "%3: u64 = clock\n%4: u64 = const.u64 5\n%9: bool = lt %3, %4";
    rejects(clock, "barrier_sync[threads=128] %1", "all threads of a warp execute");
    for op in ["sleep %1", "fence_map_release.gpu", "%5: map = map_at %4\nfence_map_acquire.gpu %5"]
    {
        accepts(&under(clock, op));
    }
    rejects(
        "%3: f32 = acc_get[acc0, 0]\n%9: bool = eq %3, %3",
        "barrier_sync[threads=128] %1",
        "all threads of a warp execute",
    );
}

#[test]
fn uniformity_of_thread_counts() {
    // thread / 32, thread >> 7, warp / 4, thread < 64 and similar values are recognised as uniform.
    let quotients = [
        ("%3: u32 = special.thread\n%4: u32 = shr %3, %1\n%9: bool = eq %4, %0", true, false),
        ("%3: u32 = special.thread\n%4: u32 = shr %3, %2\n%9: bool = eq %4, %0", true, true),
        ("%3: u32 = special.thread\n%9: bool = lt %3, %0", true, false),
        ("%3: u32 = special.thread\n%9: bool = lt %3, %1", false, false),
        ("%3: u32 = special.thread\n%9: bool = le %3, %0", false, false),
        ("%3: u32 = special.thread\n%9: bool = ge %0, %3", false, false),
        ("%3: u32 = special.thread\n%9: bool = gt %0, %3", true, false),
        ("%3: u32 = special.thread\n%4: u32 = and %3, %0\n%9: bool = eq %4, %0", true, false),
        ("%3: u32 = special.warp\n%4: u32 = div %3, %0\n%9: bool = eq %4, %0", true, true),
        ("%3: u32 = special.warp\n%9: bool = lt %3, %0", true, true),
        ("%3: u32 = special.warp\n%9: bool = lt %3, %1", true, false),
        // Steps and limits of 16 threads differ within a warp, those of 48 or 96 within a warp or a
        // warpgroup.
        (
            "%3: u32 = special.thread\n%4: u32 = const.u32 4\n%5: u32 = shr %3, %4\n\
             %9: bool = eq %5, %0",
            false,
            false,
        ),
        ("%3: u32 = special.thread\n%4: u32 = const.u32 16\n%9: bool = lt %3, %4", false, false),
        ("%3: u32 = special.thread\n%4: u32 = const.u32 48\n%9: bool = lt %3, %4", false, false),
        ("%3: u32 = special.thread\n%4: u32 = const.u32 96\n%9: bool = lt %3, %4", true, false),
        (
            "%3: u32 = special.thread\n%4: u32 = const.u32 16\n%5: u32 = div %3, %4\n\
             %9: bool = eq %5, %0",
            false,
            false,
        ),
    ];
    for (condition, warp, warpgroup) in quotients {
        for (op, fine) in [("cluster_wait", warp), ("wgmma_fence", warpgroup)] {
            let found = violations(&under(condition, op));
            assert_eq!(found.is_empty(), fine, "{condition} around {op}: {found:#?}");
        }
    }
}

#[test]
fn uniformity_through_loops_and_joins() {
    // A value that differs between threads reaches the loop bound in the second iteration only.
    let carried = |next: &str| {
        simple(&format!(
            "{BOUNDS}
             %4: u32 = special.lane
             %5: u32 = for %0, %1, %2, %1 (%6: u32, %7: u32) {{
                 for %0, %7, %2 (%8: u32) {{
                     cluster_wait
                     yield
                 }}
                 yield {next}
             }}"
        ))
    };
    accepts(&carried("%6"));
    rejects(&carried("%4"), Rule::Uniformity, "all threads of a warp execute");
    // The results of an `if` are at most as uniform as its condition.
    let join = |condition: &str| {
        simple(&format!(
            "{BOUNDS}{condition}
             %5: u32 = if %4 {{ yield %0 }} {{ yield %1 }}
             %6: bool = eq %5, %0
             if %6 {{ cluster_wait\n yield }} {{ yield }}"
        ))
    };
    accepts(&join("%7: u32 = special.warp\n%4: bool = eq %7, %0"));
    rejects(&join("%4: bool = elect"), Rule::Uniformity, "all threads of a warp execute");
    // Threads that leave a loop in different iterations carry different values out.
    let rounds = |bound: &str| {
        simple(&format!(
            "{BOUNDS}%4: u32 = special.{bound}
             %5: u32 = while %0 (%6: u32) {{
                 %7: bool = lt %6, %4
                 yield %7
             }} (%8: u32) {{
                 %9: u32 = add %8, %2
                 yield %9
             }}
             %10: bool = eq %5, %0
             if %10 {{ cluster_wait\n yield }} {{ yield }}"
        ))
    };
    accepts(&rounds("cta"));
    rejects(&rounds("lane"), Rule::Uniformity, "all threads of a warp execute");
}

/// One thread takes a number from a counter and passes it on through shared memory. All threads
/// branch on it.
#[test]
fn a_number_drawn_by_one_thread_is_uniform_after_a_shuffle() {
    let drawn = |condition: &str| {
        simple(&format!(
            "{BOUNDS}%4: smem = smem_address[region0]
             %5: u64 = param[param0]
             %6: u32 = special.thread
             %7: bool = eq %6, %0
             if %7 {{
                 %8: u32 = atomic.add.global.acquire_release.gpu %5, %2
                 store.shared.u32.weak.cta[vector=1] %4, %8
                 yield
             }} {{ yield }}
             barrier_sync[threads=128] %0
             %9: u32 = load.shared.u32.weak.cta[vector=1] %4
             %10: u32 = shuffle_first %9
             %11: bool = eq {condition}, %1
             if %11 {{
                 %12: u32 = while %0 (%13: u32) {{
                     %14: bool = lt %13, %10
                     yield %14
                 }} (%15: u32) {{
                     barrier_sync[threads=128] %2
                     %16: b32 = load_matrix[count=1] %4
                     store_matrix[count=1] %4, %16
                     %17: u32 = add %15, %2
                     yield %17
                 }}
                 yield
             }} {{ yield }}"
        ))
    };
    accepts(&drawn("%10"));
    let found = super::violations(&drawn("%9"));
    assert!(!found.is_empty() && found.iter().all(|violation| violation.rule == Rule::Uniformity));
    // Other warps may have other values, so the result is not uniform in the warpgroup. The shuffle
    // itself needs its whole warp.
    let after = |shuffled: &str, op: &str| {
        simple(&format!(
            "{BOUNDS}%4: u32 = special.lane\n%5: u32 = shuffle_first {shuffled}
             %6: bool = eq %5, %0\nif %6 {{ {op}\n yield }} {{ yield }}"
        ))
    };
    accepts(&after("%4", "warp_sync"));
    accepts(&after("%0", "wgmma_fence"));
    rejects(&after("%4", "wgmma_fence"), Rule::Uniformity, "all threads of a warpgroup execute");
    for op in ["warp_sync", "%6: u32 = shuffle_first %0"] {
        let divergent = format!("{BOUNDS}%5: bool = elect\nif %5 {{ {op}\n yield }} {{ yield }}");
        rejects(&simple(&divergent), Rule::Uniformity, "all threads of a warp execute");
    }
}

const MMA: &str = "wgmma.bf16.k.bf16.k[acc0, n=128] %0, %1, %2\n";
const OTHER_MMA: &str = "wgmma.bf16.k.bf16.k[acc1, n=64] %0, %1, %2\n";

/// A loop that runs `count` times around a body.
fn repeated(count: &str, body: &str) -> String {
    mma(&format!(
        "%20: u32 = const.u32 0\n%21: u32 = {count}\n%22: u32 = const.u32 1
         for %20, %21, %22 (%23: u32) {{
             {body}
             yield
         }}
         wgmma_wait[pending=0]
         %24: f32 = acc_get[acc0, 0]"
    ))
}

#[test]
fn wgmma_fences() {
    let wait = "wgmma_wait[pending=0]\n";
    accepts(&mma(&format!("wgmma_fence\n{MMA}{OTHER_MMA}wgmma_commit\n{wait}")));
    rejects(&mma(&format!("{MMA}wgmma_commit\n{wait}")), Rule::WgmmaFence, "put one before");
    rejects(
        &mma(&format!("wgmma_fence\n{MMA}wgmma_commit\n{MMA}wgmma_commit\n{wait}")),
        Rule::WgmmaFence,
        "since the last commit",
    );
    let read = "%30: f32 = acc_get[acc0, 0]\n";
    accepts(&mma(&format!("wgmma_fence\n{read}{OTHER_MMA}wgmma_commit\n{wait}")));
    rejects(
        &mma(&format!("wgmma_fence\n{read}{MMA}wgmma_commit\n{wait}")),
        Rule::WgmmaFence,
        "read or write of acc0",
    );
    // The fence before the loop holds for the first iteration only.
    let body = format!("{MMA}wgmma_commit");
    let cta = "special.cta";
    accepts(&repeated(cta, &format!("wgmma_fence\n{body}")));
    rejects(
        &repeated(cta, &body).replace("for %20", "wgmma_fence\nfor %20"),
        Rule::WgmmaFence,
        "on every path",
    );
    // A fence on one side of a branch does not count.
    let branch = |other: &str| {
        mma(&format!(
            "if %2 {{ wgmma_fence\n yield }} {{ {other}\n yield }}\n{MMA}wgmma_commit\n{wait}"
        ))
    };
    accepts(&branch("wgmma_fence"));
    rejects(&branch(""), Rule::WgmmaFence, "on every path");
    // A fence in a loop counts only if the loop runs at least once.
    let looped = |count: &str| {
        repeated(count, "wgmma_fence")
            .replace("wgmma_wait", &format!("{MMA}wgmma_commit\nwgmma_wait"))
    };
    accepts(&looped("const.u32 2"));
    rejects(&looped("special.cta"), Rule::WgmmaFence, "on every path");
}

#[test]
fn wgmma_commits() {
    accepts(&mma(&format!("wgmma_fence\n{MMA}wgmma_commit\nwgmma_wait[pending=0]")));
    let end = "wgmma_commit\nwgmma_wait[pending=0]";
    rejects(
        &mma(&format!("wgmma_fence\n{MMA}wgmma_wait[pending=0]\n{end}")),
        Rule::WgmmaCommit,
        "not committed",
    );
    rejects(&mma(&format!("wgmma_fence\n{MMA}")), Rule::WgmmaCommit, "the kernel ends");
}

#[test]
fn accumulators_in_flight() {
    let batch = format!("wgmma_fence\n{MMA}wgmma_commit\n");
    let other = format!("wgmma_fence\n{OTHER_MMA}wgmma_commit\n");
    let wait = |pending: u32| format!("wgmma_wait[pending={pending}]\n");
    let read = "%30: f32 = acc_get[acc0, 0]\n";
    accepts(&mma(&format!("{batch}{other}{}{read}{}", wait(1), wait(0))));
    rejects(
        &mma(&format!("{other}{batch}{}{read}{}", wait(1), wait(0))),
        Rule::InFlight,
        "acc0 is read",
    );
    rejects(&mma(&format!("{batch}{read}{}", wait(0))), Rule::InFlight, "acc0 is read");
    rejects(&mma(&batch), Rule::InFlight, "wait for 0 groups");
    rejects(&mma(&format!("{batch}{}", wait(1))), Rule::InFlight, "wait for 0 groups");
    // One batch stays in flight around the loop. A read in the next iteration is reported.
    let pipelined = format!("{batch}{}", wait(1));
    accepts(&repeated("special.cta", &pipelined));
    rejects(&repeated("special.cta", &format!("{read}{pipelined}")), Rule::InFlight, "acc0");
    // Several batches in flight need a wait for all of them.
    accepts(&repeated("special.cta", &batch));
    rejects(
        &repeated("special.cta", &batch)
            .replace("pending=0", "pending=7")
            .replace("acc_get[acc0, 0]", "acc_get[acc0, 0]\nwgmma_wait[pending=0]"),
        Rule::InFlight,
        "acc0 is read",
    );
}

/// Waits that leave batches on other accumulator sets in flight.
#[test]
fn partial_waits_with_several_sets() {
    let batch = |instructions: &str| format!("wgmma_fence\n{instructions}wgmma_commit\n");
    let (first, second) = (batch(MMA), batch(OTHER_MMA));
    let both = batch(&format!("{MMA}{OTHER_MMA}"));
    let wait = |pending: u32| format!("wgmma_wait[pending={pending}]\n");
    let get = |acc: u32| format!("%3{acc}: f32 = acc_get[acc{acc}, 0]\n");
    let (gets_first, gets_second) = (get(0), get(1));
    let done = wait(0);
    // Batches complete in order, whichever set they write.
    for (body, broken) in [
        (format!("{first}{second}{}{gets_first}{done}{gets_second}", wait(1)), None),
        (format!("{first}{second}{}{gets_second}{done}", wait(1)), Some("acc1 is read")),
        (format!("{first}{second}{first}{}{gets_second}{done}", wait(1)), None),
        (format!("{first}{second}{first}{}{gets_first}{done}", wait(1)), Some("acc0 is read")),
        (format!("{first}{second}{first}{}{gets_second}{done}", wait(2)), Some("acc1 is read")),
        // A batch on both sets.
        (format!("{both}{}{gets_first}{done}", wait(1)), Some("acc0 is read")),
        (format!("{both}{first}{}{gets_second}{done}", wait(1)), None),
        (format!("{both}{second}{}{gets_first}{done}", wait(1)), None),
        (format!("{both}{second}{}{gets_second}{done}", wait(1)), Some("acc1 is read")),
    ] {
        match broken {
            None => accepts(&mma(&body)),
            Some(words) => rejects(&mma(&body), Rule::InFlight, words),
        }
    }
    // Each iteration leaves the batch on the second set in flight and reads the first set.
    let alternates = |reads: &str| format!("{first}{second}{}{reads}", wait(1));
    accepts(&repeated("special.cta", &alternates(&gets_first)));
    rejects(&repeated("special.cta", &alternates(&gets_second)), Rule::InFlight, "acc1");
    // One side of a branch adds a batch. A wait that leaves one batch may leave either in flight.
    let branch = |reads: &str| {
        mma(&format!("{first}if %2 {{ {second} yield }} {{ yield }}\n{}{reads}{done}", wait(1)))
    };
    rejects(&branch(&gets_first), Rule::InFlight, "acc0");
    rejects(&branch(&gets_second), Rule::InFlight, "acc1");
}

#[test]
fn accumulators_are_written_by_idle_warpgroups() {
    let batch = format!("wgmma_fence\n{MMA}wgmma_commit\n");
    let wait = "wgmma_wait[pending=0]\n";
    let set = "%40: f32 = const.f32 0\nacc_set[acc0, 3] %40\n";
    accepts(&mma(&format!("{set}{batch}{wait}")));
    accepts(&mma(&format!("{batch}{wait}{set}")));
    rejects(&mma(&format!("{batch}{set}{wait}")), Rule::InFlight, "acc0 is written while");
    rejects(
        &mma(&format!("wgmma_fence\n{set}{MMA}wgmma_commit\n{wait}")),
        Rule::WgmmaFence,
        "read or write of acc0",
    );
    // A write of acc0 needs no fence before a batch on acc1 only.
    accepts(&mma(&format!("wgmma_fence\n{set}{OTHER_MMA}wgmma_commit\n{wait}")));
    // A write at the end of an iteration lacks a fence before the batch of the next iteration.
    let looped = |body: &str| repeated("special.cta", &format!("{body}{MMA}wgmma_commit\n{wait}"));
    accepts(&looped(&format!("{set}wgmma_fence\n")));
    rejects(&looped(&format!("wgmma_fence\n{set}")), Rule::WgmmaFence, "put one before");
}

#[test]
fn roles_end_with_nothing_in_flight() {
    let roles = |end: &str| {
        mma(&format!(
            "roles[role0, role1] {{ wgmma_fence\n{MMA}wgmma_commit\n{end}\n yield }} {{ yield }}"
        ))
        .replace(
            "128 registers\nregion0",
            "128 registers\nrole1 = \"other\": 1 warpgroups, 24 registers\nregion0",
        )
    };
    accepts(&roles("wgmma_wait[pending=0]"));
    rejects(&roles(""), Rule::InFlight, "the role may end");
}

#[test]
fn register_fragments() {
    let instruction = "wgmma.bf16.registers.bf16.k[acc0, n=128] %31, %32, %33, %34, %1, %2\n";
    let load = "%31: b32, %32: b32, %33: b32, %34: b32 = load_matrix[count=4] %90\n";
    let wait = "wgmma_wait[pending=0]\n";
    let read = "store_matrix[count=1] %90, %31\n";
    accepts(&mma(&format!("{load}wgmma_fence\n{instruction}wgmma_commit\n{wait}{read}")));
    rejects(
        &mma(&format!("{load}wgmma_fence\n{instruction}wgmma_commit\n{read}{wait}")),
        Rule::InFlight,
        "%4 is read while",
    );
    let late = violations(&mma(&format!("wgmma_fence\n{load}{instruction}wgmma_commit\n{wait}")));
    assert_eq!(late.len(), 4);
    assert!(late.iter().all(|violation| violation.rule == Rule::WgmmaFence), "{late:#?}");
    // The next iteration writes the registers that the batch of this iteration still reads.
    let body = |wait: u32| {
        format!("{load}wgmma_fence\n{instruction}wgmma_commit\nwgmma_wait[pending={wait}]")
    };
    accepts(&repeated("special.cta", &body(0)));
    let overwritten = violations(&repeated("special.cta", &body(1)));
    assert_eq!(overwritten.len(), 4, "{overwritten:#?}");
    assert!(overwritten.iter().all(|violation| violation.rule == Rule::InFlight));
}

#[test]
fn bulk_groups() {
    let store = "tma_store[rank=2] %3, %0, %2, %2\n";
    let elected =
        |body: &str| format!("%8: bool = elect\nif %8 {{ {body}\n yield }} {{ yield }}\n");
    accepts(&copy(&elected(&format!("{store}bulk_commit\nbulk_wait.read[pending=0]"))));
    rejects(&copy(&elected(store)), Rule::BulkGroups, "no bulk commit");
    rejects(
        &copy(&elected(&format!("{store}bulk_commit\nbulk_wait[pending=1]"))),
        Rule::BulkGroups,
        "no wait for all",
    );
    rejects(
        &copy(&elected(&format!("{store}bulk_wait[pending=0]\nbulk_commit\nbulk_wait[pending=0]"))),
        Rule::BulkGroups,
        "not committed",
    );
    // The wait of the next iteration can follow.
    let looped = |body: &str| {
        copy(&format!(
            "%5: u32 = const.u32 1
             for %2, %5, %5 (%6: u32) {{ {}\n yield }}",
            elected(body)
        ))
    };
    accepts(&looped(&format!("bulk_wait.read[pending=0]\n{store}bulk_commit")));
    rejects(
        &looped(&format!("bulk_wait.read[pending=1]\n{store}bulk_commit")),
        Rule::BulkGroups,
        "no wait for all",
    );
}

/// Each loop is repeated until its state is stable, so the time doubled with each one inside
/// another.
#[test]
fn many_loops_inside_each_other_are_refused() {
    let nest = |depth: usize| {
        let mut code = String::from("%0: u32 = const.u32 4\n%1: u32 = const.u32 1\n");
        for index in 2..2 + depth {
            let begin = format!("for %0, %0, %1 (%{index}: u32) {{");
            code += &format!("{begin}\nwgmma_wait[pending=0]\nwgmma_fence\n");
        }
        code += &"wgmma_commit\nyield }\n".repeat(depth);
        simple(&code)
    };
    accepts(&nest(4));
    rejects(&nest(60), Rule::InFlight, "the loops inside each other are too many");
}

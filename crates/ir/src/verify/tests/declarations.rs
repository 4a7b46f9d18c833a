//! Rules about declarations: names, roles, budgets, regions, the cluster.

use super::{Rule, accepts, mma, rejects, simple, violations};

#[test]
fn names() {
    accepts(&simple("").replace("\"out\"", "\"out$_2\""));
    rejects(&simple("").replace("\"out\"", "\"$out_2\""), Rule::Names, "'$out_2'");
    rejects(&simple("").replace("\"out\"", "\"2out\""), Rule::Names, "'2out'");
    rejects(&simple("").replace("\"test\"", "\"a b\""), Rule::Names, "kernel name 'a b'");
    rejects(&simple("").replace("\"out\"", "\"map\""), Rule::Names, "two parameters");
    rejects(&simple("").replace("\"full\"", "\"tile\""), Rule::Names, "two regions");
    // PTX would have two things of one name.
    let kernel = simple("").replace("\"out\"", "\"test\"");
    rejects(&kernel, Rule::Names, "a parameter is called 'test', as the kernel is");
    let shared = simple("").replace("\"out\"", "\"smem\"");
    rejects(&shared, Rule::Names, "a parameter is called 'smem', as all shared memory is");
    // A region and a parameter may share a name: reports say which of the two they mean.
    accepts(&simple("").replace("\"full\"", "\"map\""));
}

#[test]
fn parameters_fit_into_the_launch() {
    let maps = |count: usize| {
        let params: String = (0..count)
            .map(|i| format!("param{i} = \"p{i}\": tensor_map bf16 [64] unswizzled\n"))
            .collect();
        format!("kernel \"k\", cluster 1\n{params}role0 = \"r\": 1 warpgroups, 64 registers\n{{ }}")
    };
    accepts(&maps(255));
    rejects(&maps(256), Rule::Names, "32768 bytes: a launch has 32764");
}

#[test]
fn scalar_parameters() {
    accepts(&simple("").replace("\"out\": u64", "\"out\": f32"));
    rejects(&simple("").replace("\"out\": u64", "\"out\": s32"), Rule::Attributes, "is s32");
}

#[test]
fn accumulators() {
    accepts(&simple("").replace("acc0 = f32, 64", "acc0 = s32, 128"));
    rejects(&simple("").replace("acc0 = f32, 64", "acc0 = u32, 64"), Rule::WgmmaShape, "u32");
    rejects(&simple("").replace("acc0 = f32, 64", "acc0 = f32, 130"), Rule::WgmmaShape, "130");
    accepts(&simple("").replace("acc0 = f32, 64", "acc0 = b32, 2"));
    rejects(
        &simple("").replace("acc0 = f32, 64", "acc0 = b32, 66"),
        Rule::WgmmaShape,
        "n / 4 of b32",
    );
}

/// Three warpgroups in two roles.
fn roles(body: &str) -> String {
    simple(body).replace(
        "role0 = \"all\": 1 warpgroups, 128 registers",
        "role0 = \"producer\": 1 warpgroups, 40 registers
role1 = \"consumer\": 2 warpgroups, 232 registers",
    )
}

#[test]
fn named_barriers() {
    let zero = "%0: u32 = const.u32 1\n";
    accepts(&simple(&format!("{zero}barrier_sync[threads=96] %0")));
    let rejects = |text: &str, words: &str| rejects(text, Rule::NamedBarriers, words);
    rejects(
        &simple(&format!("{zero}barrier_sync[threads=96] %0\nbarrier_sync[threads=160] %0")),
        "a barrier of 160 threads: use at most the CTA's 128",
    );
    rejects(
        &simple("%0: u32 = special.cta\nbarrier_arrive[threads=160] %0"),
        "a barrier of 160 threads",
    );
    rejects(
        &simple("%0: u32 = const.u32 16\nbarrier_sync[threads=128] %0"),
        "named barrier 16: a CTA has 0 to 15",
    );
    let used = |outside: &str, producer: &str, consumer: &str| {
        roles(&format!(
            "{zero}{outside} roles[role0, role1] {{ {producer}\n yield }} {{ {consumer}\n yield }}"
        ))
    };
    let sync = |threads: u32| format!("barrier_sync[threads={threads}] %0\n");
    let arrive = |threads: u32| format!("barrier_arrive[threads={threads}] %0\n");
    accepts(&used("", "", &sync(256)));
    accepts(&used("", &arrive(384), &sync(384)));
    accepts(&used(&sync(384), "", ""));
    rejects(&used("", &sync(256), ""), "for 256 threads, but only the 128 of producer use it");
    rejects(&used("", "", &sync(384)), "only the 256 of consumer");
    // A use of another barrier does not help. A number that is known only at run time may be
    // this barrier's.
    let other = |number: &str| {
        used(&format!("%9: u32 = {number}\n"), &arrive(128).replace("%0", "%9"), &sync(384))
    };
    rejects(&other("const.u32 2"), "named barrier 1 is for 384 threads, but only the 256");
    accepts(&other("special.cta"));
}

#[test]
fn role_lists() {
    accepts(&roles("roles[role0, role1] { yield } { yield }"));
    accepts(&roles("roles[role1] { yield }"));
    rejects(
        &roles("roles[role0, role1] { yield } { yield }\nroles[role0] { yield }"),
        Rule::Roles,
        "a second time",
    );
    rejects(&roles("roles[role1, role1] { yield } { yield }"), Rule::Roles, "listed twice");
    rejects(
        &roles("%0: bool = const.bool true\nif %0 { roles[role0] { yield }\n yield } { yield }"),
        Rule::Roles,
        "nested block",
    );
    rejects(&roles("").replace("\"consumer\"", "\"producer\""), Rule::Names, "two roles");
    let none = simple("").replace("role0 = \"all\": 1 warpgroups, 128 registers\n", "");
    rejects(&none, Rule::Roles, "no role is declared");
    rejects(&simple("").replace("1 warpgroups", "0 warpgroups"), Rule::Roles, "no warpgroups");
    let many = simple("").replace("1 warpgroups, 128", "9 warpgroups, 24");
    rejects(&many, Rule::Roles, "1152 threads");
    let huge = simple("").replace("1 warpgroups, 128", "4294967295 warpgroups, 24");
    let found = violations(&huge);
    assert_eq!(found.iter().map(|v| v.rule).collect::<Vec<_>>(), [Rule::Roles, Rule::Registers]);
}

#[test]
fn lowered_roles() {
    let lowered = |producer: &str, consumer: &str| {
        roles(&format!(
            "%0: u32 = special.warpgroup\n%1: u32 = const.u32 1\n%2: bool = lt %0, %1
             if %2 {{ {producer}\n yield }} {{ {consumer}\n yield }}"
        ))
    };
    let (down, up) =
        ("set_max_registers.decrease[count=40]", "set_max_registers.increase[count=232]");
    accepts(&lowered(down, up));
    rejects(
        &lowered("set_max_registers.increase[count=40]", up),
        Rule::Registers,
        "raised from 168 to 40",
    );
    rejects(
        &lowered(down, "set_max_registers.decrease[count=232]"),
        Rule::Registers,
        "lowered from 168 to 232",
    );
    rejects(&lowered("set_max_registers.decrease[count=36]", up), Rule::Attributes, "count is 36");
    rejects(&roles(&format!("{up}\nroles[role0] {{ yield }}")), Rule::Roles, "next to roles");
    rejects(
        &roles(&format!("%0: u32 = const.u32 1\nfor %0, %0, %0 (%1: u32) {{ {up}\n yield }}")),
        Rule::Roles,
        "in a loop",
    );
}

#[test]
fn register_budgets() {
    accepts(&roles(""));
    rejects(
        &roles("").replace("232", "240"),
        Rule::Registers,
        "1 × 128 × 40 + 2 × 128 × 240 = 66560 registers: an SM has 65536, 1024 fewer",
    );
    rejects(&roles("").replace("40 reg", "20 reg"), Rule::Registers, "'producer' has 20");
    rejects(&roles("").replace("40 reg", "44 reg"), Rule::Registers, "'producer' has 44");
    // 208 accumulators fit 232, 216 do not.
    let uses = |registers: u32| {
        roles(
            "roles[role1] {
                 %0: f32 = acc_get[acc0, 0]
                 %1: f32 = acc_get[acc1, 0]
                 yield
             }",
        )
        .replace("f32, 64 registers", &format!("f32, {registers} registers"))
        .replace("f32, 32 registers", "f32, 104 registers")
    };
    accepts(&uses(104));
    rejects(&uses(112), Rule::Registers, "216 accumulators and needs 24 more");
    // The accumulators of m64n256 on four warpgroups exceed the registers at entry.
    let wide = |roles: &str| {
        mma("wgmma_fence
             wgmma.bf16.k.bf16.k[acc0, n=256] %0, %1, %2
             wgmma_commit
             wgmma_wait[pending=0]")
        .replace("f32, 64 registers", "f32, 128 registers")
        .replace("1 warpgroups, 128", roles)
    };
    accepts(&wide("3 warpgroups, 168"));
    rejects(&wide("4 warpgroups, 128"), Rule::Registers, "128 + 26 registers");
}

#[test]
fn regions() {
    accepts(&simple(""));
    let region = |old: &str, new: &str| simple("").replace(old, new);
    let rejects = |text: &str, words: &str| rejects(text, Rule::SharedMemory, words);
    rejects(
        &region("offset 0,", "offset 512,").replace("16384, bytes 32", "20480, bytes 32"),
        "starts at byte 512: it is aligned to 1024",
    );
    rejects(&region("align 1024", "align 2048"), "alignment 2048");
    rejects(&region("align 1024", "align 96"), "alignment 96");
    rejects(&region("bytes 32,", "bytes 0,"), "is empty");
    rejects(&region("bytes 32,", "bytes 12,"), "multiples of 8");
    rejects(&region("offset 16384", "offset 16376"), "overlap region 'tile' (0..16384)");
    rejects(&region("offset 16384", "offset 232440"), "ends at byte 232472: a CTA has 232448, 24");
    rejects(&region("offset 16384", "offset 4294967288"), "ends at byte 4294967320");
    // Data regions may share bytes. The kernel's author plans their lifetimes.
    accepts(
        &simple("").replace(
            "acc0 =",
            "region2 = \"epilogue\": f32 offset 0, bytes 1024, align 1024\nacc0 =",
        ),
    );
    rejects(
        &simple("")
            .replace("acc0 =", "region2 = \"b\": mbarrier offset 16400, bytes 8, align 8\nacc0 ="),
        "mbarriers of region 'full' (bytes 16384..16416) overlap region 'b'",
    );
}

#[test]
fn ctas_per_sm() {
    let several = |text: &str, ctas: u32| {
        text.replace("cluster 1\n", &format!("cluster 1, ctas_per_sm {ctas}\n"))
    };
    // 128 threads of 128 registers, 16 416 bytes.
    accepts(&several(&simple(""), 4));
    rejects(
        &several(&simple(""), 5),
        Rule::Registers,
        "16384 registers: each of 5 CTAs on an SM has 13107, 3277 fewer",
    );
    accepts(&several(&simple("").replace("128 registers", "64 registers"), 8));
    for ctas in [0, 17, u32::MAX] {
        rejects(&several(&simple(""), ctas), Rule::Residency, "declare 1 to 16");
    }
    let crowded = simple("").replace("1 warpgroups, 128", "3 warpgroups, 24");
    accepts(&several(&crowded, 5));
    rejects(&several(&crowded, 6), Rule::Residency, "384 threads are 2304 on an SM");
    // All threads that an SM holds.
    accepts(&several(&simple("").replace("1 warpgroups, 128", "4 warpgroups, 24"), 4));
    // The rule does not check whether shared memory has room for both.
    accepts(&several(&simple("").replace("bytes 32,", "bytes 120000,"), 2));
    // The registers at entry are halved, too.
    let lowered = |count: u32| {
        let text = roles(&format!("set_max_registers.decrease[count={count}]"));
        several(&text.replace("232 registers", "104 registers"), 2)
    };
    accepts(&lowered(80));
    rejects(&lowered(88), Rule::Registers, "lowered from 80 to 88");
    let wgmma = |n: u32| {
        let text = mma(&format!(
            "wgmma_fence\nwgmma.bf16.k.bf16.k[acc0, n={n}] %0, %1, %2\nwgmma_commit
             wgmma_wait[pending=0]"
        ));
        let text = text.replace("f32, 64 registers", &format!("f32, {} registers", n / 2));
        several(&text.replace("1 warpgroups, 128", "3 warpgroups, 80"), 2)
    };
    accepts(&wgmma(104));
    rejects(&wgmma(112), Rule::Registers, "384 threads, 2 CTAs per SM, gives 80 to each");
}

#[test]
fn cluster() {
    accepts(&simple("").replace("cluster 1", "cluster 8"));
    rejects(&simple("").replace("cluster 1", "cluster 0"), Rule::Cluster, "0 CTAs");
    rejects(&simple("").replace("cluster 1", "cluster 16"), Rule::Cluster, "16 CTAs");
}

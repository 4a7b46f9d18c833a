//! One accepted and at least one rejected kernel for each rule. Kernels are in the text form.

use super::{Rule, verify};
use crate::text::parse;

/// A kernel of one warpgroup with some declarations to use.
fn simple(body: &str) -> String {
    format!(
        r#"kernel "test", cluster 1
param0 = "out": u64
param1 = "map": tensor_map bf16 [64, 64] b128
role0 = "all": 1 warpgroups, 128 registers
region0 = "tile": bf16 offset 0, bytes 16384, align 1024
region1 = "full": mbarrier offset 16384, bytes 32, align 8
acc0 = f32, 64 registers
acc1 = f32, 32 registers
{{
{body}
}}
"#
    )
}

/// The same with operands for wgmma: `%0`, `%1` descriptors, `%2` true.
fn mma(body: &str) -> String {
    simple(&format!(
        "%90: smem = smem_address[region0]
         %0: desc = descriptor.b128[leading=0, stride=1024] %90
         %1: desc = descriptor_advance[bytes=8192] %0
         %2: bool = const.bool true
         {body}"
    ))
}

/// Numbers the values of a test text without gaps, so that fragments can choose their own.
fn dense(text: &str) -> String {
    let mut numbers = Vec::new();
    let mut out = String::new();
    let mut rest = text;
    while let Some(position) = rest.find('%') {
        let (before, after) = rest.split_at(position + 1);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let name = &after[..digits];
        let index = numbers.iter().position(|known| *known == name).unwrap_or_else(|| {
            numbers.push(name);
            numbers.len() - 1
        });
        out.push_str(before);
        out.push_str(&index.to_string());
        rest = &after[digits..];
    }
    out.push_str(rest);
    out
}

fn violations(text: &str) -> Vec<super::Violation> {
    let kernel = parse(&dense(text)).unwrap_or_else(|error| panic!("{error}\n{text}"));
    verify(&kernel).err().map_or_else(Vec::new, |error| error.violations)
}

#[track_caller]
fn accepts(text: &str) {
    let found = violations(text);
    assert!(found.is_empty(), "{found:#?}\n{text}");
}

/// Exactly one violation, of this rule, whose message contains the words.
#[track_caller]
fn rejects(text: &str, rule: Rule, words: &str) {
    let found = violations(text);
    assert_eq!(found.len(), 1, "{found:#?}\n{text}");
    assert_eq!(found[0].rule, rule, "{found:#?}");
    assert!(found[0].message.contains(words), "{:?} lacks {words:?}", found[0].message);
}

#[test]
fn the_templates_are_valid() {
    accepts(&simple(""));
    accepts(&mma(""));
}

#[test]
fn names() {
    accepts(&simple("").replace("\"out\"", "\"$out_2\""));
    rejects(&simple("").replace("\"out\"", "\"2out\""), Rule::Names, "'2out'");
    rejects(&simple("").replace("\"test\"", "\"a b\""), Rule::Names, "kernel name 'a b'");
    rejects(&simple("").replace("\"out\"", "\"map\""), Rule::Names, "two parameters");
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
fn entities() {
    accepts(&simple("%0: f32 = acc_get[acc1, 0]"));
    rejects(&simple("%0: f32 = acc_get[acc2, 0]"), Rule::Entities, "acc2");
    rejects(&simple("%0: smem = smem_address[region2]"), Rule::Entities, "region2");
    rejects(&simple("%0: u32 = param[param7]"), Rule::Entities, "param7");
    rejects(&simple("roles[role3] { yield }"), Rule::Entities, "role3");
    let mut kernel = parse(&simple("wgmma_fence")).unwrap();
    kernel.locations.clear();
    let error = verify(&kernel).unwrap_err();
    assert_eq!(error.violations[0].rule, Rule::Entities);
    kernel = parse(&simple("%0: bool = elect\nif %0 { yield } { yield }")).unwrap();
    kernel.values.clear();
    let error = verify(&kernel).unwrap_err();
    assert!(error.violations.iter().all(|violation| violation.rule == Rule::Entities));
    assert_eq!(error.violations.len(), 2);
}

const BOUNDS: &str = "%0: u32 = const.u32 0
%1: u32 = const.u32 8
%2: u32 = const.u32 1
%3: bool = const.bool true
";

#[test]
fn structure() {
    let accepted = "%4: u32 = for %0, %1, %2, %2 (%5: u32, %6: u32) {
            %7: u32 = add %5, %6
            yield %7
        }
        %8: u32 = while %4 (%9: u32) {
            %10: bool = lt %9, %1
            yield %10
        } (%11: u32) {
            %12: u32 = add %11, %2
            yield %12
        }
        %13: u32 = if %3 { yield %8 } { yield %4 }";
    accepts(&simple(&format!("{BOUNDS}{accepted}")));
    let rejects = |body: &str, words: &str| {
        rejects(&simple(&format!("{BOUNDS}{body}")), Rule::Structure, words);
    };
    rejects("for %0, %1, %2 (%5: u32) { }", "must end in yield");
    rejects("for %0, %1, %2 (%5: u32) { yield\n yield }", "nowhere else");
    rejects("yield", "nowhere else");
    rejects("for %0, %1, %2 (%5: s32) { yield }", "(s32): the operation hands it (u32)");
    rejects("for %0, %1, %2", "takes 1 nested blocks and has 0");
    rejects("if %3 { yield } { yield %0 }", "yields (u32): the operation takes ()");
    rejects("%4: u32 = if %3 { yield %0 } { yield %3 }", "yields (bool)");
    rejects("wgmma_fence { yield }", "takes 0 nested blocks");
    rejects("%4: u32 = while %0 (%9: u32) { yield %9 } (%8: u32) { yield %8 }", "takes (bool)");
}

#[test]
fn definitions() {
    accepts(&simple("%0: u32 = const.u32 1\n%1: u32 = const.u32 1"));
    rejects(
        &simple("%0: u32 = const.u32 1\n%0: u32 = const.u32 1"),
        Rule::Definitions,
        "%0 is defined a second time",
    );
}

#[test]
fn dominance() {
    accepts(&simple(&format!("{BOUNDS} if %3 {{ %4: u32 = add %0, %1\n yield }} {{ yield }}")));
    rejects(
        &simple(&format!(
            "{BOUNDS} if %3 {{ %4: u32 = add %0, %1\n yield }} {{ yield }}
             %5: u32 = add %4, %1"
        )),
        Rule::Dominance,
        "%4",
    );
    rejects(&simple("%0: u32 = not %1\n%1: u32 = const.u32 1"), Rule::Dominance, "%1");
}

#[test]
fn types() {
    let accepted = "%4: u64 = convert.u64 %0
        %5: u64 = shl %4, %1
        %6: f32 = convert.f32 %0
        %7: f32 = fma %6, %6, %6
        %8: b32 = pack.bf16 %6, %7
        %9: f32 = unpack.bf16.high %8
        %10: u32 = bitcast.u32 %9
        %11: bool = xor %3, %3
        %12: bool = select %11, %3, %3
        %13: u64 = param[param0]
        %14: f32, %15: f32 = load.global.f32.weak.cta[vector=2] %13
        store.global.f32.release.gpu[vector=2] %13, %15, %14";
    accepts(&simple(&format!("{BOUNDS}{accepted}")));
    let rejects = |body: &str, words: &str| {
        rejects(&simple(&format!("{BOUNDS}{body}")), Rule::Types, words);
    };
    rejects("%4: u32 = add %0, %3", "(u32, u32) -> (u32)");
    rejects("%4: u32 = add %0", "(u32, u32) -> (u32)");
    rejects("%4: bool = add %3, %3", "T one of u32, s32, u64, f32");
    rejects("%4: u64 = shl %0, %1", "(u32, u32) -> (u32)");
    rejects("%4: f32 = const.u32 1", "() -> (u32)");
    rejects("%4: f32 = convert.f32 %3", "u32 or s32");
    rejects("%4: u32 = param[param1]", "tensor map");
    rejects("%4: map = map_param[param0]", "scalar");
    rejects("%4: u32 = acc_get[acc0, 0]", "() -> (f32)");
    rejects("mbarrier_arrive %0", "(smem) -> ()");
    rejects("if %0 { yield } { yield }", "(bool) -> ()");
    rejects("%4: f32 = load.global.f32.weak.cta[vector=1] %0", "(u64) -> (f32)");
    rejects("tma_load[rank=2] %0, %0", "(map, smem, smem, u32, u32) -> ()");
    rejects("%4: bool = eq %3, %3", "(T, T) -> bool");
}

#[test]
fn attributes() {
    let full = "%4: smem = smem_address[region1]\n";
    let accepted = "mbarrier_init[count=1] %4
        mbarrier_arrive_expect[bytes=16384] %4
        barrier_sync[threads=128] %1
        %5: u64 = param[param0]
        %6: u32, %7: u32, %8: u32, %9: u32 = load.global.u32.acquire.gpu[vector=4] %5
        fence.acquire_release.gpu
        wgmma_wait[pending=7]";
    accepts(&simple(&format!("{BOUNDS}{full}{accepted}")));
    let rejects = |body: &str, words: &str| {
        rejects(&simple(&format!("{BOUNDS}{full}{body}")), Rule::Attributes, words);
    };
    rejects("mbarrier_init[count=0] %4", "0 arrivals");
    rejects("mbarrier_init[count=1048576] %4", "1048576 arrivals");
    rejects("mbarrier_arrive_expect[bytes=1048576] %4", "1048575 at most");
    rejects("barrier_sync[threads=96] %1\nbarrier_sync[threads=160] %1", "up to the CTA's 128");
    rejects("barrier_sync[threads=40] %1", "multiple of 32");
    rejects("%5: u32 = const.u32 16\nbarrier_sync[threads=128] %5", "0 to 15");
    rejects(
        "%5: u64 = param[param0]
         %6: u64, %7: u64, %8: u64, %9: u64 = load.global.u64.weak.cta[vector=4] %5",
        "up to 2",
    );
    rejects(
        "%5: u64 = param[param0]
         %6: u32, %7: u32, %8: u32 = load.global.u32.weak.cta[vector=3] %5",
        "a vector of 3",
    );
    rejects("%5: u64 = param[param0]\n%6: u32 = load.global.u32.weak.gpu[vector=1] %5", "no scope");
    rejects(
        "%5: u64 = param[param0]\n%6: u32 = load.global.u32.release.gpu[vector=1] %5",
        "a load",
    );
    rejects("%5: u64 = param[param0]\nstore.global.u32.acquire.gpu[vector=1] %5, %0", "a store");
    rejects("fence.release.gpu", "a fence is");
    rejects("%5: smem = smem_address[region0]\nload_matrix[count=0] %5", "0 matrices");
    rejects("wgmma_wait[pending=8]", "7 at most");
    rejects("%5: f32 = acc_get[acc1, 32]", "32 registers, not 32");
    rejects("for %2, %1, %0 (%5: u32) { yield }", "step is 0");
    rejects("%5: f32 = const.f32 0\n%6: b32 = pack.f32 %5, %5", "f32 is no packed type");
}

#[test]
fn scalar_parameters() {
    accepts(&simple("").replace("\"out\": u64", "\"out\": f32"));
    rejects(&simple("").replace("\"out\": u64", "\"out\": s32"), Rule::Attributes, "is s32");
}

#[test]
fn wgmma_shapes() {
    let batch = |instruction: &str| {
        mma(&format!("wgmma_fence\n{instruction}\nwgmma_commit\nwgmma_wait[pending=0]"))
    };
    accepts(&batch("wgmma.bf16.k.bf16.mn[acc0, n=128] %0, %1, %2"));
    accepts(&batch("wgmma.e4m3.k.e5m2.k[acc1, n=64] %0, %1, %2"));
    accepts(&batch("wgmma.s8.k.u8.k[acc1, n=64] %0, %1, %2").replace("acc1 = f32", "acc1 = s32"));
    let rejects = |instruction: &str, words: &str| {
        rejects(&batch(instruction), Rule::WgmmaShape, words);
    };
    rejects("wgmma.bf16.k.f16.k[acc0, n=128] %0, %1, %2", "bf16 × f16 is no wgmma");
    rejects("wgmma.f32.k.f32.k[acc0, n=128] %0, %1, %2", "f32 × f32 is no wgmma");
    rejects("wgmma.tf32.k.tf32.mn[acc0, n=128] %0, %1, %2", "B of tf32 is read K-major only");
    rejects("wgmma.e4m3.mn.e4m3.k[acc0, n=128] %0, %1, %2", "A of e4m3 is read K-major only");
    rejects("wgmma.bf16.k.bf16.k[acc0, n=64] %0, %1, %2", "n = 64 needs 32");
    rejects("wgmma.s8.k.s8.k[acc0, n=128] %0, %1, %2", "accumulates in s32");
    super::tests::rejects(
        &batch("wgmma.s8.k.s8.k[acc0, n=40] %0, %1, %2")
            .replace("acc0 = f32, 64", "acc0 = s32, 20"),
        Rule::WgmmaShape,
        "then steps of 16",
    );
    super::tests::rejects(
        &batch("wgmma.bf16.k.bf16.k[acc0, n=12] %0, %1, %2")
            .replace("acc0 = f32, 64", "acc0 = f32, 8"),
        Rule::WgmmaShape,
        "steps of 8",
    );
}

#[test]
fn accumulators() {
    accepts(&simple("").replace("acc0 = f32, 64", "acc0 = s32, 128"));
    rejects(&simple("").replace("acc0 = f32, 64", "acc0 = u32, 64"), Rule::WgmmaShape, "u32");
    rejects(&simple("").replace("acc0 = f32, 64", "acc0 = f32, 130"), Rule::WgmmaShape, "130");
}

#[test]
fn descriptors() {
    let address = "%0: smem = smem_address[region0]\n";
    accepts(&simple(&format!("{address}%1: desc = descriptor.b64[leading=262128, stride=16] %0")));
    let rejects = |op: &str, words: &str| {
        rejects(&simple(&format!("{address}{op}")), Rule::Descriptors, words);
    };
    rejects("%1: desc = descriptor.b64[leading=8, stride=16] %0", "leading byte offset is 8");
    rejects("%1: desc = descriptor.b64[leading=0, stride=262144] %0", "stride byte offset");
    rejects(
        "%1: desc = descriptor.b64[leading=0, stride=16] %0\n
         %2: desc = descriptor_advance[bytes=40] %1",
        "not 40",
    );
}

/// A copy in of the map's box: `%1` full barrier, `%2` zero.
fn copy(body: &str) -> String {
    simple(&format!(
        "%0: smem = smem_address[region0]
         %1: smem = smem_address[region1]
         %2: u32 = const.u32 0
         %3: map = map_param[param1]
         {body}"
    ))
}

#[test]
fn tma() {
    let load = "tma_load[rank=2] %3, %0, %1, %2, %2";
    accepts(&copy(load));
    accepts(&copy("tma_load.multicast[rank=2] %3, %0, %1, %2, %2, %2"));
    rejects(&copy("tma_load[rank=1] %3, %0, %1, %2"), Rule::Tma, "which has rank 2");
    let spec = |spec: &str| simple("").replace("bf16 [64, 64] b128", spec);
    accepts(&spec("bf16 [64, 64, 1, 1, 1] b128"));
    accepts(&spec("f32 [256, 4] unswizzled"));
    rejects(&spec("bf16 [] b128"), Rule::Tma, "0 dimensions");
    rejects(&spec("bf16 [64, 1, 1, 1, 1, 1] b128"), Rule::Tma, "6 dimensions");
    rejects(&spec("bf16 [64, 257] b128"), Rule::Tma, "a box of 257 in dimension 1");
    rejects(&spec("bf16 [64, 0] b128"), Rule::Tma, "a box of 0 in dimension 1");
    rejects(&spec("bf16 [20, 64] b128"), Rule::Tma, "40 bytes");
    rejects(&spec("bf16 [128, 64] b128"), Rule::Tma, "256 bytes: its swizzle spans 128");
    rejects(&spec("bf16 [64, 256, 256] b128"), Rule::Tma, "shared memory has 232448");
    rejects(&copy(load).replace("[64, 64]", "[64, 256]"), Rule::Tma, "a box of 32768 bytes");
    let offset = |bytes: u32| {
        copy(&format!(
            "%4: u32 = const.u32 {bytes}\n%5: smem = smem_offset %0, %4
             tma_store[rank=2] %3, %5, %2, %2\nbulk_commit\nbulk_wait.read[pending=0]"
        ))
    };
    accepts(&offset(8192));
    rejects(&offset(9216), Rule::Tma, "at byte 9216 of region 'tile'");
    rejects(&offset(64), Rule::Tma, "multiple of 128");
}

#[test]
fn uses_of_regions() {
    let rejects = |text: &str, words: &str| rejects(text, Rule::SharedMemory, words);
    accepts(&copy("mbarrier_wait %1, %2"));
    rejects(&copy("mbarrier_wait %0, %2"), "holds no mbarriers");
    rejects(&copy("tma_load[rank=2] %3, %0, %0, %2, %2"), "holds no mbarriers");
    rejects(&copy("%4: desc = descriptor.b128[leading=0, stride=0] %1"), "holds mbarriers");
    rejects(
        &copy("tma_load[rank=2] %3, %1, %1, %2, %2")
            .replace("16384, bytes 32, align 8", "16384, bytes 8192, align 1024"),
        "holds mbarriers: copies",
    );
    rejects(
        &copy("tma_load[rank=2] %3, %0, %1, %2, %2").replace("align 1024", "align 128"),
        "'tile' is aligned to 128: boxes of tensor map 'map' need 1024",
    );
    let barrier = |bytes: u32| {
        copy(&format!(
            "%4: u32 = const.u32 {bytes}\n%5: smem = smem_offset %1, %4\nmbarrier_wait %5, %2"
        ))
    };
    accepts(&barrier(24));
    rejects(&barrier(32), "no mbarrier at byte 32");
    rejects(&barrier(12), "8 bytes apart");
}

/// Control flow on values of each kind, around an operation.
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
    rejects(
        "%3: f32 = acc_get[acc0, 0]\n%9: bool = eq %3, %3",
        "barrier_sync[threads=128] %1",
        "all threads of a warp execute",
    );
}

#[test]
fn uniformity_of_thread_counts() {
    // thread / 32, thread >> 7, warp / 4, thread < 64 and the like are as uniform as they look.
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
    // A value that differs from thread to thread reaches the bound only in the second iteration.
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
    // Joins carry the uniformity of their condition.
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
    // Leaving a loop in different rounds carries different values out.
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
        "read of acc0",
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
    // A fence on one side of a branch is none.
    let branch = |other: &str| {
        mma(&format!(
            "if %2 {{ wgmma_fence\n yield }} {{ {other}\n yield }}\n{MMA}wgmma_commit\n{wait}"
        ))
    };
    accepts(&branch("wgmma_fence"));
    rejects(&branch(""), Rule::WgmmaFence, "on every path");
    // A fence in a loop that may not run is none, in one that runs it is.
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
    // One batch stays in flight around the loop: read in the next iteration, it is caught.
    let pipelined = format!("{batch}{}", wait(1));
    accepts(&repeated("special.cta", &pipelined));
    rejects(&repeated("special.cta", &format!("{read}{pipelined}")), Rule::InFlight, "acc0");
    // Batches without a wait pile up and are all waited for.
    accepts(&repeated("special.cta", &batch));
    rejects(
        &repeated("special.cta", &batch)
            .replace("pending=0", "pending=7")
            .replace("acc_get[acc0, 0]", "acc_get[acc0, 0]\nwgmma_wait[pending=0]"),
        Rule::InFlight,
        "acc0 is read",
    );
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
    // In a loop the next iteration writes the registers that the last one's batch still reads.
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
    // In a loop the wait of the next iteration can follow.
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

/// Three warpgroups in two roles.
fn roles(body: &str) -> String {
    simple(body).replace(
        "role0 = \"all\": 1 warpgroups, 128 registers",
        "role0 = \"producer\": 1 warpgroups, 40 registers
role1 = \"consumer\": 2 warpgroups, 232 registers",
    )
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
    rejects(&lowered("set_max_registers.decrease[count=36]", up), Rule::Attributes, "36 registers");
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
    // m64n256 on four warpgroups does not fit what threads enter with.
    let wide = |roles: &str| {
        mma("wgmma_fence
             wgmma.bf16.k.bf16.k[acc0, n=256] %0, %1, %2
             wgmma_commit
             wgmma_wait[pending=0]")
        .replace("f32, 64 registers", "f32, 128 registers")
        .replace("1 warpgroups, 128", roles)
    };
    accepts(&wide("3 warpgroups, 168"));
    rejects(&wide("4 warpgroups, 128"), Rule::Registers, "128 + 8 registers");
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
    // Data regions may share bytes: their lifetimes are planned.
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
fn cluster() {
    accepts(&simple("").replace("cluster 1", "cluster 8"));
    rejects(&simple("").replace("cluster 1", "cluster 0"), Rule::Cluster, "0 CTAs");
    rejects(&simple("").replace("cluster 1", "cluster 16"), Rule::Cluster, "16 CTAs");
}

#[test]
fn all_violations_are_reported_with_their_places() {
    let kernel = parse(&simple(
        "%0: u32 = const.u32 1
%1: bool = elect
if %1 {
  wgmma_commit
  yield
} {
  yield
}
mbarrier_arrive %0",
    ))
    .unwrap();
    let error = verify(&kernel).unwrap_err();
    insta::assert_snapshot!(error);
}

//! Rules of single operations: structure, signatures, attributes, copies.

use super::{BOUNDS, Rule, accepts, copy, mma, parse, rejects, simple, verify};

#[test]
fn entities() {
    accepts(&simple("%0: f32 = acc_get[acc1, 0]"));
    rejects(&simple("%0: f32 = acc_get[acc2, 0]"), Rule::Entities, "acc2");
    accepts(&simple("%0: f32 = const.f32 0\nacc_set[acc1, 0] %0"));
    rejects(&simple("%0: f32 = const.f32 0\nacc_set[acc2, 0] %0"), Rule::Entities, "acc2");
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
    rejects("for %0, %1, %2 (%5: s32) { yield }", "(s32): the operation passes it (u32)");
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
        store.global.f32.release.gpu[vector=2] %13, %15, %14
        %16: u32 = atomic.inc.global.acquire_release.gpu %13, %0
        %17: u32 = shuffle_first %16
        reduce_add[vector=2] %13, %14, %15
        %18: f32 = load_element.bf16 %13
        store_element.f16 %13, %18
        warp_sync
        grid_dependency_wait
        grid_dependency_launch
        %29: map = map_at %13
        fence_map_release.gpu
        fence_map_acquire.system %29
        prefetch_map %29
        %30: u64 = clock
        sleep %0
        %31: u64 = load.global.u64.acquire.system[vector=1] %13
        store.global.u64.release.system[vector=1] %13, %31
        fence.sequentially_consistent.system
        %19: f64 = const.f64 0x3ff0000000000000
        %20: f64 = fma %19, %19, %19
        %21: f64, %22: f64 = load.global.f64.weak.cta[vector=2] %13
        %23: f64 = div %21, %22
        %24: bool = lt %23, %20
        store.global.f64.weak.cta[vector=1] %13, %23
        %25: f64, %26: f64, %27: f64, %28: f64 = warp_mma.f64.f64[m=16, n=8, k=4] \
            %19, %20, %21, %22, %23, %20, %21";
    let accepted = accepted.replace("\\\n", " ");
    accepts(&simple(&format!("{BOUNDS}{accepted}")));
    let rejects = |body: &str, words: &str| {
        rejects(&simple(&format!("{BOUNDS}{body}")), Rule::Types, words);
    };
    rejects("%4: u32 = add %0, %3", "(u32, u32) -> (u32)");
    rejects("%4: u32 = add %0", "(u32, u32) -> (u32)");
    rejects("%4: bool = add %3, %3", "T one of u32, s32, u64, f32");
    rejects("%4: u64 = shl %0, %1", "(u32, u32) -> (u32)");
    rejects("%4: f32 = const.u32 1", "() -> (u32)");
    rejects("%4: f32 = convert.f32 %3", "(T) -> (f32) with T one of u32, s32");
    rejects("%4: b32 = convert.b32 %3", "for no T");
    rejects("%4: u32 = param[param1]", "tensor map");
    rejects("%4: map = map_param[param0]", "scalar");
    rejects("%4: map = map_at %0", "(u64) -> (map)");
    rejects("%4: u32 = clock", "() -> (u64)");
    rejects("%4: u64 = param[param0]\nfence_map_acquire.gpu %4", "(map) -> ()");
    rejects("%4: u64 = param[param0]\nsleep %4", "(u32) -> ()");
    rejects("%4: u32 = acc_get[acc0, 0]", "() -> (f32)");
    rejects("acc_set[acc0, 0] %0", "(f32) -> ()");
    rejects("mbarrier_arrive %0", "(smem) -> ()");
    rejects("if %0 { yield } { yield }", "(bool) -> ()");
    rejects("%4: f32 = load.global.f32.weak.cta[vector=1] %0", "(u64) -> (f32)");
    rejects("%4: u32 = atomic.add.global.relaxed.gpu %0, %0", "(u64, u32) -> (u32)");
    rejects("%4: u64 = param[param0]\nreduce_add[vector=2] %4, %0, %0", "(u64, f32, f32) -> ()");
    rejects("%4: f32 = load_element.f32 %0", "(u64) -> (f32)");
    rejects("%4: u64 = param[param0]\n%5: u32 = load_element.f32 %4", "(u64) -> (f32)");
    rejects("%4: u64 = param[param0]\nstore_element.f16 %4, %0", "(u64, f32) -> ()");
    rejects("%4: f32 = shuffle_first %0", "(u32) -> (u32)");
    rejects("tma_load[rank=2] %0, %0", "(map, smem, smem, u32, u32) -> ()");
    rejects("%4: bool = eq %3, %3", "(T, T) -> (bool)");
    let double = "%4: f64 = const.f64 0\n%5: u64 = const.u64 0\n";
    rejects(&format!("{double}%6: u64 = fma %5, %5, %5"), "T one of f32, f64");
    rejects(&format!("{double}%6: f64 = rem %4, %4"), "T one of u32, s32, u64");
    accepts(&simple(&format!(
        "{BOUNDS}{double}%6: u64 = bitcast.u64 %4\n%7: f64 = bitcast.f64 %5"
    )));
    rejects(&format!("{double}%6: u64 = bitcast.u64 %0"), "T one of u64, f64");
    rejects(&format!("{double}%6: u32 = bitcast.u32 %4"), "T one of u32, s32, f32, b32");
    let results = "%6: f64, %7: f64, %8: f64, %9: f64";
    let mma = |shape: &str| format!("{double}{results} = warp_mma.f64.f64[{shape}] %4, %4");
    rejects(&mma("m=16, n=8, k=4"), "(f64, f64, f64, f64, f64, f64, f64) -> (f64, f64, f64, f64)");
    for shape in ["m=16, n=8, k=32", "m=4294967295, n=8, k=4294967295"] {
        super::rejects(
            &simple(&format!("{BOUNDS}{}", mma(shape))),
            Rule::Attributes,
            "use m16n8k4 of f64 in f64, m16n8k8",
        );
    }
}

#[test]
fn attributes() {
    let full = "%4: smem = smem_address[region1]\n";
    let accepted = "mbarrier_init[count=1] %4
        mbarrier_arrive_expect[bytes=16384] %4
        barrier_sync[threads=128] %1
        %5: u64 = param[param0]
        %6: u32, %7: u32, %8: u32, %9: u32 = load.global.u32.acquire.gpu[vector=4] %5
        %10: f32 = load_element.f32 %5
        %11: f32 = load_element.f16 %5
        store_element.f32 %5, %10
        store_element.bf16 %5, %11
        fence.acquire_release.gpu
        wgmma_wait[pending=7]";
    accepts(&simple(&format!("{BOUNDS}{full}{accepted}")));
    let rejects = |body: &str, words: &str| {
        rejects(&simple(&format!("{BOUNDS}{full}{body}")), Rule::Attributes, words);
    };
    rejects("mbarrier_init[count=0] %4", "mbarrier_init: count is 0: use 1 to 1048575");
    rejects("mbarrier_init[count=1048576] %4", "count is 1048576");
    rejects("mbarrier_arrive_expect[bytes=1048576] %4", "bytes is 1048576: use 0 to 1048575");
    rejects("barrier_sync[threads=40] %1", "threads is 40: use 32 to 1024 in steps of 32");
    rejects(
        "%5: u64 = param[param0]
         %6: u64, %7: u64, %8: u64, %9: u64 = load.global.u64.weak.cta[vector=4] %5",
        "vector is 4: use 1 or 2",
    );
    rejects(
        "%5: u64 = param[param0]
         %6: u32, %7: u32, %8: u32 = load.global.u32.weak.cta[vector=3] %5",
        "vector is 3: use 1, 2 or 4",
    );
    rejects(
        "%5: u64 = param[param0]\n%6: u32 = load.global.u32.weak.gpu[vector=1] %5",
        "scope is gpu: use cta",
    );
    accepts(&simple(
        "%5: u64 = param[param0]\n%6: u32 = load.global.u32.weak.cta.once[vector=1] %5",
    ));
    for more in ["%6: u32 = load.global.u32.relaxed.gpu.once", "store.global.u32.weak.cta.once"] {
        let value = if more.starts_with("store") { ", %0" } else { "" };
        rejects(&format!("%5: u64 = param[param0]\n{more}[vector=1] %5{value}"), "once is true");
    }
    rejects(
        "%5: u64 = param[param0]\n%6: u32 = load.global.u32.release.gpu[vector=1] %5",
        "order is release: use weak, relaxed or acquire",
    );
    rejects(
        "%5: u64 = param[param0]\nstore.global.u32.acquire.gpu[vector=1] %5, %0",
        "order is acquire",
    );
    rejects(
        "%5: u64 = param[param0]\n%6: u32 = atomic.add.global.weak.cta %5, %0",
        "order is weak: use relaxed, acquire, release or acquire_release",
    );
    rejects(
        "%5: u64 = param[param0]\n%6: f32 = const.f32 0\nreduce_add[vector=3] %5, %6, %6, %6",
        "reduce_add: vector is 3: use 1, 2 or 4",
    );
    rejects(
        "fence.release.gpu",
        "order is release: use acquire_release or sequentially_consistent",
    );
    rejects(
        "%5: smem = smem_address[region0]\nload_matrix[count=0] %5",
        "count is 0: use 1, 2 or 4",
    );
    rejects("wgmma_wait[pending=8]", "pending is 8: use 0 to 7");
    rejects("%5: f32 = acc_get[acc1, 32]", "32 registers, not 32");
    rejects("%5: f32 = const.f32 0\nacc_set[acc1, 32] %5", "32 registers, not 32");
    rejects("for %2, %1, %0 (%5: u32) { yield }", "step is 0");
    rejects(
        "%5: f32 = const.f32 0\n%6: b32 = pack.f32 %5, %5",
        "element is f32: use f16, bf16, e4m3, e5m2 or s8",
    );
    rejects("%5: b32 = bitcast.b32 %0\n%6: f32 = unpack.u8.low %5", "element is u8");
    for element in ["tf32", "f64", "u8", "s32"] {
        let words = format!("element is {element}: use f16, bf16, f32, e4m3, e5m2 or s8");
        rejects(&format!("%5: u64 = param[param0]\n%6: f32 = load_element.{element} %5"), &words);
        rejects(
            &format!(
                "%5: u64 = param[param0]\n%6: f32 = const.f32 0\nstore_element.{element} %5, %6"
            ),
            &words,
        );
    }
}

#[test]
fn wgmma_shapes() {
    let batch = |instruction: &str| {
        mma(&format!("wgmma_fence\n{instruction}\nwgmma_commit\nwgmma_wait[pending=0]"))
    };
    accepts(&batch("wgmma.bf16.k.bf16.mn[acc0, n=128] %0, %1, %2"));
    accepts(&batch("wgmma.e4m3.k.e5m2.k[acc1, n=64] %0, %1, %2"));
    accepts(&batch("wgmma.s8.k.u8.k[acc1, n=64] %0, %1, %2").replace("acc1 = f32", "acc1 = s32"));
    let packed = |instruction: &str| batch(instruction).replace("acc1 = f32", "acc1 = b32");
    accepts(&packed("wgmma.f16.k.f16.mn[acc1, n=128] %0, %1, %2"));
    for (instruction, words) in [
        ("wgmma.f16.k.f16.k[acc1, n=64] %0, %1, %2", "n = 64 needs 16 of b32"),
        ("wgmma.bf16.k.bf16.k[acc1, n=128] %0, %1, %2", "bf16 × bf16 accumulates in f32"),
    ] {
        rejects(&packed(instruction), Rule::WgmmaShape, words);
    }
    let rejects = |instruction: &str, words: &str| {
        rejects(&batch(instruction), Rule::WgmmaShape, words);
    };
    rejects("wgmma.f16.k.f16.k[acc0, n=64] %0, %1, %2", "n = 64 needs 32 of f32");
    rejects(
        "wgmma.bf16.k.f16.k[acc0, n=128] %0, %1, %2",
        "element pair is bf16 × f16: use f16 × f16, bf16 × bf16, tf32 × tf32",
    );
    rejects("wgmma.f32.k.f32.k[acc0, n=128] %0, %1, %2", "element pair is f32 × f32");
    rejects("wgmma.tf32.k.tf32.mn[acc0, n=128] %0, %1, %2", "major of B is mn: use k for tf32");
    rejects("wgmma.e4m3.mn.e4m3.k[acc0, n=128] %0, %1, %2", "major of A is mn: use k for e4m3");
    rejects("wgmma.bf16.k.bf16.k[acc0, n=64] %0, %1, %2", "n = 64 needs 32");
    rejects("wgmma.s8.k.s8.k[acc0, n=128] %0, %1, %2", "accumulates in s32");
    super::rejects(
        &batch("wgmma.s8.k.s8.k[acc0, n=40] %0, %1, %2")
            .replace("acc0 = f32, 64", "acc0 = s32, 20"),
        Rule::WgmmaShape,
        "then steps of 16",
    );
    super::rejects(
        &batch("wgmma.bf16.k.bf16.k[acc0, n=12] %0, %1, %2")
            .replace("acc0 = f32, 64", "acc0 = f32, 8"),
        Rule::WgmmaShape,
        "steps of 8",
    );
}

#[test]
fn descriptors() {
    let address = "%0: smem = smem_address[region0]\n";
    accepts(&simple(&format!("{address}%1: desc = descriptor.b64[leading=262128, stride=16] %0")));
    let rejects = |op: &str, words: &str| {
        rejects(&simple(&format!("{address}{op}")), Rule::Descriptors, words);
    };
    rejects(
        "%1: desc = descriptor.b64[leading=8, stride=16] %0",
        "leading is 8: use 0 to 262128 in steps of 16",
    );
    rejects("%1: desc = descriptor.b64[leading=0, stride=262144] %0", "stride is 262144");
    rejects(
        "%1: desc = descriptor.b64[leading=0, stride=16] %0\n
         %2: desc = descriptor_advance[bytes=40] %1",
        "bytes is 40",
    );
}

#[test]
fn tma() {
    let load = "tma_load[rank=2] %3, %0, %1, %2, %2";
    accepts(&copy(load));
    accepts(&copy("tma_load.multicast[rank=2] %3, %0, %1, %2, %2, %2"));
    let policy = "%9: u64 = param[param0]\n";
    accepts(&copy(&format!("{policy}tma_load.policy[rank=2] %3, %0, %1, %2, %2, %9")));
    accepts(&copy(&format!(
        "{policy}tma_load.multicast.policy[rank=2] %3, %0, %1, %2, %2, %2, %9
         tma_store.policy[rank=2] %3, %0, %2, %2, %9\nbulk_commit\nbulk_wait.read[pending=0]"
    )));
    rejects(
        &copy("tma_load.policy[rank=2] %3, %0, %1, %2, %2, %2"),
        Rule::Types,
        "u32, u64) -> ()",
    );
    rejects(&copy("tma_load[rank=1] %3, %0, %1, %2"), Rule::Tma, "which has rank 2");
    accepts(&copy("tma_prefetch[rank=2] %3, %2, %2"));
    accepts(&copy(&format!("{policy}tma_prefetch.policy[rank=2] %3, %2, %2, %9")));
    rejects(&copy("tma_prefetch[rank=3] %3, %2, %2, %2"), Rule::Tma, "which has rank 2");
    rejects(&copy("tma_prefetch[rank=2] %3, %2"), Rule::Types, "u32, u32) -> ()");
    rejects(&copy("tma_prefetch.policy[rank=2] %3, %2, %2, %2"), Rule::Types, "u32, u64) -> ()");
    let im2col = |op: &str| copy(op).replace("64] b128", "64] b128 im2col [0 to 0 by 1]");
    let walk = "tma_load.im2col[rank=3] %3, %0, %1, %2, %2, %2, %2";
    accepts(&im2col(walk));
    accepts(&im2col("tma_load.im2col.multicast[rank=3] %3, %0, %1, %2, %2, %2, %2, %2"));
    accepts(&im2col("tma_prefetch.im2col[rank=3] %3, %2, %2, %2, %2"));
    rejects(&copy(walk), Rule::Tma, "has boxes of a tensor: im2col loads have a map of pixels");
    rejects(&im2col(load), Rule::Tma, "is an im2col map: it has im2col loads");
    let store = "tma_store[rank=3] %3, %0, %2, %2, %2\nbulk_commit\nbulk_wait.read[pending=0]";
    rejects(&im2col(store), Rule::Tma, "is an im2col map");
    rejects(
        &im2col("tma_load.im2col[rank=4] %3, %0, %1, %2, %2, %2, %2, %2, %2"),
        Rule::Tma,
        "which has rank 3",
    );
    rejects(
        &im2col("tma_load.im2col[rank=3] %3, %0, %1, %2, %2, %2"),
        Rule::Types,
        "u32, u32, u32, u32) -> ()",
    );
    let spec = |spec: &str| simple("").replace("bf16 [64, 64] b128", spec);
    accepts(&spec("bf16 [64, 1024] b128 im2col [-128 to 127 by 8, -1 to -1 by 1]"));
    rejects(&spec("bf16 [64, 1025] b128 im2col [0 to 0 by 1]"), Rule::Tma, "1 to 1024");
    rejects(&spec("bf16 [64, 64] b128 im2col []"), Rule::Tma, "0 axes: 1 to 3");
    rejects(&spec("bf16 [64] b128 im2col [0 to 0 by 1]"), Rule::Tma, "channels and pixels");
    rejects(
        &spec("bf16 [64, 64] b128 im2col [0 to 0 by 1, -129 to 0 by 1]"),
        Rule::Tma,
        "lower corner of an im2col map is -129 along H: with 2 axes it must be at least -128",
    );
    rejects(&spec("bf16 [64, 64] b128 im2col [0 to 0 by 9]"), Rule::Tma, "stride");
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

#[test]
fn custom_instructions() {
    let two = "%0: u32 = const.u32 1\n%1: u32 = const.u32 2\n";
    let accepts = |inst: &str| accepts(&simple(&format!("{two}{inst}")));
    let rejects = |inst: &str, words: &str| {
        rejects(&simple(&format!("{two}{inst}")), Rule::Attributes, words)
    };
    let pure = |ptx: &str| {
        format!(
            "%2: u32 = custom.own.pure[ptx=\"{ptx}\", operands=\"u32 u32\", results=\"u32\"] %0, %1"
        )
    };
    accepts(&pure("lop3.b32 $r0, $0, $1, 7, 0xe8"));
    accepts(&pure("x.b32 $r0, {$0, $0}, $1"));
    rejects(&pure("lop3.b32 $r0, $0, 7"), "use $1, which the instruction takes");
    rejects(&pure("lop3.b32 $r0, $0, $1, $2"), "no $2: it has 2 operands and 1 results");
    rejects(&pure("lop3.b32 $0, $1"), "use $r0 once");
    rejects(&pure("lop3.b32 $0, $r0, $1"), "all results as the first operand");
    rejects(&pure("lop3.b32 $r0, [$0], $1"), "u64 or smem for the address $0, which is u32");
    rejects(&pure("lop3.b32 $r0, $0, $1; ret"), "',' before '; ret'");
    rejects(&pure("ret"), "another instruction than ret");
    let other = |from: &str, to: &str| pure("x $r0, $0, $1").replace(from, to);
    accepts(&other(".pure", ".acts.uniform.cta"));
    rejects(&other(".own", ".Own"), "name is \"Own\"");
    rejects(&other(".pure", ".pure.warp"), "effect is pure: use reads or acts");
    let none = "custom.own.reads[ptx=\"x\", operands=\"\", results=\"\"]";
    rejects(none, "use acts, since it has no results");
    let map = "%2: desc = custom.own.pure[ptx=\"x $r0\", operands=\"\", results=\"desc\"]";
    rejects(map, "result is desc: use bool, u32");
    super::rejects(
        &simple(&format!("{two}{}", other("operands=\"u32 u32\"", "operands=\"u32 f32\""))),
        Rule::Types,
        "(u32, u32) -> (u32) does not match custom.own.pure, which is (u32, f32) -> (u32)",
    );
}

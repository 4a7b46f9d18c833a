//! Tests of the passes: they keep the meaning of random kernels, and small kernels show the effect
//! of each.

mod evaluator;
mod generator;

use proptest::prelude::*;

use self::evaluator::behaviour;
use self::generator::Generator;
use super::{PassError, cse, dce, fold, legalise, optimise, renumber};
use crate::text::{TextOptions, parse, to_text};
use crate::*;

proptest! {
    #[test]
    fn passes_keep_the_meaning(choices in prop::collection::vec(any::<u32>(), 20..500)) {
        let original = Generator::kernel(choices);
        let text = to_text(&original, TextOptions { locations: false });
        prop_assert!(verify(&original).is_ok(), "{text}");
        let expected = behaviour(&original);
        type Pass = (&'static str, fn(&mut Kernel));
        let passes: [Pass; 5] = [
            ("fold", fold),
            ("cse", cse),
            ("dce", dce),
            ("legalise", legalise),
            ("renumber", renumber),
        ];
        let mut chained = original.clone();
        for (name, pass) in passes {
            let mut alone = original.clone();
            pass(&mut alone);
            pass(&mut chained);
            for kernel in [&alone, &chained] {
                if let Err(error) = verify(kernel) {
                    prop_assert!(false, "{name}: {error}\n{text}");
                }
                prop_assert_eq!(&behaviour(kernel), &expected, "{}\n{}", name, text);
            }
        }
        let optimised = optimise(original).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&behaviour(&optimised), &expected, "optimise\n{}", text);
    }
}

/// The text of a kernel of one role with a parameter `%0` that stores the last value.
fn expression(body: &str, ty: &str, last: &str) -> Kernel {
    let text = format!(
        r#"kernel "test", cluster 1
param0 = "n": u32
param1 = "out": u64
role0 = "all": 1 warpgroups, 248 registers
{{
  %0: u32 = param[param0]
  %1: u64 = param[param1]
  {body}
  store.global.{ty}.weak.cta[vector=1] %1, {last}
}}
"#
    );
    parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The instructions of a kernel's text, without declarations.
fn listing(kernel: &Kernel) -> String {
    let text = to_text(kernel, TextOptions { locations: false });
    let start = text.find("\n{").map_or(0, |position| position + 1);
    text[start..].to_owned()
}

/// The body of a kernel that stores the value, after optimisation.
#[track_caller]
fn becomes(body: &str, ty: &str, last: &str, expected: &str) {
    let optimised = optimise(expression(body, ty, last)).unwrap();
    let lines: Vec<String> = listing(&optimised)
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !matches!(line.as_str(), "{" | "}"))
        .filter(|line| !line.contains("param[") && !line.starts_with("store"))
        .collect();
    assert_eq!(lines.join("; "), expected);
}

#[test]
fn integers_fold_as_documented() {
    let folds = |op: &str, a: &str, b: &str, expected: &str| {
        let body =
            format!("%2: u32 = const.u32 {a}\n%3: u32 = const.u32 {b}\n%4: u32 = {op} %2, %3");
        becomes(&body, "u32", "%4", &format!("%1: u32 = const.u32 {expected}"));
    };
    folds("add", "4294967295", "2", "1");
    folds("sub", "1", "2", "4294967295");
    folds("mul", "65536", "65537", "65536");
    folds("div", "7", "0", "4294967295");
    folds("rem", "7", "0", "7");
    folds("shl", "7", "32", "0");
    folds("shr", "7", "40", "0");
    folds("min", "2147483648", "1", "1");
}

#[test]
fn nans_and_equal_zeros_are_left_to_the_hardware() {
    for (op, a, b) in [
        ("sub", 0x7f80_0000u32, 0x7f80_0000u32),
        ("min", 0x8000_0000, 0),
        ("max", 0x7fc0_0000, 0x3f80_0000),
    ] {
        let body =
            format!("%2: f32 = const.f32 {a}\n%3: f32 = const.f32 {b}\n%4: f32 = {op} %2, %3");
        let optimised = optimise(expression(&body, "f32", "%4")).unwrap();
        assert!(listing(&optimised).contains(op));
    }
}

#[test]
fn identities_leave_the_operand() {
    let zero = "%2: u32 = const.u32 0\n%3: u32 = const.u32 1\n%5: u32 = const.u32 4294967295\n";
    for body in [
        "add %0, %2",
        "add %2, %0",
        "sub %0, %2",
        "mul %0, %3",
        "mul %3, %0",
        "div %0, %3",
        "and %0, %5",
        "or %0, %2",
        "xor %2, %0",
        "shl %0, %2",
        "shr %0, %2",
        "min %0, %0",
    ] {
        becomes(&format!("{zero}%4: u32 = {body}"), "u32", "%4", "");
    }
    for body in ["mul %0, %2", "and %2, %0", "rem %0, %3", "sub %0, %0", "xor %0, %0", "shl %2, %0"]
    {
        becomes(&format!("{zero}%4: u32 = {body}"), "u32", "%4", "%1: u32 = const.u32 0");
    }
    becomes(&format!("{zero}%4: u32 = or %5, %0"), "u32", "%4", "%1: u32 = const.u32 4294967295");
    becomes(&format!("{zero}%4: bool = lt %3, %2\n%6: u32 = select %4, %2, %0"), "u32", "%6", "");
}

#[test]
fn nothing_unsigned_is_below_zero() {
    let zero = "%2: u32 = const.u32 0\n";
    for op in ["lt", "ge"] {
        let body = format!(
            "{zero}%3: bool = {op} %0, %2\n%4: u32 = const.u32 7\n\
             %5: u32 = select %3, %0, %4"
        );
        let optimised = listing(&optimise(expression(&body, "u32", "%5")).unwrap());
        assert!(!optimised.contains("select"), "{optimised}");
        assert_eq!(optimised.contains("const.u32 7"), op == "lt", "{optimised}");
    }
    let signed = "%2: s32 = const.s32 0\n%3: s32 = bitcast.s32 %0\n%4: bool = lt %3, %2\n\
                  %5: s32 = select %4, %3, %2\n\
                  %6: u32 = bitcast.u32 %5";
    assert!(listing(&optimise(expression(signed, "u32", "%6")).unwrap()).contains("select"));
}

#[test]
fn powers_of_two_become_shifts_and_masks() {
    let by = |op: &str, constant: u32| format!("%2: u32 = const.u32 {constant}\n%3: u32 = {op}");
    becomes(&by("mul %2, %0", 64), "u32", "%3", "%2: u32 = const.u32 6; %3: u32 = shl %0, %2");
    becomes(&by("div %0, %2", 128), "u32", "%3", "%2: u32 = const.u32 7; %3: u32 = shr %0, %2");
    becomes(&by("rem %0, %2", 128), "u32", "%3", "%2: u32 = const.u32 127; %3: u32 = and %0, %2");
    let wide = |op: &str| format!("%2: u64 = const.u64 256\n%3: u64 = {op} %1, %2");
    becomes(&wide("rem"), "u64", "%3", "%1: u64 = const.u64 255; %2: u64 = and %0, %1");
    becomes(&wide("mul"), "u64", "%3", "%1: u32 = const.u32 8; %2: u64 = shl %0, %1");
}

#[test]
fn quotients_and_remainders_by_constants_become_products() {
    let by = |op: &str, constant: u32| format!("%2: u32 = const.u32 {constant}\n%3: u32 = {op}");
    let high = |multiplier: u32, shift: u32| {
        format!(
            "%2: u32 = const.u32 {multiplier}; %3: u32 = mul_high %0, %2; %4: u32 = const.u32 \
             {shift}; %5: u32 = shr %3, %4"
        )
    };
    becomes(&by("div %0, %2", 96), "u32", "%3", &high(0xaaaa_aaab, 6));
    let both = "%2: u32 = const.u32 9\n%3: u32 = div %0, %2\n%4: u32 = rem %0, %2\n\
                %5: u32 = add %3, %4";
    let optimised = listing(&optimise(expression(both, "u32", "%5")).unwrap());
    assert_eq!(optimised.matches("mul_high").count(), 1, "{optimised}");
    assert!(!optimised.contains(" div ") && !optimised.contains(" rem "), "{optimised}");
    let wide = "%2: u64 = const.u64 96\n%3: u64 = div %1, %2";
    assert!(listing(&optimise(expression(wide, "u64", "%3")).unwrap()).contains("div"));
}

#[test]
fn the_index_of_a_cluster_follows_from_that_of_the_cta() {
    for (cluster, operation) in [(1, "special.cta"), (4, "shr"), (6, "mul_high")] {
        let mut kernel = expression("%2: u32 = special.cluster", "u32", "%2");
        kernel.cluster = cluster;
        let optimised = listing(&optimise(kernel).unwrap());
        assert!(optimised.contains(operation), "{optimised}");
        assert!(!optimised.contains("cluster"), "{optimised}");
    }
}

#[test]
fn roles_become_a_chain_of_branches() {
    let text = r#"kernel "roles", cluster 1
role0 = "load": 1 warpgroups, 40 registers
role1 = "math": 2 warpgroups, 152 registers
role2 = "store": 1 warpgroups, 128 registers
{
  cluster_wait
  roles[role0, role1, role2] {
    wgmma_fence
    yield
  } {
    wgmma_commit
    yield
  } {
    bulk_commit
    yield
  }
  cluster_arrive
}
"#;
    let optimised = optimise(parse(text).unwrap()).unwrap();
    insta::assert_snapshot!(listing(&optimised));
}

#[test]
fn a_single_role_needs_no_branch_and_an_unlisted_one_gives_registers_back() {
    let one = r#"kernel "one", cluster 1
role0 = "all": 2 warpgroups, 128 registers
{
  roles[role0] {
    bulk_commit
    yield
  }
}
"#;
    let lowered = |text: &str| listing(&optimise(parse(text).unwrap()).unwrap());
    assert_eq!(lowered(one), "{\n  set_max_registers.decrease[count=128]\n  bulk_commit\n}\n");
    // 65536 / 256 = 256 registers, but a thread has at most 248 at entry.
    assert_eq!(lowered(&one.replace("128 reg", "248 reg")), "{\n  bulk_commit\n}\n");
    // Half as many if two CTAs share an SM.
    let two = one.replace("cluster 1", "cluster 1, ctas_per_sm 2");
    assert_eq!(lowered(&two), "{\n  bulk_commit\n}\n");
    let unlisted = one
        .replace("2 warpgroups, 128", "1 warpgroups, 200")
        .replace("registers\n{", "registers\nrole1 = \"idle\": 1 warpgroups, 24 registers\n{");
    assert!(lowered(&unlisted).contains("} {\n    set_max_registers.decrease[count=24]\n"));
}

#[test]
fn effects_stay_where_they_are() {
    let body = "%2: bool = elect
        %3: bool = elect
        if %2 {
          %4: u32 = const.u32 9
          %5: u32 = add %4, %0
          yield
        } {
          yield
        }
        %6: u32, %7: u32 = load.global.u32.weak.cta[vector=2] %1";
    let optimised = optimise(expression(body, "u32", "%0")).unwrap();
    let text = listing(&optimised);
    assert_eq!(text.matches("elect").count(), 2);
    assert_eq!(text.matches("load").count(), 1);
    assert!(!text.contains("if") && !text.contains("add"), "{text}");
}

#[test]
fn expressions_are_shared_only_where_they_dominate() {
    let body = "%2: u32 = special.cta
        %3: bool = lt %2, %0
        %4: u32 = if %3 {
          %5: u32 = add %2, %0
          yield %5
        } {
          %6: u32 = add %0, %2
          %7: u32 = add %2, %0
          %8: u32 = xor %6, %7
          %9: u32 = sub %6, %2
          yield %9
        }
        %10: u32 = add %2, %0
        %11: u32 = xor %4, %10";
    let optimised = optimise(expression(body, "u32", "%11")).unwrap();
    assert_eq!(listing(&optimised).matches("add").count(), 3);
}

#[test]
fn register_fragments_are_not_merged() {
    let body = "%2: f32 = const.f32 0x3f800000
        %3: b32 = pack.bf16 %2, %2
        wgmma_fence
        wgmma.bf16.registers.bf16.k[acc0, n=8] %3, %3, %3, %3, %6, %7
        wgmma_commit
        %4: b32 = pack.bf16 %2, %2
        wgmma_wait[pending=0]";
    let text = listing(&expression("", "u32", "%0"));
    let text = text.replace(
        "store",
        &format!(
            "%5: smem = smem_address[region0]
         %6: desc = descriptor.b128[leading=0, stride=1024] %5
         %7: bool = const.bool true
         {body}
         store.global.b32.weak.cta[vector=1] %1, %4\nstore"
        ),
    );
    let header = "kernel \"k\", cluster 1
        param0 = \"n\": u32
        param1 = \"out\": u64
        role0 = \"all\": 1 warpgroups, 248 registers
        region0 = \"b\": bf16 offset 0, bytes 1024, align 1024
        acc0 = f32, 4 registers\n";
    let mut kernel = parse(&format!("{header}{text}")).unwrap();
    cse(&mut kernel);
    assert_eq!(listing(&kernel).matches("pack").count(), 2);
}

#[test]
fn locations_are_kept() {
    let kernel = expression("%2: u32 = const.u32 8\n%3: u32 = mul %0, %2", "u32", "%3");
    let locations = kernel.locations.clone();
    let optimised = optimise(kernel).unwrap();
    assert_eq!(optimised.locations, locations);
    let mut places = vec![];
    optimised.visit(&mut |inst| {
        places.push((inst.op.clone(), optimised.location(inst.loc).line));
    });
    assert!(places.contains(&(Op::Binary(BinaryOp::Shl), 9)), "{places:?}");
    assert!(places.contains(&(Op::Const(Constant::U32(3)), 9)), "{places:?}");
}

#[test]
fn invalid_kernels_are_refused() {
    let kernel = expression("mbarrier_arrive %0", "u32", "%0");
    let PassError::Invalid(error) = optimise(kernel).unwrap_err() else { panic!() };
    assert_eq!(error.violations.len(), 1);
}

#[test]
fn doubles_are_neither_reordered_nor_taken_for_numbers() {
    let body = "%2: f64 = load.global.f64.weak.cta[vector=1] %1
        %3: f64 = load.global.f64.weak.cta[vector=1] %1
        %4: f64 = add %2, %3
        %5: f64 = add %3, %2
        %6: bool = eq %4, %4
        %7: f64 = select %6, %4, %5";
    let optimised = listing(&optimise(expression(body, "f64", "%7")).unwrap());
    assert_eq!(optimised.matches("= add").count(), 2, "{optimised}");
    assert!(optimised.contains("= eq"), "{optimised}");
}

#[test]
fn custom_instructions_are_merged_and_dropped_only_if_they_are_pure() {
    let custom = |number: u32, effect: &str| {
        format!(
            "%{number}: u32 = custom.own.{effect}[ptx=\"own $r0, $0\", operands=\"u32\", \
             results=\"u32\"] %0\n"
        )
    };
    for (effect, left) in [("pure", 1), ("reads", 3)] {
        let body = [2, 3, 4].map(|number| custom(number, effect)).concat();
        let kernel = expression(&format!("{body}%5: u32 = add %2, %3"), "u32", "%5");
        let kernel = optimise(kernel).unwrap();
        let mut found = 0;
        kernel.visit(&mut |inst| found += usize::from(matches!(inst.op, Op::Custom(_))));
        assert_eq!(found, left, "{effect}");
    }
}

//! `pgemm kernel`.

use crate::common::line;

const SPEC: &str = "bf16-kn-bf16-64x64x64-s10-w1-c1x1";

#[test]
fn the_catalogue_is_listed() {
    let json = line("kernel list --json").fine().json();
    let kernels = json.as_array().unwrap();
    assert!(kernels.len() > 100);
    assert!(kernels.iter().all(|kernel| kernel["smem_bytes"].as_u64().unwrap() <= 232_448));
    let text = line("kernel list").fine();
    // A header, a rule, and one line for each.
    assert_eq!(text.stdout.lines().count(), kernels.len() + 2);
    assert_eq!(text.stderr, format!("pgemm: {} kernels\n", kernels.len()));
    for kernel in kernels {
        let name = kernel["kernel"].as_str().unwrap();
        assert!(text.stdout.contains(&format!("{name} ")), "{name}");
    }

    let some = line("kernel list f16-mn-f32-256x").fine();
    assert!(some.stdout.lines().skip(2).all(|line| line.contains("f16-mn-f32-256x")));
    let majors = |d: &str, schedule: &str| {
        let kernel = |kernel: &&serde_json::Value| {
            (kernel["d_major"].as_str(), kernel["schedule"].as_str()) == (Some(d), Some(schedule))
        };
        kernels.iter().filter(kernel).map(|kernel| kernel["kernel"].as_str().unwrap()).collect()
    };
    let swapped: Vec<&str> = majors("m", "cooperative");
    assert!(
        !swapped.is_empty()
            && swapped.iter().all(|name| name.split('-').nth(1).unwrap().len() == 3)
    );
    let turns: Vec<&str> = majors("n", "ping-pong");
    assert!(!turns.is_empty() && turns.iter().all(|name| name.contains("-p2-")));
    let none = line("kernel list nothing-is-called-so").fine();
    assert_eq!(none.stderr, "pgemm: 0 kernels\n");
    assert_eq!(
        line("kernel list nothing-is-called-so --json").fine().json(),
        serde_json::json!([])
    );
}

#[test]
fn a_kernel_is_shown_in_text_and_ptx() {
    let text = line(&format!("kernel show {SPEC}")).fine().stdout;
    assert!(text.starts_with("kernel \"gemm_bf16_kn_bf16_64x64x64_s10_w1_c1x1\""), "{text}");
    assert!(text.contains("wgmma") && text.contains("= \"producer\": 1 warpgroups"));
    // The text form is a language: what is printed can be read.
    pgemm_ir::text::parse(&text).unwrap();

    let ptx = line(&format!("kernel ptx {SPEC}")).fine().stdout;
    let canonical = line(&format!("kernel ptx {SPEC} --canonical")).fine().stdout;
    for ptx in [&ptx, &canonical] {
        assert!(ptx.contains(".target sm_90a") && ptx.contains("wgmma.mma_async"));
    }
    assert!(ptx.contains("// crates/kernels/src/") && !canonical.contains("//"));
    let code: String = ptx
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect();
    assert_eq!(code, canonical);
}

#[test]
fn kernels_are_checked() {
    let other = "f16-mk-f32-128x128x64-s6-w2-c2x1";
    let run = line(&format!("kernel check {SPEC} {other} --json")).fine();
    let json = run.json();
    for (row, name) in [(0, SPEC), (1, other)] {
        assert_eq!(json[row]["kernel"], name);
        assert_eq!((&json[row]["verified"], &json[row]["clean"]), (&true.into(), &true.into()));
        assert_eq!(json[row]["findings"], serde_json::json!([]));
        // Without an assembler it says so.
        let assembled = json[row]["assembled"].as_bool().unwrap();
        assert_eq!(assembled, !run.stderr.contains("not assembled: no ptxas"));
        assert_eq!(assembled, json[row]["registers"].is_u64());
    }
    let table = line(&format!("kernel check {SPEC}")).fine().stdout;
    assert!(table.contains("passed") && table.contains(SPEC), "{table}");
}

#[test]
fn kernels_are_emulated() {
    for (spec, problem) in [
        (SPEC, "100x72x200"),
        ("f16-mk-f32-128x64x64-s8-w2-c1x1", "130x70x66"),
        ("bf16-kk-bf16-128x128x64-s6-w2-c2x1", "300x200x64"),
    ] {
        let json = line(&format!("kernel emulate {spec} --problem {problem} --json")).fine().json();
        assert_eq!(json["kernel"], spec);
        assert_eq!(json["verification"]["passed"], true);
    }
    // A column-major D, of a problem whose D is row-major: of the operands' majors, all that such a kernel can have.
    for majors in ["kkm", "knm", "mkm", "mnm"] {
        let spec = format!("bf16-{majors}-bf16-64x16x64-s6-w1-c1x1");
        for split in ["whole", "split-3 --unordered", "stream-k"] {
            let line =
                line(&format!("kernel emulate {spec} --problem 20x136x330 --split {split} --json"));
            let json = line.fine().json();
            assert_eq!((&json["problem"]["m"], &json["problem"]["n"]), (&20.into(), &136.into()));
            assert_eq!(json["verification"]["passed"], true, "{spec} {split}");
            assert_eq!(json["plan"]["split_tiles"].as_u64().unwrap() > 0, split != "whole");
        }
    }
    let text = line(&format!("kernel emulate {SPEC} --problem 64x64x64 --seed 4")).fine().stdout;
    assert!(text.contains("no race") && text.contains("verification  correct"), "{text}");
    line(&format!("kernel emulate {SPEC} --problem 64")).fine();
    line(&format!("kernel emulate {SPEC} --problem 4x")).refused(&["'4x' is not a problem size"]);
}

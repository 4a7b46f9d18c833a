//! `pgemm kernel`.

use std::fs;
use std::path::Path;

use persistent_gemm::heuristic::{self, Shape};
use persistent_gemm::{Config, Dtype, Major, Plan, Problem, Split};

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

/// The drawing in the book is what the command beside it draws.
#[test]
fn the_books_drawing_is_that_of_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = folder.path().join("tiling.svg");
    let kernel = "bf16-kn-bf16-256x192x64-s3-w2-c2x1";
    let run = line(&format!("kernel show {kernel} --svg {}", drawn.display())).fine();
    assert!(run.stdout.contains("drawn to"), "{}", run.stdout);
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images/tiling.svg");
    let [drawn, committed] = [&drawn, &committed].map(|path| fs::read_to_string(path).unwrap());
    assert!(drawn == committed, "draw docs/images/tiling.svg again");
    line("kernel show f64-kn-f64-128x128x16-s6-w2x4-k8 --svg x.svg").refused(&["cannot be drawn"]);
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
    // A column-major D, of a problem whose D is row-major: of the operands' majors, all that such a
    // kernel can have.
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

/// The cells of a table's rows, below header and rule.
fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().skip(2).map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn plans_are_those_of_the_planner_in_its_order() {
    let problem = Problem::new(1536, 1280, 4096, Major::K, Major::N);
    let config = Config::new(Dtype::F16).with_output(Dtype::F32);
    let plans = Plan::candidates(&problem, &config, 78).unwrap();
    let command = "kernel plan --problem 1536x1280x4096 --b-major n --dtype f16 --output-dtype f32 \
                   --sm-count 78 --top 7";

    let text = line(command).fine().stdout;
    let (title, table) = text.split_once('\n').unwrap();
    let of = format!(
        "1536x1280x4096, f16 -> f32, A k-major, B n-major, 78 SMs: by the heuristic, the first 7 \
         of {} candidates",
        plans.len()
    );
    assert_eq!(title, of);
    let header = table.lines().next().unwrap();
    assert!(header.contains("est. cycles") && header.contains("est. µs at 1.7 GHz"), "{header}");
    let rows = rows(table);
    assert_eq!(rows.len(), 7);

    let json = line(&format!("{command} --json")).fine().json();
    let shown = json[0]["plans"].as_array().unwrap();
    assert_eq!((json.as_array().unwrap().len(), shown.len()), (1, 7));
    assert_eq!(json[0]["candidates"], plans.len());
    let cycles_of = |plan: &Plan| {
        let shape = Shape::with_accesses(&problem, &config, plan.accesses);
        heuristic::cycles(&plan.choice(), shape, 78)
    };
    let least = cycles_of(&plans[0]);
    for (index, plan) in plans[..7].iter().enumerate() {
        let cycles = cycles_of(plan);
        let ctas = match plan.spec.cluster.size() {
            1 => plan.clusters.to_string(),
            size => format!("{}x{size}", plan.clusters),
        };
        let yes_or_no = |yes| if yes { "yes" } else { "no" }.to_owned();
        let expected = [
            (index + 1).to_string(),
            plan.spec.to_string(),
            plan.split.to_string(),
            plan.raster_rows.to_string(),
            if plan.dependent_launch { "dependent" } else { "serial" }.to_owned(),
            yes_or_no(plan.swapped()),
            ctas,
            plan.tiles.to_string(),
            format!("{:.2}", plan.waves),
            plan.split_tiles.to_string(),
            yes_or_no(plan.split_tiles > 0),
            format!("{cycles:.0}"),
            format!("{:.2}", cycles / 1700.0),
            format!("{:.3}", cycles / least),
        ];
        assert_eq!(rows[index], expected);
        let row = &shown[index];
        assert_eq!(row["rank"], index + 1);
        assert_eq!(row["plan"], serde_json::to_value(plan).unwrap());
        assert_eq!(row["swapped"], plan.swapped());
        assert_eq!(row["ctas"], plan.clusters * plan.spec.cluster.size());
        for (figure, expected) in [
            ("estimated_cycles", cycles),
            ("estimated_microseconds", cycles / 1700.0),
            ("ratio", cycles / least),
        ] {
            let figure = row[figure].as_f64().unwrap();
            assert!((figure / expected - 1.0).abs() < 1e-12, "{figure}, not {expected}");
        }
    }
}

#[test]
fn knobs_shape_what_is_planned() {
    // Several problems, with one blank line between their tables.
    let text = line("kernel plan --problem 16x8192x28672 --problem 64 --top 1").fine().stdout;
    let tables: Vec<_> = text.split("\n\n").collect();
    assert_eq!(tables.len(), 2);
    assert!(tables[0].starts_with("16x8192x28672,") && tables[1].starts_with("64x64x64,"));

    let json = line("kernel plan --problem 16x8192x28672 --split stream-k --sms 100 --json");
    let json = json.fine().json();
    assert_eq!(json[0]["sms"], 100);
    let plans = json[0]["plans"].as_array().unwrap();
    assert_eq!(plans.len(), 10);
    for row in plans {
        assert_eq!(row["plan"]["split"], serde_json::to_value(Split::StreamK).unwrap());
        assert!(row["ctas"].as_u64().unwrap() <= 100, "{row}");
        assert_eq!(row["needs_workspace"], row["plan"]["split_tiles"].as_u64().unwrap() > 0);
    }

    // Knobs of the kernel leave one candidate, and a reason; a name brings its types.
    let text = line("kernel plan --problem 1024 --tile 512x256x64").fine().stdout;
    assert!(text.contains("SMs: macro-tile 512x256 as "), "{text}");
    assert_eq!(rows(text.split_once('\n').unwrap().1).len(), 1);
    let named = "f16-kk-f32-128x128x64-s6-w2-c2x1";
    let json = line(&format!("kernel plan --problem 1024 --spec {named} --json")).fine().json();
    assert_eq!((&json[0]["dtype"], &json[0]["output_dtype"]), (&"f16".into(), &"f32".into()));
    assert_eq!(json[0]["plans"][0]["plan"]["spec"], named);
    assert_eq!((&json[0]["candidates"], &json[0]["plans"][0]["ratio"]), (&1.into(), &1.0.into()));

    let mixed = "kernel plan --problem 512 --dtype e5m2 --b-dtype e4m3 --swapped --json";
    let json = line(mixed).fine().json();
    assert_eq!((&json[0]["dtype"], &json[0]["b_dtype"]), (&"e5m2".into(), &"e4m3".into()));
    assert_eq!(json[0]["output_dtype"], "bf16");
    let spec = json[0]["plans"][0]["plan"]["spec"].as_str().unwrap();
    assert!(spec.starts_with("e4m3_e5m2-kkm-bf16-"), "{spec}");
    let text = line("kernel plan --problem 512 --dtype s8 --top 1").fine().stdout;
    assert!(text.contains("s8 -> s32, A k-major, B k-major"), "{text}");

    let passes = "kernel plan --problem 63x64x512 --dtype e4m3 --b-major n --d-major m --top 1";
    let text = line(passes).fine().stdout;
    // Of the transposed problem.
    assert!(text.contains("B n-major, D m-major"), "{text}");
    assert!(text.contains("SMs: A repacked along k, by the"), "{text}");
    // tf32 goes through registers there, unless a kernel is named that reads it along k.
    let turned = "kernel plan --problem 512 --dtype tf32 --b-major n --json --top 1";
    for (spec, reading) in [("", "in_place"), ("--spec tf32-kk-f32-64x64x64-s5-w1-c1x1", "turned")]
    {
        let json = line(&format!("{turned} {spec}")).fine().json();
        let plan = &json[0]["plans"][0]["plan"];
        assert_eq!(plan["readings"], serde_json::json!({ "a": "in_place", "b": reading }));
    }
    let unaligned = "kernel plan --problem 4095 --top 1 --json";
    let json = line(unaligned).fine().json();
    let plan = &json[0]["plans"][0]["plan"];
    assert_eq!(plan["readings"], serde_json::json!({ "a": "laid_out", "b": "laid_out" }));
    assert!(plan["pass_cycles"].as_f64().unwrap() > 10_000.0, "{plan}");

    // As many tiles as the products have together.
    let batch = "kernel plan --problem 512x512x512*64 --problem 512 --batch-stride-b 0 --top 1";
    let text = line(batch).fine().stdout;
    assert!(
        text.starts_with("512x512x512*64, bf16") && text.contains("\n512x512x512, bf16"),
        "{text}"
    );
    let json = line(&format!("{batch} --json")).fine().json();
    let tiles = |at: usize| {
        let plan = &json[at]["plans"][0]["plan"];
        let tiles = plan["tiles"].as_u64().unwrap();
        let spec: pgemm_kernels::Spec = plan["spec"].as_str().unwrap().parse().unwrap();
        let (tile, cluster) = (spec.tile, spec.cluster);
        (tiles, 512u32.div_ceil(tile.m * cluster.m) * 512u32.div_ceil(tile.n * cluster.n))
    };
    let ((batched, of_one), (single, tiles)) = (tiles(0), tiles(1));
    assert_eq!((batched, single), (64 * u64::from(of_one), tiles.into()));
    assert!(json[1]["problem"].get("batch").is_none(), "{}", json[1]);

    let nothing = line("kernel plan --problem 0x64x64").fine().stdout;
    assert!(nothing.ends_with("nothing to compute: D has no elements\n"), "{nothing}");
    let nothing = line("kernel plan --problem 64x0x64 --json").fine().json();
    assert_eq!(nothing[0]["plans"], serde_json::json!([]));
}

#[test]
fn plans_that_are_impossible() {
    line("kernel plan").refused(&["--problem <MxNxK[*BATCH]>"]);
    for (arguments, parts) in [
        ("--problem 4x", &["'4x' is not a problem size"][..]),
        ("--problem 64*x", &["'64*x' is not a batch"]),
        ("--problem 64*9999999999", &["the batch", "268435456"]),
        ("--problem 64 --top 0", &["--top", "0 is not in 1.."]),
        ("--problem 64 --sm-count 0", &["--sm-count", "0 is not in 1..=1024"]),
        ("--problem 64 --dtype s32", &["no kernel multiplies s32 by s32", "bf16×bf16"]),
        ("--problem 64 --d-major k", &["'k' is not a major of D", "m (column-major)"]),
        ("--problem 64 --prefetch-depth 99", &["with 99 stages needs", "stages fit"]),
        (
            "--problem 64 --warps-per-block 10",
            &["warps_per_block = 10", "nearest legal value is 12"],
        ),
        (
            "--problem 64 --spec bf16-kn-bf16-64x64x64-s10-w1-c1x1",
            &["does not compute this problem"],
        ),
        // One that can be planned does not stand before the error.
        ("--problem 64 --problem 2147483648x1x1", &["2147483647"]),
    ] {
        line(&format!("kernel plan {arguments}")).refused(parts);
    }
}

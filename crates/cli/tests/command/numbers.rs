//! `pgemm numbers` without a GPU.

use crate::common::line;

#[test]
fn errors_of_every_type_are_within_their_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.json");
    let run = line(&format!(
        "numbers --backend cpu --problem 24x40x300 --problem 16x16x1 --json {}",
        path.display()
    ))
    .fine();
    assert!(!run.stdout.contains("WRONG") && run.stderr.is_empty(), "{}{}", run.stdout, run.stderr);
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((&report["kind"], &report["backend"]), (&"numbers".into(), &"cpu".into()));
    assert_eq!(report["command"][1], "numbers");
    let entries = report["entries"].as_array().unwrap();
    // The header has two lines.
    assert_eq!(entries.len() + 2, run.stdout.lines().count());
    let mut types: Vec<String> = Vec::new();
    for entry in entries {
        let errors = &entry["results"][0]["errors"];
        assert_eq!(errors["within_bound"], true, "{entry}");
        assert_eq!(errors["not_a_number"], 0, "{entry}");
        let [normwise, part] =
            ["normwise", "of_bound"].map(|field| errors[field].as_f64().unwrap());
        let output = entry["elements"]["d"].as_str().unwrap();
        let most = if output.starts_with('e') { 0.1 } else { 0.01 };
        assert!(part <= 1.0 && (normwise < most || output == "s8"), "{entry}");
        let rounds = ["bf16", "tf32", "f64"].iter().any(|dtype| entry["elements"]["a"] == *dtype);
        if output == "s32" {
            assert_eq!(normwise, 0.0, "{entry}");
        } else if rounds && entry["problem"]["k"] == 300 {
            assert!(normwise > 0.0, "{entry}");
        }
        types.push(entry["elements"]["a"].as_str().unwrap().to_owned());
    }
    for dtype in ["bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8", "f64"] {
        assert!(types.iter().any(|found| found == dtype), "{dtype}");
    }
}

/// Modes are those of kernels, which the emulator runs.
#[test]
fn modes_are_measured_where_there_are_kernels() {
    let sizes = "--dtype bf16,u8 --values uniform,integers --problem 16x16x2048";
    let run = line(&format!("numbers --backend emulator {sizes}")).fine();
    for part in ["bf16->f32", "u8*s8->s32", "pgemm whole", "pgemm split-16"] {
        assert!(run.stdout.contains(part), "{part} is missing in: {}", run.stdout);
    }
    let normwise = |by: &str| -> f64 {
        let row = run.stdout.lines().find(|line| line.contains(by)).unwrap();
        let after = row.split(by).nth(1).unwrap();
        after.split_whitespace().next().unwrap().parse().unwrap()
    };
    // Sums of positive numbers are nearer where they are added up in parts.
    assert!(normwise("pgemm split-16") < normwise("pgemm whole"), "{}", run.stdout);
    let cpu = line(&format!("numbers --backend cpu {sizes}")).fine();
    assert!(!cpu.stdout.contains("pgemm whole"), "{}", cpu.stdout);
}

#[test]
fn requests_that_cannot_be_served_are_refused() {
    let cpu = "numbers --backend cpu";
    line(&format!("{cpu} --against cublaslt")).refused(&["cuBLASLt runs on a GPU", "cpu"]);
    line(&format!("{cpu} --dtype s8 --values wide")).refused(&["integers are for s8 and u8"]);
    line(&format!("{cpu} --values small")).refused(&["'small'", "normal, uniform, wide, integers"]);
    line(&format!("{cpu} --problem 0x4x4")).refused(&["0"]);
    line(&format!("{cpu} --problem 4x4")).refused(&["'4x4' is not a problem size"]);
}

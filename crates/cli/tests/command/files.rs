//! `pgemm run` on matrices in files.

use std::path::Path;

use crate::common::{Float, Matrix, Run, fixture, pgemm, read_npy, write_npy};

fn multiply(a: &Path, b: &Path, out: &Path, extra: &[&str]) -> Run {
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let mut arguments = vec![
        "run".to_owned(),
        "--a".into(),
        path(a),
        "--b".into(),
        path(b),
        "--out".into(),
        path(out),
    ];
    arguments.extend(extra.iter().map(|&argument| argument.to_owned()));
    pgemm(arguments)
}

/// Largest error over its bound. `unit_in` is the unit roundoff of the type that the operands were
/// rounded to, 0 where they were of it; products are added in single precision in any order.
fn worst_ratio(d: &Matrix, a: &Matrix, b: &Matrix, unit_in: f64, unit_out: f64) -> f64 {
    let (reference, magnitudes) = a.times(b);
    assert_eq!((d.rows, d.columns), (reference.rows, reference.columns));
    let rounding = 2.0 * unit_in + unit_in * unit_in;
    let depth = a.columns as f64 * 2f64.powi(-24);
    let gamma = depth / (1.0 - depth);
    // Below the normal numbers, errors are absolute: half of the smallest f16 for each operand.
    let absolute = 2f64.powi(-24) * a.columns as f64;
    let bound = |(value, size): (&f64, &f64)| {
        let inner = size * (rounding + gamma * (1.0 + rounding)) + absolute;
        inner + unit_out * (value.abs() + inner)
    };
    let bounds = reference.values.iter().zip(&magnitudes.values).map(bound);
    d.values
        .iter()
        .zip(&reference.values)
        .zip(bounds)
        .map(|((computed, exact), bound)| {
            let ratio = (computed - exact).abs() / bound;
            // NaN compares as no number does.
            if ratio.is_nan() { f64::INFINITY } else { ratio }
        })
        .fold(0.0, f64::max)
}

const BF16: f64 = 1.0 / 256.0;
const F32: f64 = 1.0 / 16_777_216.0;
const F16: f64 = 1.0 / 2048.0;

#[test]
fn npy_files_of_odd_extents_on_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let a = Matrix::pseudo_random(1000, 777, 1);
    let b = Matrix::pseudo_random(777, 513, 2);

    let round = |value: f64| f64::from(value as f32);
    let (a32, b32) = (a.clone().rounded(round), b.clone().rounded(round));
    write_npy(&at("a32.npy"), &a32, Float::F32);
    write_npy(&at("b32.npy"), &b32, Float::F32);
    let run =
        multiply(&at("a32.npy"), &at("b32.npy"), &at("d32.npy"), &["--backend", "cpu"]).fine();
    assert!(run.stderr.contains("computed in f32, as the files have it"), "{}", run.stderr);
    assert!(!run.stderr.contains("converted"), "{}", run.stderr);
    let (d, float) = read_npy(&at("d32.npy"));
    assert!(float == Float::F32);
    let ratio = worst_ratio(&d, &a32, &b32, 0.0, F32);
    assert!(ratio > 0.0 && ratio <= 1.0, "{ratio}");

    let in_bf16 = ["--backend", "cpu", "--dtype", "bf16"];
    let run = multiply(&at("a32.npy"), &at("b32.npy"), &at("d32.npy"), &in_bf16).fine();
    assert!(!run.stderr.contains("as the files have it"), "{}", run.stderr);
    for notice in [
        "A: f32 converted to bf16, rounded to nearest even",
        "B: f32 converted to bf16, rounded to nearest even",
        "D is written as f32",
    ] {
        assert!(run.stderr.contains(notice), "{}", run.stderr);
    }
    let (d, float) = read_npy(&at("d32.npy"));
    assert!(float == Float::F32);
    let ratio = worst_ratio(&d, &a32, &b32, BF16, 0.0);
    assert!(ratio > 0.0 && ratio <= 1.0, "{ratio}");

    let round = |value: f64| half::f16::from_f64(value).to_f64();
    let (a16, b16) = (a.rounded(round), b.rounded(round));
    write_npy(&at("a16.npy"), &a16, Float::F16);
    write_npy(&at("b16.npy"), &b16, Float::F16);
    let run =
        multiply(&at("a16.npy"), &at("b16.npy"), &at("d16.npy"), &["--backend", "cpu", "--verify"])
            .fine();
    assert_eq!(run.stderr, "");
    let (d, float) = read_npy(&at("d16.npy"));
    assert!(float == Float::F16);
    let ratio = worst_ratio(&d, &a16, &b16, 0.0, F16);
    assert!(ratio > 0.0 && ratio <= 1.0, "{ratio}");
}

#[test]
fn files_of_numpy_itself_on_cpu_and_emulator() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("d.npy");
    for backend in ["cpu", "emulator"] {
        let (a, b) = (fixture("a_40x24_f32.npy"), fixture("b_24x16_f32_fortran.npy"));
        let run =
            multiply(&a, &b, &out, &["--backend", backend, "--dtype", "f16", "--verify"]).fine();
        assert!(run.stderr.contains("A: f32 converted to f16"), "{}", run.stderr);
        // Fortran order is k-major for B.
        assert!(run.stdout.contains("A k-major, B k-major"), "{}", run.stdout);
        let (d, float) = read_npy(&out);
        assert!(float == Float::F16);
        let ratio = worst_ratio(&d, &read_npy(&a).0, &read_npy(&b).0, F16, F16);
        assert!(ratio > 0.0 && ratio <= 1.0, "{ratio}");

        let (a, b) = (fixture("a_40x24_f16.npy"), fixture("b_24x16_f16.npy"));
        let run = multiply(&a, &b, &out, &["--backend", backend, "--output-dtype", "f32"]).fine();
        assert_eq!(run.stderr, "");
        let (d, float) = read_npy(&out);
        assert!(float == Float::F32);
        let ratio = worst_ratio(&d, &read_npy(&a).0, &read_npy(&b).0, 0.0, 0.0);
        assert!(ratio > 0.0 && ratio <= 1.0, "{ratio}");
    }
}

/// f32 files, as tf32: rounded, and B in C order read in place. Then the product in integers of
/// rounded values, B repacked.
#[test]
fn files_of_numpy_in_tf32_and_as_integers() {
    const TF32: f64 = 1.0 / 2048.0;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("d.npy");
    let (a, b) = (folder.path().join("a.npy"), folder.path().join("b.npy"));
    write_npy(&a, &Matrix::pseudo_random(40, 24, 1), Float::F32);
    write_npy(&b, &Matrix::pseudo_random(24, 16, 2), Float::F32);
    for backend in ["cpu", "emulator"] {
        let run =
            multiply(&a, &b, &out, &["--backend", backend, "--dtype", "tf32", "--verify"]).fine();
        assert!(run.stderr.contains("A: f32 converted to tf32"), "{}", run.stderr);
        assert!(!run.stdout.contains("repacked"), "{}", run.stdout);
        let (d, float) = read_npy(&out);
        assert!(float == Float::F32);
        let ratio = worst_ratio(&d, &read_npy(&a).0, &read_npy(&b).0, TF32, 0.0);
        assert!(ratio > 0.0 && ratio <= 1.0, "{ratio}");
        let bytes = std::fs::metadata(&out).unwrap().len();
        let integers = ["--backend", backend, "--dtype", "s8", "--verify"];
        let run = multiply(&a, &b, &out, &integers).fine();
        assert!(run.stdout.contains("s8 -> s32"), "{}", run.stdout);
        // B is not K-major, as tensor cores read it.
        let turned = ["B repacked along k", "B loaded by threads"];
        let turned = turned.iter().any(|how| run.stdout.contains(how));
        assert_eq!(turned, backend == "emulator", "{}", run.stdout);
        // int32 has the size of float32.
        assert_eq!(std::fs::metadata(&out).unwrap().len(), bytes);
    }
}

#[test]
fn c_is_added() {
    let folder = tempfile::tempdir().unwrap();
    let (c_path, out) = (folder.path().join("c.npy"), folder.path().join("d.npy"));
    let (a, b) = (fixture("a_40x24_f16.npy"), fixture("b_24x16_f16.npy"));
    let c = Matrix::pseudo_random(40, 16, 7).rounded(|value| f64::from(value as f32));
    write_npy(&c_path, &c, Float::F32);
    let c_path = c_path.to_str().unwrap();
    let (product, magnitudes) = read_npy(&a).0.times(&read_npy(&b).0);
    for (backend, alpha, beta) in [("cpu", 1.0, 1.0), ("emulator", -0.5, 3.0)] {
        let (alpha_text, beta_text) = (alpha.to_string(), beta.to_string());
        let mut extra = vec![
            "--backend",
            backend,
            "--c",
            c_path,
            "--output-dtype",
            "f32",
            "--alpha",
            &alpha_text,
        ];
        // beta is 1 where C is given.
        if beta != 1.0 {
            extra.extend(["--beta", beta_text.as_str()]);
        }
        multiply(&a, &b, &out, &extra).fine();
        let d = read_npy(&out).0;
        for (index, &computed) in d.values.iter().enumerate() {
            let exact = alpha * product.values[index] + beta * c.values[index];
            let size = alpha.abs() * magnitudes.values[index] + (beta * c.values[index]).abs();
            assert!((computed - exact).abs() <= 32.0 * 2f64.powi(-24) * size, "element {index}");
        }
    }
}

#[test]
fn tensors_in_and_out() {
    let folder = tempfile::tempdir().unwrap();
    let tensor = format!("{}:layer.0", folder.path().join("d.safetensors").display());
    let (a, b) = (fixture("a_40x24_f32.npy"), fixture("b_24x16_f16.npy"));
    let run =
        multiply(&a, &b, Path::new(&tensor), &["--backend", "cpu", "--dtype", "bf16", "--json"])
            .fine();
    let json = run.json();
    assert_eq!(
        (json["output_dtype"].as_str(), json["out"].as_str()),
        (Some("bf16"), Some(&*tensor))
    );
    // The tensor as an operand: 40x16 times its own layout's transpose does not fit, times a 16x?
    // does.
    let c = folder.path().join("c.npy");
    write_npy(&c, &Matrix::pseudo_random(16, 3, 1), Float::F16);
    let out = folder.path().join("e.npy");
    let run = multiply(Path::new(&tensor), &c, &out, &["--backend", "emulator", "--verify"]).fine();
    assert!(run.stderr.contains("B: f16 converted to bf16"), "{}", run.stderr);
    assert_eq!(read_npy(&out).0.rows, 40);
}

#[test]
fn results_may_be_only_verified() {
    let arguments = |extra: &[&str]| {
        let (a, b) = (fixture("a_40x24_f16.npy"), fixture("b_24x16_f16.npy"));
        let mut arguments: Vec<String> =
            ["run", "--a", a.to_str().unwrap(), "--b", b.to_str().unwrap(), "--backend", "cpu"]
                .map(str::to_owned)
                .to_vec();
        arguments.extend(extra.iter().map(|&argument| argument.to_owned()));
        arguments
    };
    pgemm(arguments(&["--verify"])).fine();
    pgemm(arguments(&[])).refused(&["--out FILE", "--verify"]);
}

/// A matrix with a NaN has no product to be right about.
#[test]
fn a_failed_verification_is_status_1() {
    let folder = tempfile::tempdir().unwrap();
    let (a, out) = (folder.path().join("a.npy"), folder.path().join("d.npy"));
    let mut matrix = Matrix::pseudo_random(8, 24, 1);
    matrix.values[30] = f64::NAN;
    write_npy(&a, &matrix, Float::F16);
    let b = fixture("b_24x16_f16.npy");
    for backend in ["cpu", "emulator"] {
        let run = multiply(&a, &b, &out, &["--backend", backend, "--verify"]);
        assert_eq!(run.status, 1, "{}{}", run.stdout, run.stderr);
        // A row of D is undefined.
        assert!(run.stdout.contains("CANNOT BE JUDGED"), "{}", run.stdout);
        let count = "16 with a reference that is not finite";
        assert!(run.stdout.contains(count), "{}", run.stdout);
        let run = multiply(&a, &b, &out, &["--backend", backend, "--verify", "--json"]);
        assert_eq!(run.status, 1);
        assert_eq!(run.json()["verification"]["passed"], false);
        multiply(&a, &b, &out, &["--backend", backend]).fine();
    }
}

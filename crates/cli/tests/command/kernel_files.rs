//! `pgemm kernel` with kernels in files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Run, pgemm};

fn kernel(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/kernels");
    folder.join(name).with_extension("kernel")
}

/// A command about a kernel in a file, with arguments of one line.
fn about(command: &str, path: &Path, words: &str) -> Run {
    let path = path.to_str().unwrap();
    pgemm(["kernel", command, path].into_iter().chain(words.split_whitespace()))
}

const SAXPY: &str = "--arg n=300 --arg alpha=2.0 --arg x=f32[300]:index --arg y=f32[300]:ones";

#[test]
fn a_kernel_in_a_file_is_shown_and_explained() {
    let path = kernel("saxpy");
    let shown = about("show", &path, "").fine().stdout;
    let text = fs::read_to_string(&path).unwrap();
    let without_locations = |text: &str| -> String {
        let lines = text.lines().filter(|line| !line.starts_with("loc"));
        lines.map(|line| line.split(" !loc").next().unwrap().to_owned() + "\n").collect()
    };
    assert_eq!(without_locations(&shown), without_locations(&text));
    assert!(about("ptx", &path, "--canonical").fine().stdout.contains(".visible .entry saxpy("));

    let page = about("explain", &path, "").fine().stdout;
    let lines = [
        "saxpy(x: u64, y: u64, n: u32, alpha: f32)",
        "  CTAs of an SM   16: registers are chosen for 16, threads allow 16, shared memory 228",
        "  all             warpgroup 0, 32 registers in each thread",
    ];
    for line in lines {
        assert!(page.lines().any(|found| found == line), "{line} in {page}");
    }
    let page = about("explain", &kernel("transpose"), "").fine().stdout;
    assert!(page.contains("tensor map of f32, boxes of 8×16 (outermost first)"), "{page}");
    assert!(page.contains("1 mbarriers"), "{page}");
    // The library's own kernels are explained, too.
    let spec = "bf16-kn-bf16-64x64x64-s10-w1-c1x1";
    assert!(pgemm(["kernel", "explain", spec]).fine().stdout.contains("wgmma"));

    for option in ["--resources", "--svg=a.svg"] {
        about("show", &path, option).refused(&["is for kernels of the library", "explain"]);
    }
}

#[test]
fn a_kernel_in_a_file_is_checked() {
    let run = about("check", &kernel("saxpy"), "").fine();
    assert!(run.stdout.contains("saxpy.kernel: saxpy(x: u64, y: u64, n: u32, alpha: f32)"));
    assert_eq!(run.stdout.lines().count(), 1);
    let rows = about("check", &kernel("saxpy"), "--json").fine().json();
    assert_eq!((&rows[0]["verified"], &rows[0]["clean"]), (&true.into(), &true.into()));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.kernel");
    let text = fs::read_to_string(kernel("saxpy")).unwrap();
    // A barrier of all threads, and one of them wide.
    let condition = text.lines().find(|line| line.trim_start().starts_with("if ")).unwrap();
    let broken = text.replace(condition, &format!("{condition}\n    warp_sync"));
    fs::write(&path, broken.replace("32 registers", "31 registers")).unwrap();
    let run = about("check", &path, "");
    assert_eq!(run.status, 1, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.lines().count() <= 10, "{}", run.stdout);
    let place = format!("at {}:", path.display());
    for part in ["broken.kernel: kernel 'saxpy' breaks", "rule 11", &place, "rule 17"] {
        assert!(run.stdout.contains(part), "{part} in {}", run.stdout);
    }

    let refused = |content: &[u8], parts: &[&str]| {
        fs::write(&path, content).unwrap();
        for command in ["check", "explain", "show", "ptx", "emulate"] {
            about(command, &path, "").refused(parts);
        }
    };
    refused(b"", &["broken.kernel: the text is not a kernel: 1:1: found the end of the text"]);
    refused(b"kernel \"a\", cluster x", &["1:21: found 'x', expected a number"]);
    refused(&text.as_bytes()[..text.len() - 4], &["the end of the text"]);
    refused(b"\x7fELF\x02\x01\xff\xff", &["line 1 is not UTF-8"]);
    refused("{".repeat(1 << 20).as_bytes(), &["1:1: found '{', expected 'kernel'"]);
    let nest = format!("{}{}", text.split_once('{').unwrap().0, "{ if %0 ".repeat(100));
    refused(nest.as_bytes(), &["nested deeper than 64"]);
    fs::write(&path, vec![b' '; (4 << 20) + 1]).unwrap();
    about("check", &path, "").refused(&["it has 4194305 bytes", "at most 4194304"]);
    about("check", folder.path(), "").refused(&["is a directory"]);
    about("check", &folder.path().join("none"), "").refused(&["there is no file", "none"]);
}

#[test]
fn a_kernel_in_a_file_is_emulated() {
    let folder = tempfile::tempdir().unwrap();
    let (saxpy, saved) = (kernel("saxpy"), folder.path().join("y.bin"));
    let words = format!("{SAXPY} --grid 3 --print y --save y={}", saved.display());
    let run = about("emulate", &saxpy, &words).fine();
    assert!(run.stdout.contains("grid        3x1x1 CTAs of 128 threads"), "{}", run.stdout);
    assert!(run.stdout.contains("y: f32[300]\n  1 3 5 7 9 11 13 15\n"), "{}", run.stdout);
    assert!(run.stdout.ends_with("  … 236 more: --save y=FILE writes all\n"), "{}", run.stdout);
    let bytes = fs::read(&saved).unwrap();
    let found: Vec<f32> =
        bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert_eq!(found, (0..300).map(|index| 2.0 * index as f32 + 1.0).collect::<Vec<_>>());

    // Its own result as an input, under another schedule.
    let words = SAXPY.replace("f32[300]:ones", &format!("f32[300]:@{}", saved.display()));
    let words = format!("{words} --grid 3,1,1 --schedule seeded:7 --print y");
    let run = about("emulate", &saxpy, &words).fine();
    assert!(run.stdout.contains("\n  1 5 9 13 "), "{}", run.stdout);

    let words = "--arg source=f32[8,16]:index --arg target=f32[16,8]:unwritten --arg rows=8 \
                 --arg factor=0.5 --print target";
    let run = about("emulate", &kernel("transpose"), words).fine();
    assert!(run.stdout.contains("target: f32[16,8]\n  0 8 16 24 32 40 48 56\n  0.5 8.5 "));
}

#[test]
fn faults_of_a_kernel_in_a_file_are_reported() {
    // The last CTA reads past the array.
    let words = SAXPY.replace("n=300", "n=301");
    let run = about("emulate", &kernel("saxpy"), &format!("{words} --grid 3"));
    assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{}", run.stderr);
    assert!(run.stderr.contains("OutOfBounds") && run.stderr.contains("'x'"), "{}", run.stderr);
    assert!(run.stderr.lines().count() <= 10, "{}", run.stderr);
    // What nothing writes is not printed.
    let words = format!("{} --print y", SAXPY.replace("n=300", "n=0"));
    let words = words.replace("f32[300]:ones", "f32[300]:unwritten");
    let run = about("emulate", &kernel("saxpy"), &words);
    assert!(run.status == 2 && run.stderr.contains("was never written"), "{}", run.stderr);
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let saxpy = kernel("saxpy");
    let none = about("emulate", &saxpy, "").refused(&[
        "no argument for x, y, n, alpha",
        "the kernel is saxpy(x: u64, y: u64, n: u32, alpha: f32)",
    ]);
    // The command that it names works.
    let command = none.stderr.lines().last().unwrap().trim().strip_prefix("pgemm ").unwrap();
    pgemm(command.split_whitespace()).fine();
    for (words, parts) in [
        ("--arg n=300", &["no argument for x, y, alpha"][..]),
        ("--arg m=300", &["no parameter 'm'", "'alpha' (an f32)"]),
        ("--arg n=-1", &["n=-1", "a number of 32 bits"]),
        ("--arg n=4294967296", &["a number of 32 bits"]),
        ("--arg alpha=two", &["an f32, such as 2.0"]),
        ("--arg x=two", &["nor an array such as f32[300]:zeros"]),
        ("--arg n=f32[3]:zeros", &["parameter 'n' of kernel 'saxpy' is a u32"]),
        ("--arg n", &["write NAME=VALUE"]),
        ("--arg x=f33[3]:zeros", &["f33"]),
        ("--arg x=f32[3,0]:zeros", &["extents are numbers from 1 on"]),
        ("--arg x=f32[3", &["after the extents come ']:'"]),
        ("--arg x=f32[3]:many", &["'many' is no content", "@FILE"]),
        ("--arg x=f32[3]:random=x", &["'x' is no seed"]),
        ("--arg x=f32[99999999999]:zeros", &["1073741824 bytes"]),
        ("--arg x=f32[9999999999999,9999999999999]:zeros", &["1073741824 bytes"]),
        ("--arg x=f32[3]:@nowhere.bin", &["nowhere.bin: No such file"]),
        ("--grid 1,2,3,4", &["CTAs along x, y and z"]),
        ("--schedule never", &["'never' is no schedule", "seeded:7"]),
        ("--schedule round-robin:3", &["is no schedule"]),
        ("--print z", &["no array was given as 'z'"]),
        ("--save y", &["write NAME=FILE"]),
        ("--problem 64x64x64", &["--problem is for kernels of the library"]),
    ] {
        about("emulate", &saxpy, words).refused(parts);
    }
    let words = format!("{SAXPY} --grid 0");
    about("emulate", &saxpy, &words).refused(&["grid"]);
    let tile = kernel("transpose");
    about("emulate", &tile, "--arg source=f16[8,16]:zeros").refused(&["f16", "tensor map of f32"]);
    about("emulate", &tile, "--arg source=f32[16]:zeros").refused(&["'source'", "rank 2"]);
    about("emulate", &tile, "--arg source=3").refused(&["an array such as f32[64,64]:random"]);
    about("emulate", &tile, &format!("--arg source=f32[8,16]:@{}", tile.display()))
        .refused(&["transpose.kernel has", "and f32[8, 16] has 512"]);
    let spec = Path::new("bf16-kn-bf16-64x64x64-s10-w1-c1x1");
    about("emulate", spec, "--arg n=3").refused(&["is a kernel of the library", "--problem"]);
}

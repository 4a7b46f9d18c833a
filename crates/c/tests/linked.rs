//! Programs in C and C++ that use the header and are linked with the library. Compilers that are
//! not there are passed over; with `PGEMM_REQUIRE_CC=1` it is a failure if there is none. No program
//! here sees a GPU, and an example computes on the emulated device.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pgemm::packs::Notes;
use pgemm::{assembled, files};
use pgemm_cubins::Group;

const C: [&str; 4] = ["-std=c11", "-Wall", "-Wextra", "-pedantic"];
const CPP: [&str; 5] = ["-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Wconversion"];

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Those of the compilers that are on the path. Without the others it says so past the harness's
/// capture.
fn compilers<const N: usize>(names: [&'static str; N]) -> Vec<&'static str> {
    let runs = |name: &&str| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let (found, missing): (Vec<_>, Vec<_>) = names.into_iter().partition(runs);
    if found.is_empty() {
        let required = std::env::var_os("PGEMM_REQUIRE_CC").is_some_and(|value| value == "1");
        assert!(!required, "none of {} is on the path", names.join(", "));
    }
    for name in missing {
        let line = format!("SKIPPED: programs compiled by {name}, which is not on the path\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    found
}

/// The folder of the library, which cargo builds with the tests.
fn library() -> PathBuf {
    let executable = std::env::current_exe().unwrap();
    let folder = executable.ancestors().nth(2).unwrap().join("examples");
    assert!(
        folder.join("libpersistent_gemm.so").exists(),
        "{} lacks libpersistent_gemm.so: it is built by `cargo test -p persistent-gemm-c` without \
         --test, or with --examples",
        folder.display()
    );
    folder
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?} failed with {}:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Writes a pack with one kernel, which no device will be given.
fn write_pack(path: &Path) {
    let kernels = [("kernel".to_owned(), vec![7; 100])];
    let group = Group::new(&kernels);
    let notes = files::indented(&Notes::new(vec![])).unwrap();
    let pack = pgemm_cubins::write(&[group], assembled::generator(), "ptxas 12.9", &notes).unwrap();
    std::fs::write(path, pack).unwrap();
}

/// Compiles a program of `tests/linked`, links and runs it where no GPU is to be seen. Its argument
/// is the path of a pack.
fn run(compiler: &str, flags: &[&str], program: &str) {
    let work = tempfile::tempdir().unwrap();
    let executable = work.path().join("program");
    let library = library();
    let pack = work.path().join("a.pgemm");
    write_pack(&pack);
    succeeds(
        Command::new(compiler)
            .args(flags)
            .arg("-Werror")
            .arg("-I")
            .arg(folder().join("include"))
            .arg(folder().join("tests/linked").join(program))
            .arg("-o")
            .arg(&executable)
            .arg("-L")
            .arg(&library)
            .args(["-lpersistent_gemm", "-pthread"]),
    );
    succeeds(
        Command::new(executable)
            .arg(pack)
            .env("LD_LIBRARY_PATH", library)
            .env("CUDA_VISIBLE_DEVICES", "")
            .env("PGEMM_CACHE_DIR", work.path()),
    );
}

#[test]
fn the_header_is_clean_in_every_standard() {
    let header = folder().join("include/persistent_gemm.h");
    let check = |compiler: &str, language: &str, standard: &str| {
        succeeds(
            Command::new(compiler)
                .args(["-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror"])
                .args(["-x", language, standard])
                .arg(&header),
        );
    };
    for compiler in compilers(["gcc", "clang"]) {
        for standard in ["-std=c99", "-std=c11", "-std=c17"] {
            check(compiler, "c", standard);
        }
    }
    for compiler in compilers(["g++", "clang++"]) {
        // Before C++17 it has the C API only.
        for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
            check(compiler, "c++", standard);
        }
    }
}

#[test]
fn c_programs_link_and_get_errors() {
    for compiler in compilers(["gcc", "clang"]) {
        run(compiler, &C, "api.c");
    }
}

#[test]
fn cpp_programs_link_and_get_exceptions() {
    for compiler in compilers(["g++", "clang++"]) {
        run(compiler, &CPP, "api.cpp");
        run(compiler, &CPP, "snippet.cpp");
    }
}

/// Compiles a program, links it, runs it on the emulated device with these arguments, and returns
/// what it printed. Arguments that are kernels in files are known to the device.
fn run_on_device(compiler: &str, program: &Path, arguments: &[&Path]) -> String {
    let flags: &[&str] = if program.extension().is_some_and(|it| it == "c") { &C } else { &CPP };
    let work = tempfile::tempdir().unwrap();
    let (executable, library) = (work.path().join("program"), library());
    succeeds(
        Command::new(compiler)
            .args(flags)
            .args(["-Werror", "-D_POSIX_C_SOURCE=200809L"])
            .arg("-I")
            .arg(folder().join("include"))
            .arg("-I")
            .arg(examples())
            .arg(program)
            .arg("-o")
            .arg(&executable)
            .arg("-L")
            .arg(&library)
            .args(["-lpersistent_gemm", "-pthread", "-ldl", "-lm"]),
    );
    let driver = pgemm_emulated_driver::folder().unwrap();
    let paths = std::env::join_paths([driver.path(), library.as_path()]).unwrap();
    let is_kernel = |path: &&&Path| path.extension().is_some_and(|extension| extension == "kernel");
    let kernels = std::env::join_paths(arguments.iter().filter(is_kernel)).unwrap();
    let run = succeeds(
        Command::new(&executable)
            .args(arguments)
            .env("LD_LIBRARY_PATH", paths)
            .env("PGEMM_EMULATED_KERNELS", kernels)
            .env("PGEMM_CACHE_DIR", work.path())
            .env_remove("PGEMM_AUTOTUNE"),
    );
    String::from_utf8_lossy(&run.stdout).into_owned()
}

fn examples() -> PathBuf {
    folder().join("../../examples")
}

/// A batch of products with C, whose elements the program compares with its own.
#[test]
fn an_example_computes_on_the_emulated_device() {
    for compiler in compilers(["gcc", "clang"]) {
        let said = run_on_device(compiler, &examples().join("batch_demo.c"), &[]);
        assert!(said.contains(": 0 of 72000 elements are wrong"), "{said}");
    }
}

#[test]
fn c_programs_compute_prepare_and_tune_on_the_emulated_device() {
    for compiler in compilers(["gcc", "clang"]) {
        let results = tempfile::tempdir().unwrap();
        let file = results.path().join("results.json");
        let program = folder().join("tests/linked/device.c");
        let said = run_on_device(compiler, &program, &[&file]);
        assert!(said.contains("all is as it should be"), "{said}");
        let results = std::fs::read_to_string(file).unwrap();
        assert_eq!(results.matches("\"chosen\"").count(), 2, "{results}");
        for trials in ["\"trials\": 2,", "\"trials\": 1,"] {
            assert_eq!(results.matches(trials).count(), 1, "{results}");
        }
    }
}

#[test]
fn programs_launch_kernels_in_files_on_the_emulated_device() {
    let kernel = |name: &str| folder().join("../examples/kernels").join(name);
    let (saxpy, transpose) = (kernel("saxpy.kernel"), kernel("transpose.kernel"));
    let all = [("program.c", ["gcc", "clang"]), ("program.cpp", ["g++", "clang++"])];
    for (program, names) in all {
        for compiler in compilers(names) {
            let program = folder().join("tests/linked").join(program);
            let said = run_on_device(compiler, &program, &[&saxpy, &transpose]);
            assert!(said.contains("all is as it should be"), "{said}");
        }
    }
}

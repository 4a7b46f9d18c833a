//! Commands that build, install or fit in a checkout, in blocks of `sh,repository`. They take too
//! long for this test, or change the machine. Other checks run them; the table says which, and the
//! test fails if a command is not in the table or the check no longer has its text.

use std::collections::BTreeSet;

use pgemm_docs::listings;

/// A command, the file that runs it with other paths, and the text by which that file does. The
/// file is `.ci/run` or a script that it calls.
const RUN: [(&str, &str, &str); 22] = [
    ("cargo test --workspace", ".ci/run", "cargo test --workspace --locked"),
    ("cargo install --locked --path crates/cli", ".ci/run", "cargo run --release -p pgemm"),
    (
        "cargo run --release -p persistent-gemm --example first_gemm",
        ".ci/run",
        "cargo clippy --workspace --all-targets",
    ),
    ("cmake -S . -B build -DPREFIX=/opt/persistent_gemm", "scripts/test-c.sh", "cmake -S . -B"),
    ("cmake --build build", "scripts/test-c.sh", "cmake --build"),
    ("ctest --test-dir build", "scripts/test-c.sh", "ctest --output-on-failure"),
    ("cmake --install build", "scripts/test-c.sh", "cmake --install"),
    (
        "g++ -std=c++17 program.cpp $(pkg-config --cflags --libs persistent_gemm)",
        "scripts/test-c.sh",
        "$(pkg-config --cflags --libs persistent_gemm)",
    ),
    ("python3 -m venv .venv", "scripts/test-python.sh", "python3 -m venv"),
    (". .venv/bin/activate", "scripts/test-python.sh", "fresh/bin/python"),
    ("pip install maturin", "scripts/test-python.sh", "'maturin>=1.7,<2'"),
    (
        "maturin build --release -m crates/python/Cargo.toml",
        "scripts/test-python.sh",
        "maturin build --release",
    ),
    (
        "pip install numpy target/wheels/persistent_gemm-*.whl",
        "scripts/test-python.sh",
        "\"$work\"/*.whl",
    ),
    ("scripts/test-python.sh", ".ci/run", "scripts/test-python.sh"),
    (
        "sha256sum --check persistent_dense_gemm_hopper-linux-x86_64.tar.gz.sha256",
        TRIAL,
        "sha256sum --check",
    ),
    ("tar -xzf persistent_dense_gemm_hopper-linux-x86_64.tar.gz", TRIAL, "tar -xzf"),
    (
        "persistent_dense_gemm_hopper-linux-x86_64/install.sh --prefix \"$HOME/.local\"",
        TRIAL,
        "install.sh --prefix",
    ),
    ("export PATH=\"$PREFIX/bin:$PATH\"", TRIAL, "PATH=$prefix/bin:$PATH"),
    ("pgemm doctor", TRIAL, "pgemm doctor"),
    ("host_demo", TRIAL, "host_demo"),
    (
        "python3 -m pip install \"$PREFIX\"/share/persistent_gemm/wheel/*.whl",
        TRIAL,
        "\"$prefix\"/share/persistent_gemm/wheel/*.whl",
    ),
    ("$PREFIX/share/persistent_gemm/install.sh --uninstall", TRIAL, "install.sh\" --uninstall"),
];

/// Tries a release package in whole systems.
const TRIAL: &str = "scripts/try-dist.sh";

/// Commands that no check runs, and why.
const BY_HAND: [(&str, &str); 9] = [
    ("cargo install cargo-c", "cargo-c takes many minutes to build"),
    (
        "cargo cinstall --release --manifest-path crates/c/Cargo.toml --prefix /opt/persistent_gemm",
        "scripts/test-c.sh runs it where cargo-c is installed, which CI does not ask for",
    ),
    (
        "scripts/fit-corrections.py survey.csv --kernels wgmma --out crates/plan/src/heuristic",
        "a fit takes hours, and changes the planner",
    ),
    ("scripts/fit-tile-trees.sh", "a fit takes hours, and changes the planner"),
    ("cargo xtask dist --pdf target/book/persistent-gemm.pdf", DIST),
    ("cargo xtask dist --target aarch64-unknown-linux-gnu", DIST),
    ("export PKG_CONFIG_PATH=\"$PREFIX/lib/pkgconfig\"", IN_TRIAL),
    (
        "c++ -std=c++17 program.cpp $(pkg-config --cflags --libs persistent_gemm) \
         -Wl,-rpath,\"$PREFIX/lib\"",
        IN_TRIAL,
    ),
    ("cmake -S . -B build -DCMAKE_PREFIX_PATH=\"$PREFIX\"", IN_TRIAL),
];

const DIST: &str = "a package takes tens of minutes, and is made for a release";
const IN_TRIAL: &str = "scripts/try-dist.sh runs it in another form, for a release";

/// An error unless the project that `scripts/test-c.sh` builds with the installed library has these
/// lines, with a program of its own.
pub fn is_in_a_tested_project(text: &str) -> Result<(), String> {
    let file = "crates/c/tests/installed/CMakeLists.txt";
    // The project links each program with both libraries, in a loop over their names.
    let project = std::fs::read_to_string(listings::root().join(file)).unwrap();
    let project = project.replace("${kind}", "persistent_gemm");
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let parts: Vec<&str> = line.trim_end_matches(')').split("program").collect();
        if !project.lines().any(|other| parts.iter().all(|part| other.contains(part))) {
            return Err(format!("{file} has no line like '{line}'"));
        }
    }
    Ok(())
}

#[test]
fn commands_of_a_checkout_are_run_by_other_checks() {
    let blocks = listings::all();
    let blocks = blocks.iter().filter(|block| block.is("repository"));
    let written: BTreeSet<String> = blocks.flat_map(|block| block.commands()).collect();
    for command in &written {
        let known = RUN.iter().any(|(line, ..)| line == command)
            || BY_HAND.iter().any(|(line, _)| line == command);
        assert!(known, "no check runs '{command}': add one, and name it in {}", file!());
    }
    for (line, file, text) in RUN {
        assert!(written.contains(line), "no page has '{line}': take it out of the table");
        let content = std::fs::read_to_string(listings::root().join(file)).unwrap();
        assert!(content.contains(text), "{file} no longer has '{text}', by which it ran '{line}'");
    }
    for (line, why) in BY_HAND {
        assert!(written.contains(line), "no page has '{line}' ({why}): take it out of the table");
    }
}

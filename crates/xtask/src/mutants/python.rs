//! The tests of the Python module as programs with tests, which answer as those do that cargo
//! builds.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::{Binary, command, messages};
use super::copy::Copy;
use crate::commands::unexpected;
use crate::error::{AtPath, Error};
use crate::files::remove_folder;

/// The program. `PYTHON`, `TREE` and `LIBRARIES` stand for the interpreter, the folder of the
/// sources, and one with the CUDA driver. A test that skips itself says so.
const PROGRAM: &str = r#"#!/bin/sh
export LD_LIBRARY_PATH="LIBRARIES"
[ -n "LIBRARIES" ] || export CUDA_VISIBLE_DEVICES=
export PYTHONPATH="TREE/crates/python/python" PYTHONDONTWRITEBYTECODE=1
export PGEMM_TOOLS="TREE/tools" PGEMM_BOOK="TREE"
case "$*" in
*--ignored*) ;;
*--list*) PYTHON -m pytest tests -q --collect-only -p no:cacheprovider | sed -n 's/.*::.*/&: test/p' ;;
*) PYTHON -m pytest -q -rs -p no:cacheprovider "$2" ;;
esac
"#;

/// Builds the module, and writes the program for a machine without a GPU and for the emulated
/// device. Returns nothing, and says so, if the interpreter lacks what the tests import.
///
/// # Errors
/// The module does not compile, or a file cannot be written.
pub fn programs(copy: &Copy) -> Result<Vec<Binary>, Error> {
    let python = env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut import = Command::new(&python);
    import.args(["-c", "import ml_dtypes, numpy, pytest"]);
    if !import.output().is_ok_and(|output| output.status.success()) {
        println!(
            "left out: the tests of the Python module. {python} ($PYTHON) lacks ml_dtypes, numpy \
             or pytest"
        );
        return Ok(vec![]);
    }
    let package = copy.tree().join("crates/python");
    let module = package.join("python/persistent_gemm/_core.abi3.so");
    let library = build(copy, "persistent-gemm-python", "_core")?;
    fs::copy(&library, &module).at(&module)?;
    let driver = build(copy, "pgemm-emulated-driver", "pgemm_emulated_driver")?;
    let libraries = copy.target().join("python-libraries");
    remove_folder(&libraries)?;
    fs::create_dir_all(&libraries).at(&libraries)?;
    for name in ["libcuda.so", "libcuda.so.1"] {
        let link = libraries.join(name);
        symlink(&driver, &link).at(&link)?;
    }
    let mut programs = Vec::new();
    for (name, libraries) in [("pytest", Path::new("")), ("emulated", &libraries)] {
        let path = copy.target().join(format!("python-{name}"));
        write_program(&path, &python, &copy.tree(), libraries)?;
        programs.push(Binary { name: format!("python/{name}"), path, package: package.clone() });
    }
    Ok(programs)
}

/// Builds the dynamic library of a package, and returns its path.
fn build(copy: &Copy, package: &str, library: &str) -> Result<PathBuf, Error> {
    let mut build = command(copy, "build", &["--package", package, "--profile", "test"]);
    let (success, messages) = messages(&mut build)?;
    let built = messages.iter().filter(|message| message["target"]["name"] == library);
    let files = built.filter_map(|message| message["filenames"].as_array()).flatten();
    let mut files = files.filter_map(|file| file.as_str());
    match files.find(|file| success && file.ends_with(".so")) {
        Some(file) => Ok(file.into()),
        None => Err(unexpected(&build, format!("no dynamic library {library}"))),
    }
}

fn write_program(path: &Path, python: &str, tree: &Path, libraries: &Path) -> Result<(), Error> {
    let text = |path: &Path| path.display().to_string();
    let program = PROGRAM
        .replace("PYTHON -m", &format!("{python} -m"))
        .replace("TREE", &text(tree))
        .replace("LIBRARIES", &text(libraries));
    fs::write(path, program).at(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).at(path)
}

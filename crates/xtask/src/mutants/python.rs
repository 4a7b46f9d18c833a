//! The tests of the Python module as a program with tests, which answers as those do that cargo
//! builds.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::build::{Binary, command, messages};
use super::copy::Copy;
use crate::commands::unexpected;
use crate::error::{AtPath, Error};

/// The program. `PYTHON` and `TREE` stand for the interpreter and the folder of the sources. A test
/// that skips itself says so.
const PROGRAM: &str = r#"#!/bin/sh
export PYTHONPATH="TREE/crates/python/python" PYTHONDONTWRITEBYTECODE=1 CUDA_VISIBLE_DEVICES=
export PGEMM_TOOLS="TREE/tools" PGEMM_BOOK="TREE"
case "$*" in
*--ignored*) ;;
*--list*) PYTHON -m pytest tests -q --collect-only -p no:cacheprovider | sed -n 's/.*::.*/&: test/p' ;;
*) PYTHON -m pytest -q -rs -p no:cacheprovider "$2" ;;
esac
"#;

/// Builds the module and writes the program. Returns nothing, and says so, if the interpreter lacks
/// what the tests import.
///
/// # Errors
/// The module does not compile, or a file cannot be written.
pub fn program(copy: &Copy) -> Result<Option<Binary>, Error> {
    let python = env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut import = Command::new(&python);
    import.args(["-c", "import ml_dtypes, numpy, pytest"]);
    if !import.output().is_ok_and(|output| output.status.success()) {
        println!(
            "left out: the tests of the Python module. {python} ($PYTHON) lacks ml_dtypes, numpy \
             or pytest"
        );
        return Ok(None);
    }
    let mut build =
        command(copy, "build", &["--package", "persistent-gemm-python", "--profile", "test"]);
    let (success, messages) = messages(&mut build)?;
    let built = messages.iter().filter(|message| message["target"]["name"] == "_core");
    let mut files = built.filter_map(|message| message["filenames"][0].as_str());
    let Some(library) = files.next().filter(|_| success) else {
        return Err(unexpected(&build, "no module for Python".to_owned()));
    };
    let package = copy.tree().join("crates/python");
    let module = package.join("python/persistent_gemm/_core.abi3.so");
    fs::copy(library, &module).at(&module)?;
    let path = copy.target().join("python-tests");
    write_program(&path, &python, &copy.tree())?;
    Ok(Some(Binary { name: "python/pytest".to_owned(), path, package }))
}

fn write_program(path: &Path, python: &str, tree: &Path) -> Result<(), Error> {
    let tree = tree.display().to_string();
    fs::write(path, PROGRAM.replace("PYTHON -m", &format!("{python} -m")).replace("TREE", &tree))
        .at(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).at(path)
}

//! Builds the command, the libraries, the example programs and the wheel for one machine, for an
//! old glibc, and so that two builds have the same bytes.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{root, run};
use crate::elf::{self, Glibc, NEWEST_GLIBC};
use crate::error::{AtPath, Error};
use crate::files::{paths_below, remove_folder};
use crate::release::Release;
use crate::target::Target;
use crate::tools::Tools;

/// The programs in C and C++: name, source, and the standard of its language.
pub const EXAMPLES: [(&str, &str, &str); 4] = [
    ("host_demo", "examples/host_demo.cpp", "c++17"),
    ("batch_demo", "examples/batch_demo.c", "c11"),
    ("resident_demo", "examples/resident_demo.cpp", "c++17"),
    ("bench_gemm", "bench/bench_gemm.cpp", "c++17"),
];

/// Builds for one machine.
pub struct Build<'a> {
    pub tools: &'a Tools,
    pub release: &'a Release,
    pub target: Target,
    /// The folder that all builds share.
    pub folder: PathBuf,
    /// Processes that compile at the same time; cargo's default is one for each core.
    pub jobs: Option<usize>,
}

impl Build<'_> {
    /// Builds the command `pgemm`.
    ///
    /// # Errors
    /// It does not build.
    pub fn command(&self) -> Result<PathBuf, Error> {
        run(self.cargo("zigbuild").args(["--package", "pgemm"]))?;
        Ok(self.built("pgemm"))
    }

    /// Builds the shared and the static library.
    ///
    /// # Errors
    /// They do not build.
    pub fn libraries(&self) -> Result<[PathBuf; 2], Error> {
        run(self
            .cargo("rustc")
            .args(["--package", "persistent-gemm-c", "--lib", "--features", "tuner", "--", "-C"])
            .arg(format!("link-arg=-Wl,-soname,{}", self.release.soname())))?;
        Ok([self.built("libpersistent_gemm.so"), self.built("libpersistent_gemm.a")])
    }

    /// Builds an example program, which finds the shared library in `../lib` beside its own folder.
    ///
    /// # Errors
    /// It does not compile.
    pub fn example(
        &self,
        (name, source, standard): (&str, &str, &str),
        library: &Path,
    ) -> Result<PathBuf, Error> {
        let program = self.folder.join(name);
        let compiler = if source.ends_with(".c") { "cc" } else { "c++" };
        let Glibc(major, minor) = NEWEST_GLIBC;
        let machine = self.target.machine();
        let mut command = self.tools.zig();
        self.set_environment(&mut command);
        command
            .arg(compiler)
            .args(["-target", &format!("{machine}-linux-gnu.{major}.{minor}")])
            .args(["-O2", "-s", &format!("-std={standard}"), "-D_POSIX_C_SOURCE=200809L"])
            .args(["-Wall", "-Wextra", "-Icrates/c/include", "-Iexamples", source])
            .arg(library)
            .args(["-Wl,-rpath,$ORIGIN/../lib", "-lm", "-ldl", "-o"])
            .arg(&program);
        run(&mut command)?;
        Ok(program)
    }

    /// Builds the wheel with a bill of materials, and checks what the package index would check.
    ///
    /// # Errors
    /// It does not build, it needs a newer glibc, or its metadata are wrong.
    pub fn wheel(&self, sbom: &Path) -> Result<PathBuf, Error> {
        let folder = self.folder.join("wheel");
        remove_folder(&folder)?;
        let Glibc(major, minor) = NEWEST_GLIBC;
        let mut command = self.tools.command("maturin");
        self.set_environment(&mut command);
        command
            // In one folder, cargo would build crates anew whenever the other tool was there last.
            .env("CARGO_TARGET_DIR", self.folder.join("cargo-wheel"))
            .args(["build", "--locked", "--quiet", "--zig", "--profile", "dist", "--auditwheel"])
            .args(["check", "--compatibility", &format!("manylinux_{major}_{minor}")])
            .args(["--target", &self.target.triple()])
            .args(["--manifest-path", "crates/python/Cargo.toml", "--sbom-include"])
            .args([sbom, Path::new("--out"), &folder]);
        if let Some(jobs) = self.jobs {
            command.args(["--jobs", &jobs.to_string()]);
        }
        run(&mut command)?;

        let entries = fs::read_dir(&folder).at(&folder)?;
        let wheels: Vec<_> =
            entries.map(|entry| Ok(entry.at(&folder)?.path())).collect::<Result<_, Error>>()?;
        let tag = format!("-cp310-abi3-manylinux_{major}_{minor}_{}.whl", self.target.machine());
        let [wheel] = wheels.as_slice() else {
            return Err(wrong_wheels(&wheels));
        };
        if !wheel.to_string_lossy().ends_with(&tag) {
            return Err(wrong_wheels(&wheels));
        }
        run(self.tools.command("twine").args(["--no-color", "check", "--strict"]).arg(wheel))?;

        let unpacked = self.folder.join("wheel-unpacked");
        remove_folder(&unpacked)?;
        run(self.tools.python().args(["-m", "zipfile", "-e"]).args([wheel, &unpacked]))?;
        check_elf(&unpacked.join("persistent_gemm/_core.abi3.so"), self.target)?;
        for file in paths_below(&unpacked)?.iter().filter(|path| path.is_file()) {
            self.check_paths(file)?;
        }
        Ok(wheel.clone())
    }

    /// Checks that a program or library can be loaded wherever the package is for, and that it does
    /// not hold paths of this machine.
    ///
    /// # Errors
    /// It is not so.
    pub fn check(&self, file: &Path) -> Result<(), Error> {
        check_elf(file, self.target)?;
        self.check_paths(file)
    }

    /// Checks that a file does not hold paths of this machine.
    ///
    /// # Errors
    /// It does.
    pub fn check_paths(&self, file: &Path) -> Result<(), Error> {
        let bytes = fs::read(file).at(file)?;
        for (folder, _) in self.mapped_folders() {
            let text = folder.to_string_lossy().into_owned();
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                return Err(Error::MachinePath { path: file.to_owned(), folder: text });
            }
        }
        Ok(())
    }

    /// `cargo zigbuild` or `cargo rustc` with zig.
    fn cargo(&self, subcommand: &str) -> Command {
        let Glibc(major, minor) = NEWEST_GLIBC;
        let mut command = self.tools.command("cargo-zigbuild");
        self.set_environment(&mut command);
        command
            .args([subcommand, "--locked", "--quiet", "--profile", "dist", "--target"])
            .arg(format!("{}.{major}.{minor}", self.target.triple()));
        if let Some(jobs) = self.jobs {
            command.args(["--jobs", &jobs.to_string()]);
        }
        command
    }

    fn set_environment(&self, command: &mut Command) {
        let maps = self.mapped_folders();
        let flags = |option: &str| -> Vec<String> {
            maps.iter().map(|(from, to)| format!("{option}={}={to}", from.display())).collect()
        };
        command
            .current_dir(root())
            .env("CARGO_TARGET_DIR", self.folder.join("cargo"))
            // Cargo separates flags by this character if spaces may be part of them.
            .env("CARGO_ENCODED_RUSTFLAGS", flags("--remap-path-prefix").join("\x1f"))
            // zig writes debug information unless it is told not to.
            .env("CFLAGS", format!("-g0 {}", flags("-ffile-prefix-map").join(" ")))
            .env("SOURCE_DATE_EPOCH", self.release.seconds.to_string())
            .env("ZIG_GLOBAL_CACHE_DIR", self.folder.join("zig"))
            .env("ZIG_LOCAL_CACHE_DIR", self.folder.join("zig"))
            .env_remove("RUSTFLAGS");
    }

    /// Folders whose names differ from machine to machine, with what the binaries say instead.
    fn mapped_folders(&self) -> Vec<(PathBuf, &'static str)> {
        let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
        let mut maps = vec![(root(), "/persistent-gemm")];
        if let Some(cargo) = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home) {
            maps.push((cargo, "/cargo"));
        }
        if !self.folder.starts_with(root()) {
            maps.push((self.folder.clone(), "/build"));
        }
        maps
    }

    fn built(&self, name: &str) -> PathBuf {
        self.folder.join("cargo").join(self.target.triple()).join("dist").join(name)
    }
}

/// The least glibc that a program or library needs.
///
/// # Errors
/// It cannot be read, or not every system that packages are for can load it.
pub fn check_elf(path: &Path, target: Target) -> Result<Glibc, Error> {
    let data = fs::read(path).at(path)?;
    elf::check(&data, target).map_err(|source| Error::Elf { path: path.to_owned(), source })
}

fn wrong_wheels(wheels: &[PathBuf]) -> Error {
    let names: Vec<_> = wheels.iter().map(|wheel| wheel.to_string_lossy()).collect();
    Error::Wheel { wheels: names.join(", ") }
}

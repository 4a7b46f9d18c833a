//! `cargo xtask dist`: builds everything that a release has, checks it, and packs it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::archive;
use crate::build::{Build, EXAMPLES};
use crate::commands::{output, root, run, unexpected};
use crate::error::{AtPath, Error};
use crate::files::{remove_folder, sha256};
use crate::inventory::Inventory;
use crate::licences::{self, Runtime};
use crate::package::{DATA, DOCUMENTS, Package};
use crate::release::Release;
use crate::sbom::sbom;
use crate::target::Target;
use crate::templates;
use crate::tools::{Tools, ZIG};

/// The assembler of the kernels that are shipped: the newest whose cubins all drivers for CUDA 12
/// load.
const PTXAS: &str = "12.9";

/// The file of the bill of materials.
const SBOM: &str = "sbom.cdx.json";

/// Arguments of `cargo xtask dist`.
#[derive(clap::Args)]
pub struct Args {
    /// Machine that the package is for.
    #[arg(long, value_enum, default_value_t)]
    target: Target,
    /// Folder that the package is written to, and that the builds use [default: target/dist].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// PDF of the documentation, as scripts/book.sh makes it. Without it the package has none.
    #[arg(long, value_name = "FILE")]
    pdf: Option<PathBuf>,
    /// Do not assemble kernels that are missing. They are compiled when they are first used. For
    /// trials: a release has all of them.
    #[arg(long)]
    without_kernels: bool,
    /// Leave out the Python wheel.
    #[arg(long)]
    without_wheel: bool,
    /// Processes that compile at the same time [default: one for each core].
    #[arg(long, short)]
    jobs: Option<usize>,
}

/// Makes the package.
///
/// # Errors
/// Something does not build, or fails a check.
pub fn make(args: &Args) -> Result<(), Error> {
    let root = root();
    let out = args.out.clone().unwrap_or_else(|| root.join("target/dist"));
    fs::create_dir_all(&out).at(&out)?;
    let out = fs::canonicalize(&out).at(&out)?;
    let release = Release::find()?;
    let tools = Tools::find(&root)?;
    let folder = out.join("build");
    let build = |target| Build {
        tools: &tools,
        release: &release,
        target,
        folder: folder.join(Target::machine(target)),
        jobs: args.jobs,
    };
    let own = build(Target::X86_64);
    let build = build(args.target);

    // The command for this machine assembles the kernels that all binaries hold.
    step("command");
    let mut command = own.command()?;
    let listed = listed_kernels(&root)?;
    if let Err(why) = assembled_kernels(&command, listed)? {
        if args.without_kernels {
            println!("the package has no assembled kernels: {why}");
        } else {
            assemble(&root, &command, why)?;
            command = own.command()?;
            assembled_kernels(&command, listed)?.map_err(|why| Error::Pack { why })?;
        }
    }

    let package = Package::new(out.join(release.name(args.target)))?;
    add_help(&package, &command, &folder)?;
    if args.target != own.target {
        command = build.command()?;
    }
    build.check(&command)?;
    package.add_program(&command, "bin/pgemm")?;

    step("libraries");
    add_libraries(&package, &build, &release)?;
    step("examples");
    add_examples(&package, &build, &root, &release)?;
    step("documents");
    add_documents(&package, &root, args.pdf.as_deref())?;
    add_inventory(&package, &release, args.target, &tools)?;
    if !args.without_wheel {
        step("wheel");
        let wheel = build.wheel(&package.folder().join(DOCUMENTS).join(SBOM))?;
        let name = wheel.file_name().unwrap_or_default().to_string_lossy();
        package.add(&wheel, &format!("{DATA}/wheel/{name}"))?;
    }
    package.add_program(&root.join("tools/autotune.py"), &format!("{DATA}/tools/autotune.py"))?;

    let installer = root.join("crates/xtask/package/install.sh");
    let text = fs::read_to_string(&installer).at(&installer)?;
    let text =
        text.replace("@VERSION@", &release.version).replace("@MACHINE@", args.target.machine());
    package.write_program(&text, "install.sh")?;
    package.add(&root.join("docs/package.md"), "README.md")?;
    package.write_checksums()?;

    step("archive");
    let name = format!("{}.tar.gz", release.name(args.target));
    let file = out.join(&name);
    archive::write(package.folder(), release.seconds, &file)?;
    let digits = sha256(&file)?;
    let list = out.join(format!("{name}.sha256"));
    fs::write(&list, format!("{digits}  {name}\n")).at(&list)?;
    let bytes = fs::metadata(&file).at(&file)?.len();
    println!("{}: {bytes} bytes, SHA-256 {digits}", file.display());
    Ok(())
}

fn step(name: &str) {
    println!("== {name}");
}

/// How many kernels `shipped.txt` lists.
fn listed_kernels(root: &Path) -> Result<usize, Error> {
    let list = root.join("crates/cubins/shipped.txt");
    let text = fs::read_to_string(&list).at(&list)?;
    Ok(text.lines().filter(|line| !line.starts_with('#')).count())
}

/// Whether a command has all kernels of the list, assembled by the right assembler; or why not.
fn assembled_kernels(pgemm: &Path, listed: usize) -> Result<Result<(), String>, Error> {
    let mut command = Command::new(pgemm);
    command.args(["doctor", "--json"]).env("CUDA_VISIBLE_DEVICES", "").env_remove("PGEMM_PACKS");
    let text = output(&mut command)?;
    let report: Value =
        serde_json::from_str(&text).map_err(|error| unexpected(&command, error.to_string()))?;
    let kernels = &report["kernels_assembled_in_advance"];
    let count = kernels["count"].as_u64();
    let count = count.ok_or_else(|| unexpected(&command, "no count of assembled kernels"))?;
    if let Some(why) = kernels["why"].as_str() {
        return Ok(Err(why.to_owned()));
    }
    let assembler = kernels["assembler"].as_str().unwrap_or_default();
    if count != listed as u64 {
        return Ok(Err(format!("the pack has {count} kernels of {listed}")));
    }
    if !assembler.contains(PTXAS) {
        return Ok(Err(format!("the pack was made by {assembler}, not by ptxas {PTXAS}")));
    }
    Ok(Ok(()))
}

/// Assembles the kernels of the list into the pack that builds take.
fn assemble(root: &Path, pgemm: &Path, why: String) -> Result<(), Error> {
    let installed = root.join(format!(".tools/ptxas-{PTXAS}/ptxas"));
    let assembler = env::var_os("PGEMM_PTXAS").map_or(installed, PathBuf::from);
    if !assembler.is_file() {
        return Err(Error::NoAssembler { why, version: PTXAS });
    }
    step("assembled kernels");
    println!("{why}");
    let mut command = Command::new(pgemm);
    run(command.current_dir(root).args(["cubins", "assemble"]).env("PGEMM_PTXAS", assembler))
}

/// The manual pages and the completions of shells.
fn add_help(package: &Package, pgemm: &Path, folder: &Path) -> Result<(), Error> {
    let pages = folder.join("man");
    remove_folder(&pages)?;
    run(Command::new(pgemm).args(["man", "--out"]).arg(&pages))?;
    package.add_folder(&pages, &["1"], "share/man/man1")?;
    for (shell, name) in [
        ("bash", "share/bash-completion/completions/pgemm"),
        ("fish", "share/fish/vendor_completions.d/pgemm.fish"),
        ("zsh", "share/zsh/site-functions/_pgemm"),
    ] {
        package.write(&output(Command::new(pgemm).args(["completions", shell]))?, name)?;
    }
    Ok(())
}

fn add_libraries(package: &Package, build: &Build, release: &Release) -> Result<(), Error> {
    let [shared, archive] = build.libraries()?;
    build.check(&shared)?;
    build.check_paths(&archive)?;
    let file = format!("libpersistent_gemm.so.{}", release.version);
    package.add_program(&shared, &format!("lib/{file}"))?;
    package.link(&file, &format!("lib/{}", release.soname()))?;
    package.link(&release.soname(), "lib/libpersistent_gemm.so")?;
    package.add(&archive, "lib/libpersistent_gemm.a")?;
    let root = root();
    let header = "include/persistent_gemm.h";
    package.add(&root.join("crates/c").join(header), header)?;
    for (name, text) in templates::files(&root, release)? {
        package.write(&text, name)?;
    }
    Ok(())
}

/// The example programs and their sources.
fn add_examples(
    package: &Package,
    build: &Build,
    root: &Path,
    release: &Release,
) -> Result<(), Error> {
    let library = package.folder().join("lib").join(release.soname());
    for example in EXAMPLES {
        let (name, source, _) = example;
        let program = build.example(example, &library)?;
        build.check(&program)?;
        package.add_program(&program, &format!("bin/{name}"))?;
        let path = root.join(source);
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        package.add(&path, &format!("{DATA}/examples/{file}"))?;
    }
    let header = "examples/cuda_driver.h";
    package.add(&root.join(header), &format!("{DATA}/{header}"))
}

fn add_documents(package: &Package, root: &Path, pdf: Option<&Path>) -> Result<(), Error> {
    for name in ["README.md", "CHANGELOG.md", "LICENSE.md"] {
        package.add(&root.join(name), &format!("{DOCUMENTS}/{name}"))?;
    }
    package.add_folder(&root.join("docs"), &["md", "svg"], &format!("{DOCUMENTS}/docs"))?;
    match pdf {
        Some(pdf) => package.add(pdf, &format!("{DOCUMENTS}/persistent_gemm.pdf")),
        None => {
            println!(
                "the package has no PDF of the documentation: scripts/book.sh makes it, for --pdf"
            );
            Ok(())
        }
    }
}

/// The bill of materials, and the licences of all dependencies.
fn add_inventory(
    package: &Package,
    release: &Release,
    target: Target,
    tools: &Tools,
) -> Result<(), Error> {
    let inventory = Inventory::of(target)?;
    let sbom = format!("{:#}\n", sbom(release, target, &inventory));
    package.write(&sbom, &format!("{DOCUMENTS}/{SBOM}"))?;

    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let rust = Path::new(sysroot.trim()).join("share/doc/rust");
    let zig = tools.zig_folder()?;
    let llvm = "Apache-2.0 WITH LLVM-exception";
    let runtime = |name: &str, licence, text: &str| Runtime {
        name: format!("{name} of zig {ZIG}"),
        licence,
        text: zig.join(text),
    };
    let runtimes = [
        runtime("libunwind", llvm, "lib/libunwind/LICENSE.TXT"),
        runtime("libc++", llvm, "lib/libcxx/LICENSE.TXT"),
        runtime("compiler-rt", "MIT", "LICENSE"),
    ];
    let text = licences::text(&inventory, &runtimes, &rust.join("licenses"))?;
    package.write(&text, &format!("{DOCUMENTS}/third-party-licences.txt"))?;
    // Rust's own list of what its standard library is made of.
    package.add(
        &rust.join("COPYRIGHT-library.html"),
        &format!("{DOCUMENTS}/rust-standard-library-licences.html"),
    )
}

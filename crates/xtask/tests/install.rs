//! `install.sh` as its users meet it, with a package of a few small files: it installs them,
//! refuses with the reason, and leaves nothing behind when it fails or uninstalls.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const SCRIPT: &str = include_str!("../package/install.sh");
const INSTALLED: &str = "share/persistent_gemm/install.sh";
const MANIFEST: &str = "share/persistent_gemm/manifest";

/// An unpacked package, and a folder that prefixes are made in.
struct Fixture {
    folder: TempDir,
    package: PathBuf,
    /// Programs that are found before those of the system.
    programs: PathBuf,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::of(SCRIPT)
    }

    fn of(script: &str) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        // Other users run the script, too.
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let package = folder.path().join("package");
        for (name, text) in [
            ("bin/pgemm", "#!/bin/sh\necho it runs\n"),
            ("include/persistent_gemm.h", "// a header\n"),
            ("lib/libpersistent_gemm.so.1.2.3", "a library\n"),
            ("lib/pkgconfig/persistent_gemm.pc", "prefix=${pcfiledir}/../..\n"),
            ("share/doc/persistent_gemm/name with spaces.md", "a document\n"),
            ("share/persistent_gemm/wheel/it.whl", "a wheel\n"),
            ("README.md", "not installed\n"),
        ] {
            let path = package.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        symlink("libpersistent_gemm.so.1.2.3", package.join("lib/libpersistent_gemm.so")).unwrap();
        make_program(&package.join("bin/pgemm"));
        let machine = Command::new("uname").arg("-m").output().unwrap().stdout;
        let machine = String::from_utf8(machine).unwrap();
        let script = script.replace("@VERSION@", "1.2.3").replace("@MACHINE@", machine.trim());
        fs::write(package.join("install.sh"), script).unwrap();
        make_program(&package.join("install.sh"));
        let sums = Command::new("sh")
            .args([
                "-c",
                "find . -type f -o -type l | sed 's,^./,,' | sort | xargs -d '\\n' sha256sum",
            ])
            .current_dir(&package)
            .output()
            .unwrap();
        fs::write(package.join("SHA256SUMS"), sums.stdout).unwrap();
        let programs = folder.path().join("programs");
        fs::create_dir(&programs).unwrap();
        Fixture { folder, package, programs }
    }

    /// A path beside the package.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a program before the system's program of this name. In its text, `real` is the latter.
    fn replace_program(&self, name: &str, text: &str) {
        let real = Command::new("sh").args(["-c", &format!("command -v {name}")]).output().unwrap();
        let real = String::from_utf8(real.stdout).unwrap();
        let path = self.programs.join(name);
        fs::write(&path, format!("#!/bin/sh\nreal={}\n{text}\n", real.trim())).unwrap();
        make_program(&path);
    }

    fn command(&self, script: &Path, arguments: &[&str]) -> Command {
        let path = format!("{}:{}", self.programs.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.arg(script).args(arguments).current_dir(self.folder.path()).env("PATH", path);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(&self.package.join("install.sh"), arguments).output().unwrap()
    }

    fn install(&self, prefix: &Path) -> Output {
        self.run(&["--prefix", prefix.to_str().unwrap()])
    }

    /// What the script says when it refuses to install to a prefix. Nothing may change.
    fn refusal(&self, prefix: &Path) -> String {
        let before = names_below(self.folder.path());
        let message = refused(&self.install(prefix));
        assert_eq!(names_below(self.folder.path()), before, "{message}");
        message
    }
}

fn make_program(path: &Path) {
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

fn succeeded(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{}: {error}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    error
}

/// All names below a folder, which may be missing.
fn names_below(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten() {
            let path = entry.unwrap().path();
            names.insert(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            }
        }
    }
    names
}

#[test]
fn what_is_installed_is_the_package_and_uninstall_leaves_nothing() {
    let fixture = Fixture::new();
    let before = names_below(fixture.folder.path());
    let prefix = fixture.path("some where/deep");
    let text = succeeded(&fixture.install(&prefix));
    assert!(text.contains("1.2.3 is installed") && text.contains("it.whl"), "{text}");

    for name in
        ["bin/pgemm", "lib/libpersistent_gemm.so", "share/doc/persistent_gemm/name with spaces.md"]
    {
        let bytes = |folder: &Path| fs::read(folder.join(name)).unwrap();
        assert_eq!(bytes(&prefix), bytes(&fixture.package), "{name}");
    }
    let link = fs::read_link(prefix.join("lib/libpersistent_gemm.so")).unwrap();
    assert_eq!(link, Path::new("libpersistent_gemm.so.1.2.3"));
    let ran = Command::new(prefix.join("bin/pgemm")).output().unwrap();
    assert_eq!(ran.stdout, b"it runs\n");
    assert!(!prefix.join("README.md").exists());

    // The copy in the installation knows where it is.
    let uninstall = fixture.command(&prefix.join(INSTALLED), &["--uninstall"]).output().unwrap();
    assert!(succeeded(&uninstall).contains("is removed from"));
    assert_eq!(names_below(fixture.folder.path()), before);
}

#[test]
fn uninstall_keeps_the_files_of_others_and_folders_that_were_there() {
    let fixture = Fixture::new();
    let prefix = fixture.path("prefix");
    fs::create_dir_all(prefix.join("include")).unwrap();
    fs::create_dir_all(prefix.join("lib/python3")).unwrap();
    let before = names_below(&prefix);
    succeeded(&fixture.install(&prefix));
    fs::write(prefix.join("share/doc/others.md"), "of another program").unwrap();
    succeeded(&fixture.run(&["--uninstall", &format!("--prefix={}/", prefix.display())]));
    let mut expected = before;
    expected.extend(["share", "share/doc", "share/doc/others.md"].map(str::to_owned));
    assert_eq!(names_below(&prefix), expected);
}

#[test]
fn wrong_arguments_are_refused() {
    let fixture = Fixture::new();
    for (arguments, message) in [
        (&["--prefix", "opt/it"][..], "not absolute"),
        (&["--prefix"], "needs a folder"),
        (&["--prefix", "/a\nb"], "line break"),
        (&["--wheel"], "unknown argument '--wheel'"),
        (&["--uninstall", "--prefix", "/nonexistent"], "has no installation"),
    ] {
        let error = refused(&fixture.run(arguments));
        assert!(error.contains(message), "{arguments:?}: {error}");
    }
    assert!(succeeded(&fixture.run(&["--help"])).contains("default: /opt/persistent_dense_gemm"));
}

#[test]
fn a_damaged_package_is_refused() {
    let fixture = Fixture::new();
    let prefix = fixture.path("prefix");
    fs::write(fixture.package.join("lib/libpersistent_gemm.so.1.2.3"), "a librarz\n").unwrap();
    let error = fixture.refusal(&prefix);
    assert!(error.contains("lib/libpersistent_gemm.so.1.2.3: FAILED"), "{error}");
    assert!(error.contains("damaged"), "{error}");
    fs::remove_file(fixture.package.join("bin/pgemm")).unwrap();
    assert!(fixture.refusal(&prefix).contains("bin/pgemm"));
    fs::remove_file(fixture.package.join("SHA256SUMS")).unwrap();
    assert!(fixture.refusal(&prefix).contains("no SHA256SUMS"));
}

#[test]
fn files_and_links_in_the_way_are_refused() {
    let fixture = Fixture::new();
    let prefix = fixture.path("prefix");
    fs::create_dir_all(prefix.join("include")).unwrap();
    fs::write(prefix.join("include/persistent_gemm.h"), "of another").unwrap();
    assert!(fixture.refusal(&prefix).contains("include/persistent_gemm.h is in the way"));
    fs::remove_file(prefix.join("include/persistent_gemm.h")).unwrap();
    symlink("nowhere", prefix.join("include/persistent_gemm.h")).unwrap();
    assert!(fixture.refusal(&prefix).contains("include/persistent_gemm.h is in the way"));
    fs::remove_dir_all(prefix.join("include")).unwrap();
    fs::write(prefix.join("bin"), "no folder").unwrap();
    assert!(fixture.refusal(&prefix).contains("bin is in the way: it is not a folder"));
    assert!(fixture.refusal(&prefix.join("bin/prefix")).contains("bin is in the way"));
}

#[test]
fn an_installation_is_not_overwritten() {
    let fixture = Fixture::new();
    let prefix = fixture.path("prefix");
    succeeded(&fixture.install(&prefix));
    let manifest = prefix.join(MANIFEST);
    let other = fs::read_to_string(&manifest).unwrap().replace("1.2.3", "1.1.0");
    fs::write(&manifest, other).unwrap();
    let error = fixture.refusal(&prefix);
    assert!(error.contains("already has persistent_dense_gemm 1.1.0"), "{error}");
    assert!(error.contains("--uninstall"), "{error}");
}

#[test]
fn a_prefix_of_another_user_is_refused() {
    let fixture = Fixture::new();
    let prefix = fixture.path("prefix");
    fs::create_dir(&prefix).unwrap();
    let attempt = |prefix: &Path, arguments: &[&str]| {
        let prefix = prefix.to_str().unwrap();
        let script = fixture.package.join("install.sh");
        let mut command = fixture.command(&script, arguments);
        command.args(["--prefix", prefix]);
        // Root may write anywhere, so that the test needs another user.
        if fs::metadata("/proc/self")
            .is_ok_and(|facts| std::os::unix::fs::MetadataExt::uid(&facts) == 0)
        {
            command.uid(65534).gid(65534);
        }
        refused(&command.output().unwrap())
    };
    let lock = |path: &Path, mode| {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    lock(&prefix, 0o555);
    let error = attempt(&prefix.join("new"), &[]);
    assert!(error.contains("prefix cannot be written by"), "{error}");
    lock(&prefix, 0o755);
    succeeded(&fixture.install(&prefix));
    let installed = names_below(&prefix);
    lock(&prefix.join("lib"), 0o555);
    let error = attempt(&prefix, &["--uninstall"]);
    assert!(
        error.contains("cannot be written by") && error.contains("nothing is removed"),
        "{error}"
    );
    assert_eq!(names_below(&prefix), installed);
    lock(&prefix.join("lib"), 0o755);
}

#[test]
fn a_full_disk_leaves_nothing() {
    let fixture = Fixture::new();
    let prefix = fixture.path("a/prefix");
    fixture.replace_program("df", "echo Filesystem; echo disk 99 98 1 99% /");
    let error = fixture.refusal(&prefix);
    assert!(error.contains("1 KiB are free"), "{error}");

    // What df says is no promise.
    let fixture = Fixture::new();
    let prefix = fixture.path("a/prefix");
    let full = "case $* in *.whl*) echo 'cp: No space left on device' >&2; exit 1;; esac; exec $real \"$@\"";
    fixture.replace_program("cp", full);
    let error = fixture.refusal(&prefix);
    assert!(error.contains("No space left on device") && error.contains("failed"), "{error}");
}

#[test]
fn an_installation_that_is_stopped_leaves_nothing() {
    let fixture = Fixture::new();
    let stop = "case $* in *.whl*) kill -TERM 0; sleep 10;; esac; exec $real \"$@\"";
    fixture.replace_program("cp", stop);
    let before = names_below(fixture.folder.path());
    let prefix = fixture.path("a/prefix");
    let script = fixture.package.join("install.sh");
    let mut command = fixture.command(&script, &["--prefix", prefix.to_str().unwrap()]);
    let output = command.process_group(0).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(names_below(fixture.folder.path()), before);
}

#[test]
fn an_installation_that_is_killed_can_be_removed() {
    let fixture = Fixture::new();
    let before = names_below(fixture.folder.path());
    fixture.replace_program("cp", "case $* in *.whl*) kill -KILL 0;; esac; exec $real \"$@\"");
    let prefix = fixture.path("a/prefix");
    let prefix_text = prefix.to_str().unwrap();
    let script = fixture.package.join("install.sh");
    let mut command = fixture.command(&script, &["--prefix", prefix_text]);
    assert!(!command.process_group(0).output().unwrap().status.success());
    assert!(prefix.join("bin/pgemm").exists());
    fs::remove_file(fixture.programs.join("cp")).unwrap();
    succeeded(&fixture.run(&["--uninstall", "--prefix", prefix_text]));
    assert_eq!(names_below(fixture.folder.path()), before);
}

#[test]
fn a_list_of_files_that_leads_out_of_the_prefix_removes_nothing() {
    let fixture = Fixture::new();
    let victim = fixture.path("victim");
    fs::write(&victim, "of another").unwrap();
    for path in ["../victim", "lib/../../victim", victim.to_str().unwrap()] {
        let prefix = fixture.path("prefix");
        succeeded(&fixture.install(&prefix));
        let manifest = prefix.join(MANIFEST);
        let list = fs::read_to_string(&manifest).unwrap();
        fs::write(&manifest, format!("{list}file {path}\n")).unwrap();
        let arguments = ["--uninstall", "--prefix", prefix.to_str().unwrap()];
        let error = refused(&fixture.run(&arguments));
        assert!(error.contains("outside of"), "{error}");
        assert!(victim.exists() && prefix.join("bin/pgemm").exists());
        fs::write(&manifest, list).unwrap();
        succeeded(&fixture.run(&arguments));
    }
}

#[test]
fn another_machine_and_an_old_glibc_are_refused() {
    let fixture = Fixture::new();
    let prefix = fixture.path("prefix");
    fixture.replace_program("uname", "echo riscv64");
    assert!(fixture.refusal(&prefix).contains("this machine is riscv64"));
    fs::remove_file(fixture.programs.join("uname")).unwrap();
    for (libc, message) in [
        ("echo glibc 2.17", "this system has 2.17"),
        ("echo glibc 2.9", "this system has 2.9"),
        ("exit 1", "another C library"),
    ] {
        fixture.replace_program("getconf", libc);
        let error = fixture.refusal(&prefix);
        assert!(error.contains(message), "{error}");
    }
    fixture.replace_program("getconf", "echo glibc 2.100");
    succeeded(&fixture.install(&prefix));
}

#[test]
fn shellcheck_finds_nothing() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("package/install.sh");
    match Command::new("shellcheck").arg(path).output() {
        Ok(output) => {
            let findings = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{findings}");
        }
        Err(error) if std::env::var_os("PGEMM_REQUIRE_SHELLCHECK").is_none() => {
            // The harness would capture what `eprintln!` prints.
            let _ = writeln!(io::stderr(), "SKIPPED: shellcheck could not be started: {error}");
        }
        Err(error) => panic!("shellcheck is required and could not be started: {error}"),
    }
}

//! The packages of the command line can be installed, and what they install runs.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Packs this build, without its symbols, and returns the folder and the package in it.
fn package(kind: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("lockkeeper");
    run(Command::new("strip").arg("-o").arg(&program).arg(env!("CARGO_BIN_EXE_lockkeeper")));
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/package"));
    script.arg(kind).env("LOCKKEEPER_BINARY", &program).env("LOCKKEEPER_OUT", folder.path());
    // A test has no use for a small package that takes a minute to make.
    run(script.env("DPKG_DEB_COMPRESSOR_TYPE", "none"));
    let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let package = files.filter(|path| path.extension().is_some()).max().expect("a package");
    (folder, package)
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A command under a lock, with the program that was installed.
fn runs(program: &Path, folder: &Path) {
    let mut command = Command::new(program);
    command.args(["run", "here", "--", "echo", "it runs"]).current_dir(folder);
    let output = run(command.env("LOCKKEEPER_URL", format!("file:{}", folder.join("locks").display())));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "it runs\n");
}

#[test]
fn the_debian_package_has_its_program_pages_and_completions() {
    let (folder, package) = package("deb");
    let root = folder.path().join("root");
    run(Command::new("dpkg-deb").arg("--extract").args([&package, &root]));
    runs(&root.join("usr/bin/lockkeeper"), folder.path());
    for file in [
        "man/man1/lockkeeper.1.gz",
        "man/man1/lockkeeper-run.1.gz",
        "bash-completion/completions/lockkeeper",
        "zsh/vendor-completions/_lockkeeper",
        "fish/vendor_completions.d/lockkeeper.fish",
        "doc/lockkeeper/copyright",
        "doc/lockkeeper/changelog.gz",
    ] {
        let path = root.join("usr/share").join(file);
        assert!(path.metadata().is_ok_and(|metadata| metadata.len() > 0), "{file} is missing");
    }
    let unit = std::fs::read_to_string(root.join("usr/lib/systemd/system/lockkeeper.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/lockkeeper serve\n"), "{unit}");
    let about = run(Command::new("dpkg-deb").arg("--field").arg(&package));
    let about = String::from_utf8(about.stdout).unwrap();
    assert!(about.contains(&format!("Version: {}\n", env!("CARGO_PKG_VERSION"))), "{about}");
}

#[test]
fn the_wheel_can_be_installed_and_puts_the_program_on_the_path() {
    let (folder, package) = package("wheel");
    let environment = folder.path().join("environment");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    run(Command::new(environment.join("bin/pip")).args(["install", "--quiet", "--no-index"]).arg(&package));
    runs(&environment.join("bin/lockkeeper"), folder.path());
}

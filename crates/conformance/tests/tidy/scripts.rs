//! With CI set, `scripts/interop-clients` fails when a client could not be built, instead of skipping its tests.

use super::root;
use std::fs::{Permissions, copy, create_dir_all, remove_dir_all, set_permissions, write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// A program that is a script.
fn program(path: &Path, script: &str) {
    create_dir_all(path.parent().unwrap()).unwrap();
    write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_could_not_be_built_is_a_failure_with_ci_set() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop-clients");
    let _ = remove_dir_all(&place);
    let at = |path: &str| place.join(path);
    for path in ["scripts/interop-clients", "interop/go/go.mod", "interop/go/etcd/go.mod"] {
        create_dir_all(at(path).parent().unwrap()).unwrap();
        copy(root().join(path), at(path)).unwrap();
    }
    create_dir_all(at("interop/java")).unwrap();
    program(&at("scripts/install-engines"), "");
    program(&at("programs/mvn"), "");
    program(&at("programs/javac"), "");
    let tests = "case \"$*\" in *--list*) echo 'etcd::a: test' ;; *) echo 'test result: ok. 3 passed; 0 failed; 0 ignored' ;; esac";
    program(&at("programs/cargo"), tests);
    for (go, ci, succeeds, sum) in [
        ("go1.19", "", true, "3 passed, 0 failed, 2 skipped"),
        ("go1.19", "true", false, "3 passed, 2 failed, 0 skipped"),
        ("go99.0", "true", true, "3 passed, 0 failed, 0 skipped"),
    ] {
        program(&at("programs/go"), &format!("echo {go}"));
        let path = format!("{}:{}", at("programs").display(), std::env::var("PATH").unwrap());
        let mut script = Command::new(at("scripts/interop-clients"));
        let output = script.env("PATH", path).env("CI", ci).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.success(), succeeds, "{go} with CI={ci:?}: {printed}");
        assert_eq!(printed.lines().last(), Some(sum), "{go} with CI={ci:?}: {printed}");
    }
}

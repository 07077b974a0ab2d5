//! Every public crate can be published: it is packed here, in the order of dependencies, with what a reader expects in it.

use super::{no_complaints, root};
use serde_json::Value;
use std::process::Command;

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {}\n{errors}", arguments.join(" "));
    assert!(!errors.contains("warning: "), "cargo {}\n{errors}", arguments.join(" "));
    String::from_utf8(output.stdout).expect("text")
}

/// The members of the workspace: those that are published, and those that are not.
fn members() -> (Vec<Value>, Vec<Value>) {
    let metadata = cargo(&["metadata", "--format-version=1", "--no-deps", "--offline"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages").clone();
    packages.into_iter().partition(|package| package["publish"].is_null())
}

fn name(package: &Value) -> &str {
    package["name"].as_str().expect("a name")
}

/// Without building them again; scripts/check does that.
#[test]
fn every_public_crate_can_be_packed() {
    let (_, private) = members();
    let excluded: Vec<String> =
        private.iter().map(|package| format!("--exclude={}", name(package))).collect();
    let target = tempfile_in_target();
    let mut arguments =
        vec!["package", "--workspace", "--no-verify", "--allow-dirty", "--offline", "--target-dir", &target];
    arguments.extend(excluded.iter().map(String::as_str));
    cargo(&arguments);
    let packed = std::fs::read_dir(format!("{target}/package")).expect("the packages");
    let packed = packed.flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "crate"));
    assert_eq!(packed.count(), members().0.len());
}

/// A folder of its own, so that the test waits for no build that runs beside it.
fn tempfile_in_target() -> String {
    let folder = root().join("target/package-test");
    let _ = std::fs::remove_dir_all(&folder);
    folder.display().to_string()
}

#[test]
fn every_public_crate_has_what_a_reader_expects() {
    let mut complaints = Vec::new();
    for package in members().0 {
        let mut complain = |what: &str| complaints.push(format!("{}: {what}", name(&package)));
        for field in ["description", "license", "documentation", "rust_version", "readme"] {
            if package[field].as_str().is_none_or(str::is_empty) {
                complain(&format!("its manifest has no {field}"));
            }
        }
        let is_library = package["targets"].to_string().contains("\"lib\"");
        let own_page = format!("https://docs.rs/{}", name(&package));
        if is_library && package["documentation"] != own_page.as_str() {
            complain(&format!("its documentation is at {own_page}"));
        }
        for field in ["keywords", "categories"] {
            if package[field].as_array().is_none_or(Vec::is_empty) {
                complain(&format!("its manifest has no {field}"));
            }
        }
        let has_features = package["features"].as_object().is_some_and(|features| !features.is_empty());
        if has_features && is_library && package["metadata"]["docs"]["rs"].is_null() {
            complain("docs.rs would not show its features: add [package.metadata.docs.rs]");
        }
        let files = cargo(&["package", "--list", "--allow-dirty", "--offline", "-p", name(&package)]);
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            if !files.lines().any(|line| line == file) {
                complain(&format!("its package has no {file}"));
            }
        }
        // A registry shows it without the repository around it. An engine's is its page in the book, too.
        let manifest = std::path::PathBuf::from(package["manifest_path"].as_str().expect("a path"));
        let readme = std::fs::read_to_string(manifest.with_file_name("README.md")).unwrap_or_default();
        if package["readme"] != "README.md" {
            complain("its README.md is not its own");
        }
        if ["lockkeeper", "lockkeeper-cli"].contains(&name(&package)) && has_relative_link(&readme) {
            complain("its README.md has a link that leads nowhere on a registry");
        }
    }
    no_complaints(complaints);
}

fn has_relative_link(page: &str) -> bool {
    page.split("](").skip(1).any(|link| !link.starts_with("https://") && !link.starts_with('#'))
}

/// A development dependency with a version must be on the registry first, and engines and the suite need each other.
#[test]
fn no_public_crate_needs_for_its_tests_what_is_published_after_it() {
    let mut complaints = Vec::new();
    let later = ["lockkeeper", "lockkeeper-conformance"];
    for package in members().0.iter().filter(|package| is_engine(package)) {
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let of = dependency["name"].as_str().expect("a name");
            if later.contains(&of) && dependency["req"] != "*" {
                complaints.push(format!("{}: depend on {of} by its path, without a version", name(package)));
            }
        }
    }
    no_complaints(complaints);
}

fn is_engine(package: &Value) -> bool {
    package["manifest_path"].as_str().is_some_and(|path| path.contains("/engines/"))
}

//! What we depend on: licences, sources and duplicates as `deny.toml` allows them, which `cargo deny` judges by as well.
//!
//! Advisories are not looked at here: their list is a repository that a build does not fetch.

use super::{no_complaints, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Every package of the build on Linux.
fn packages() -> Vec<Value> {
    let arguments =
        ["metadata", "--format-version=1", "--offline", "--filter-platform=x86_64-unknown-linux-gnu"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

/// The licences that `deny.toml` allows.
fn allowed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let list = text.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']')).expect("a list").0;
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether an SPDX expression can be met with these licences: names joined by OR and AND, which binds closer, and brackets.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    // The old way to write OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    any(&mut rest, allowed) && rest.is_empty()
}

fn any(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = all(rest, allowed);
    while let ["OR", after @ ..] = *rest {
        *rest = after;
        met |= all(rest, allowed);
    }
    met
}

fn all(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = one(rest, allowed);
    while let ["AND", after @ ..] = *rest {
        *rest = after;
        met &= one(rest, allowed);
    }
    met
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    match *rest {
        ["(", after @ ..] => {
            *rest = after;
            let met = any(rest, allowed);
            let closed = rest.first() == Some(&")");
            *rest = rest.get(1..).unwrap_or_default();
            met && closed
        }
        [name, "WITH", exception, after @ ..] => {
            *rest = after;
            allowed.contains(&format!("{name} WITH {exception}"))
        }
        [name, after @ ..] => {
            *rest = after;
            allowed.contains(*name)
        }
        [] => false,
    }
}

#[test]
fn every_dependency_is_from_the_registry_under_an_allowed_licence() {
    let (allowed, mut complaints) = (allowed(), Vec::new());
    for package in packages() {
        let name = format!(
            "{} {}",
            package["name"].as_str().unwrap_or("?"),
            package["version"].as_str().unwrap_or("?")
        );
        let is_ours = package["source"].is_null();
        if !is_ours && package["source"] != REGISTRY {
            complaints.push(format!("{name} comes from {}", package["source"]));
        }
        match package["license"].as_str() {
            Some(licence) if is_met(licence, &allowed) => {}
            Some(licence) => {
                complaints.push(format!("{name} has the licence {licence}, which deny.toml does not allow"))
            }
            None => complaints.push(format!("{name} names no licence")),
        }
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        for dependency in dependencies.iter().filter(|dependency| is_ours && dependency["path"].is_null()) {
            if dependency["req"] == "*" {
                complaints.push(format!("{name} takes any version of {}", dependency["name"]));
            }
        }
    }
    no_complaints(complaints);
}

/// The crates of which `deny.toml` allows another version, and what its number begins with.
fn skipped(text: &str) -> Vec<(&str, &str)> {
    let specs = text.split("{ crate = \"").skip(1).filter_map(|rest| rest.split('"').next());
    specs.map(|spec| spec.split_once(':').expect("a crate and a version")).collect()
}

#[test]
fn a_crate_has_one_version_but_for_those_that_deny_toml_names() {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let mut unused = skipped(&text);
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages() {
        let of = |field: &str| package[field].as_str().expect("text").to_owned();
        let (name, version) = (of("name"), of("version"));
        let is_it = |(skipped, begin): &(&str, &str)| {
            *skipped == name && version.strip_prefix(begin).is_some_and(|rest| rest.starts_with('.'))
        };
        match unused.iter().position(is_it) {
            Some(found) => drop(unused.swap_remove(found)),
            None => versions.entry(name).or_default().push(version),
        }
    }
    let several = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    let mut complaints: Vec<String> =
        several.map(|(name, versions)| format!("{name} has versions {}", versions.join(", "))).collect();
    complaints.extend(unused.iter().map(|(name, version)| format!("deny.toml: no {name} {version} to skip")));
    no_complaints(complaints);
}

#[test]
fn licences_are_read_as_spdx_says() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
    for good in [
        "MIT",
        "MIT OR GPL-3.0",
        "GPL-3.0 OR MIT AND ISC",
        "(MIT OR X) AND ISC",
        "MIT/X",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(is_met(good, &allowed), "{good}");
    }
    for bad in [
        "GPL-3.0",
        "MIT AND X",
        "MIT AND (X OR Y)",
        "Apache-2.0",
        "X WITH LLVM-exception",
        "(MIT",
        "MIT ISC",
        "",
    ] {
        assert!(!is_met(bad, &allowed), "{bad}");
    }
}

//! The seeded bugs of `mutants/` still fit the sources that they are patches of.

use super::root;
use std::process::Command;

#[test]
fn every_mutant_still_applies() {
    let output =
        Command::new(root().join("scripts/mutants")).arg("--check").output().expect("scripts/mutants");
    assert!(output.status.success(), "mend the patches:\n{}", String::from_utf8_lossy(&output.stderr));
}

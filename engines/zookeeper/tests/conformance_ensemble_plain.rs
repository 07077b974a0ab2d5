//! The conformance suite on the style 'plain', on an ensemble of three whose leader is killed meanwhile.

#[path = "common/ensemble.rs"]
mod ensemble;

/// Where the suite is run: `Suite::new` on an ensemble.
fn main() -> std::process::ExitCode {
    ensemble::run(lockkeeper_zookeeper::STYLES[1])
}

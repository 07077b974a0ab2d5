//! The conformance suite on the style 'queue', on an ensemble of three whose leader is killed meanwhile.

#[path = "common/ensemble.rs"]
mod ensemble;

use lockkeeper_conformance::Suite;

fn main() -> std::process::ExitCode {
    let style = lockkeeper_zookeeper::STYLES[0];
    Suite::new(style).mostly_waits().run(move || ensemble::subject(style.style))
}

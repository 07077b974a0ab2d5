//! lockkeeper's conformance suite on an engine of our own.

use lockkeeper_conformance::{Subject, Suite};

fn main() -> std::process::ExitCode {
    own_engine::register().expect("the scheme is free");
    Suite::new(own_engine::ABILITIES).run(|| Subject::at("table:"))
}

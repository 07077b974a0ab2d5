//! The conformance suite on the memory engine.

use lockkeeper_conformance::{Subject, Suite};
use lockkeeper_core::engine::Memory;

fn main() -> std::process::ExitCode {
    let locks = Memory::named("conformance");
    Suite::new(lockkeeper::engines()[0].styles[0]).run(|| Subject::at("memory:conformance").keep(locks))
}

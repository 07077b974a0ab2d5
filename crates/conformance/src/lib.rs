//! The suite every engine passes, and the checker that judges recorded histories.
//!
//! An engine's `tests/conformance.rs` is about ten lines long (and `harness = false` in its Cargo.toml):
//!
//! ```no_run
//! use lockkeeper_conformance::{Subject, Suite};
//!
//! fn main() -> std::process::ExitCode {
//!     let abilities = lockkeeper::engines()[0].styles[0];
//!     Suite::new(abilities).run(|| Subject::at("memory:suite"))
//! }
//! ```
//!
//! A [`Program`] runs several suites in one test program: styles, topologies, and the same over TLS.
//!
//! Every case is a test of its own name. A case that needs an ability the engine does not have is no test of it and
//! is named with the reason before the tests; so is one the engine's author left out with [`Suite::cannot`]. That
//! what a style lacks is refused properly is a case of its own.

pub mod bench;
mod cases;
pub mod checker;
mod events;
pub mod faulty;
pub mod helper;
pub mod history;
mod program;
mod recording;
mod suite;

pub use program::Program;
pub use suite::{Subject, Suite};

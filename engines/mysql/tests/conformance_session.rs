//! The whole suite on the session style.

mod common;

fn main() -> std::process::ExitCode {
    common::suite("session")
}

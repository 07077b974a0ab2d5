//! The whole suite on the advisory style.

mod common;

fn main() -> std::process::ExitCode {
    common::suite("advisory")
}

//! The whole suite on the row style.

mod common;

fn main() -> std::process::ExitCode {
    common::suite("row")
}

//! The whole suite on the queue style.

mod common;

fn main() -> std::process::ExitCode {
    common::suite("queue")
}

//! The bench as a program of its own; `lockkeeper bench` is the same.

use clap::Parser;
use lockkeeper_bench::Usage;
use lockkeeper_bench::command::{self, Arguments};
use std::process::ExitCode;

/// Wrong usage, and anything else, as in `lockkeeper`.
const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;

/// Measures lock engines on this machine, each beside the raw floor of its driver.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper-bench", version)]
struct CommandLine {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    match command::run(&CommandLine::parse().arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lockkeeper-bench: {error}");
            ExitCode::from(if error.is::<Usage>() { USAGE } else { UNAVAILABLE })
        }
    }
}

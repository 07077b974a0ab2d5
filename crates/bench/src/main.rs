//! The bench as a program of its own; `lockkeeper bench` is the same.

use clap::Parser;
use lockkeeper_bench::command::{self, Arguments};

/// Measures lock engines on this machine, each beside the raw floor of its driver.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper-bench", version)]
struct CommandLine {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> std::process::ExitCode {
    command::run(CommandLine::parse().arguments)
}

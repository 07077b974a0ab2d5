//! The program behind `scripts/faults`.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    lockkeeper_faults::answer();
    match lockkeeper_faults::command::Arguments::parse().run() {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("faults: {error}");
            ExitCode::from(69)
        }
    }
}

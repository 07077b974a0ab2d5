//! One fault for each engine, on real servers, with the outcome that the table states.

use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper_faults::{Fault, Settings, run_cell};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    lockkeeper_faults::answer();
    let arguments = Arguments::from_args();
    let trials = lockkeeper_faults::command::TOUR.into_iter().map(|(subject, fault)| {
        let name = format!("{subject}::{fault}").replace(", ", "-");
        Trial::test(name, move || stands(subject, fault))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn stands(subject: &'static str, fault: Fault) -> Result<(), Failed> {
    let mut settings = Settings::default();
    // Other tests run beside: what a busy machine delays is no fault of the locks.
    (settings.rounds, settings.patience, settings.ttl) = (1, 4, Duration::from_secs(4));
    println!("{subject} / {fault}: seed {}", settings.seed);
    let record = run_cell(subject, fault, &settings).map_err(|error| error.to_string())?;
    match record.surprise {
        None => Ok(()),
        Some(surprise) => Err(format!("seed {}, stated {}: {surprise}", record.seed, record.stated).into()),
    }
}

//! `lockkeeper man`: the manual pages.

use crate::arguments::Arguments;
use crate::exit::{Failure, Outcome, SUCCESS, UNAVAILABLE};
use crate::output;
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man as Page;
use std::io;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  lockkeeper man | man -l -
  lockkeeper man --dir ~/.local/share/man/man1    a page for every verb, too";

/// Print the manual page, or write those of all verbs to a directory
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Man {
    /// Write lockkeeper.1, lockkeeper-run.1 and so on to this directory
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

impl Man {
    /// Prints or writes them.
    pub(crate) fn run(self) -> Outcome {
        let mut command = Arguments::command().disable_help_subcommand(true);
        command.build();
        match &self.dir {
            None => {
                let page = page(command).map_err(|error| not_written(Path::new("the page"), &error))?;
                output::print(&String::from_utf8_lossy(&page))?;
            }
            Some(dir) => write_all(command, dir)?,
        }
        Ok(SUCCESS)
    }
}

fn write_all(command: Command, dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|error| not_written(dir, &error))?;
    for verb in command.get_subcommands().cloned() {
        let file = dir.join(format!("lockkeeper-{}.1", verb.get_name()));
        write(verb, &file)?;
    }
    write(command, &dir.join("lockkeeper.1"))
}

fn write(command: Command, file: &Path) -> Result<(), Failure> {
    page(command).and_then(|text| std::fs::write(file, text)).map_err(|error| not_written(file, &error))
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Page::new(command).render(&mut text)?;
    Ok(text)
}

fn not_written(what: &Path, error: &io::Error) -> Failure {
    Failure::new(UNAVAILABLE, format!("could not write {}: {error}", what.display()))
}

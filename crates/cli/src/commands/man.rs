//! `lockkeeper man`: the manual pages.

use crate::arguments::{Arguments, ENVIRONMENT};
use crate::exit::{Failure, Outcome, SUCCESS, UNAVAILABLE};
use crate::output;
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man as Page;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  lockkeeper man | man -l -
  lockkeeper man --dir ~/.local/share/man/man1    a page for every command, too";

/// Print the manual page, or write those of all commands to a directory
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

/// One page. The synopsis, the environment and the sections of the help's end are written here, since the generator
/// knows none of them.
fn page(mut command: Command) -> io::Result<Vec<u8>> {
    let usage = command.render_usage().to_string();
    let after_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_subcommands = command.has_subcommands();
    let page = Page::new(command)
        .source(concat!("lockkeeper ", env!("CARGO_PKG_VERSION")))
        .manual("lockkeeper manual");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    section(&mut text, "SYNOPSIS", usage.trim_start_matches("Usage:").trim())?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if has_subcommands {
        page.render_subcommands_section(&mut text)?;
    }
    writeln!(text, ".SH ENVIRONMENT")?;
    for (variable, meaning) in ENVIRONMENT {
        writeln!(text, ".TP\n\\fB{variable}\\fR\n{}", escaped(meaning))?;
    }
    for paragraph in after_help.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        match paragraph.split_once(":\n") {
            Some((heading, rest)) => section(&mut text, &heading.to_uppercase(), rest)?,
            None => section(&mut text, "NOTES", paragraph)?,
        }
    }
    Ok(text)
}

/// A section whose lines stay as they are.
fn section(page: &mut Vec<u8>, heading: &str, lines: &str) -> io::Result<()> {
    writeln!(page, ".SH \"{heading}\"\n.nf\n{}\n.fi", escaped(lines))
}

/// Text without a meaning for roff.
fn escaped(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
        if line.starts_with('.') { format!("\\&{line}") } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn not_written(what: &Path, error: &io::Error) -> Failure {
    Failure::new(UNAVAILABLE, format!("could not write {}: {error}", what.display()))
}

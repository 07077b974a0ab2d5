//! `lockkeeper completions`: completions for a shell.

use crate::arguments::Arguments;
use crate::exit::{Outcome, SUCCESS};
use crate::output;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  lockkeeper completions bash > ~/.local/share/bash-completion/completions/lockkeeper
  lockkeeper completions fish > ~/.config/fish/completions/lockkeeper.fish";

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    /// Prints them.
    pub(crate) fn run(self) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "lockkeeper", &mut script);
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(SUCCESS)
    }
}

//! `lockkeeper completions`: the script that makes a shell ask this program for completions.

use crate::complete;
use crate::exit::{Failure, Outcome, SUCCESS};
use crate::output;
use clap::Args;
use clap_complete::Shell;
use clap_complete::env::Shells;

const EXAMPLES: &str = "\
Examples:
  lockkeeper completions bash > ~/.local/share/bash-completion/completions/lockkeeper
  lockkeeper completions fish > ~/.config/fish/completions/lockkeeper.fish";

/// Print the script that completes options, lock names, engines and commands in a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    /// Prints them.
    pub(crate) fn run(self) -> Outcome {
        let name = self.shell.to_string();
        let unknown = || Failure::usage(format!("no completions for {name}"));
        let shells = Shells::builtins();
        let shell = shells.completer(&name).ok_or_else(unknown)?;
        let mut script = Vec::new();
        let written = shell.write_registration(
            complete::VARIABLE,
            "lockkeeper",
            "lockkeeper",
            "lockkeeper",
            &mut script,
        );
        written.map_err(|error| Failure::usage(error.to_string()))?;
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(SUCCESS)
    }
}

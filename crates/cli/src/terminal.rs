//! The terminal's foreground: handed to the command's process group, and taken back.

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// Our side of the terminal, if standard input is one.
#[derive(Debug)]
pub(crate) struct Terminal {
    own: Pid,
    group: Pid,
}

impl Terminal {
    /// The terminal for a command in this process group; `None` without one.
    pub(crate) fn of(group: Pid) -> Option<Self> {
        isatty(stdin()).then(|| Self { own: getpgrp(), group })
    }

    /// Whether the command should have the terminal from the start. If our output goes to a pipe, its reader may
    /// be a pager that needs the terminal more; the command then gets it when it asks.
    pub(crate) fn wanted_at_once(&self) -> bool {
        isatty(stdout())
    }

    /// Gives the foreground to the command, if it is ours to give; says whether the command has it now.
    pub(crate) fn hand_over(&self) -> bool {
        match tcgetpgrp(stdin()) {
            Ok(foreground) if foreground == self.group => true,
            Ok(foreground) if foreground == self.own => tcsetpgrp(stdin(), self.group).is_ok(),
            _ => false,
        }
    }

    /// Takes the foreground back, if the command has it.
    pub(crate) fn take_back(&self) -> bool {
        if tcgetpgrp(stdin()).ok() != Some(self.group) {
            return false;
        }
        // From the background this raises SIGTTOU, which would stop us for ever.
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTTOU);
        let blocked = mask.thread_block();
        let taken = tcsetpgrp(stdin(), self.own).is_ok();
        if blocked.is_ok() {
            let _ = mask.thread_unblock();
        }
        taken
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

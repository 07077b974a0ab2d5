//! Writing for people and pipes: a reader that went away is no error.

use crate::exit::{Failure, UNAVAILABLE};
use crate::table::printable;
use std::io::{ErrorKind, Write};

/// What became of a write to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// It took everything.
    There,
    /// It has closed the pipe, so there is nobody to write for.
    Gone,
}

/// Writes to standard output in one go.
pub(crate) fn print(text: &str) -> Result<Reader, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::new(UNAVAILABLE, format!("could not write the output: {error}"))),
    }
}

/// Writes a value as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<Reader, Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(UNAVAILABLE, format!("could not write JSON: {error}")))?;
    print(&(text + "\n"))
}

/// Says something on standard error; if nobody can hear it, so be it. A message may have text of a server or another client.
pub(crate) fn warn(message: &str) {
    let message = message.lines().map(printable).collect::<Vec<_>>().join("\n");
    let _ = writeln!(std::io::stderr().lock(), "lockkeeper: {message}");
}

/// Whether the reader of standard output has gone, without writing to it.
pub(crate) fn reader_is_gone() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = rustix::stdio::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&at_once)).is_ok()
        && watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

//! Handles of detached holds: read from the command line, a variable or standard input, and printed.

use crate::exit::{Failure, UNAVAILABLE};
use crate::location::full_name;
use crate::output::{self, Reader};
use clap::Args;
use lockkeeper::{Handle, Keeper};
use serde::Serialize;
use std::io::Read;

/// The longest input that is read for a handle.
const LONGEST_BYTES: u64 = 8192;

/// The handle that a command works on.
#[derive(Debug, Args)]
pub(crate) struct HandleArgument {
    /// The handle that 'lockkeeper acquire' has printed; '-' reads it from standard input
    #[arg(value_name = "HANDLE", env = "LOCKKEEPER_HANDLE", hide_env_values = true)]
    handle: String,
}

impl HandleArgument {
    pub(crate) fn read(&self) -> Result<Handle, Failure> {
        if self.handle != "-" {
            return Ok(self.handle.parse()?);
        }
        let mut text = String::new();
        std::io::stdin()
            .take(LONGEST_BYTES)
            .read_to_string(&mut text)
            .map_err(|error| Failure::new(UNAVAILABLE, format!("could not read the handle: {error}")))?;
        Ok(text.parse()?)
    }
}

/// A handle in JSON.
#[derive(Serialize)]
struct Shown<'a> {
    handle: &'a Handle,
    name: &'a str,
    full_name: String,
    engine: &'a str,
    style: &'a str,
    claim: String,
    demand: String,
    token: u64,
    until: String,
}

/// Prints a handle, as the line itself or as JSON.
pub(crate) fn print(keeper: &Keeper, handle: &Handle, json: bool) -> Result<Reader, Failure> {
    if !json {
        return output::print(&format!("{handle}\n"));
    }
    let shown = Shown {
        handle,
        name: handle.name(),
        full_name: full_name(keeper, handle.name()),
        engine: handle.engine(),
        style: handle.style(),
        claim: handle.claim(),
        demand: handle.demand().to_string(),
        token: handle.token().0,
        until: humantime::format_rfc3339_seconds(handle.until()).to_string(),
    };
    output::print_json(&shown)
}

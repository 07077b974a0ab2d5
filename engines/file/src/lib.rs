//! Locks between processes of one machine, without a server: claims are files that their owners keep locked.

use lockkeeper_core::address::Address;
use lockkeeper_core::{Abilities, Engine, Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// What each style can do.
pub const STYLES: &[Abilities] = &[];

/// Opens the directory that the address names.
///
/// # Errors
/// When it cannot be used.
pub async fn connect(address: Address, _ttl: Duration) -> Result<Arc<dyn Engine>> {
    Err(Error::invalid(format!("not there yet: {}", address.path)))
}

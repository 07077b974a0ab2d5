//! x
use lockkeeper_core::address::Address;
use lockkeeper_core::{Abilities, Engine, Error, Result};
use std::sync::Arc;
use std::time::Duration;
/// x
pub const STYLES: &[Abilities] = &[];
/// x
pub async fn connect(address: Address, _ttl: Duration) -> Result<Arc<dyn Engine>> {
    Err(Error::invalid(format!("not there yet: {}", address.path)))
}

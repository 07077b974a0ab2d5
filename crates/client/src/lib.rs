//! The engine that speaks HTTP to `lockkeeper serve`: for programs that must not have the engine's password, and to run the
//! conformance suite through the server.
//!
//! A keeper on it is one session of the server's. The server renews its claims at the engine; the keeper's own renewal is the
//! session's heartbeat, whose reply has the deadline of every hold. So the laws are kept across the extra hop: see docs/serve.md.
//!
//! It implements the outer seam itself and neither `Queue` nor `Race`: the queue stands in the engine behind the server, and a
//! wait is one request.

mod config;
mod engine;
mod http;
mod session;
mod wire;

use lockkeeper_core::Result;
use lockkeeper_core::engine::{Address, Engine};
use std::sync::Arc;
use std::time::Duration;

/// The schemes of its URLs.
pub const SCHEMES: [&str; 2] = ["http", "https"];

/// Opens the server at an address such as `http://TOKEN@host:7670`, with `ca=FILE` for the authority of its certificate and
/// `token_file=FILE` for the token. For `lockkeeper::register`:
///
/// ```no_run
/// # async fn example() -> Result<(), lockkeeper_core::Error> {
/// lockkeeper::register("http", lockkeeper_client::connect)?;
/// let keeper = lockkeeper::Connect::to("http://localhost:7670").namespace("").connect().await?;
/// # drop(keeper); Ok(()) }
/// ```
///
/// # Errors
/// [`Error::Invalid`](lockkeeper_core::Error::Invalid) for a bad address, [`Error::Engine`](lockkeeper_core::Error::Engine) when the
/// server does not reply or refuses the token.
pub async fn connect(address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    let server = config::read(address)?;
    Ok(Arc::new(engine::Http::open(server, ttl).await?))
}

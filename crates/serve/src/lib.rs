//! lockkeeper's locks over HTTP: the same for every language, `curl` and a browser.
//!
//! [`Server`] puts an HTTP surface in front of any [`Keeper`]: sessions that clients keep alive, holds that belong to them, and
//! a deadline in every reply about a hold, so that a client stops trusting before anybody else can be granted. The command line
//! has it as `lockkeeper serve`; a service of one's own mounts [`Server::router`]. docs/serve.md is the manual.
//!
//! Read `session`, `hold` and `request` first: they are the mechanism. `api` is what it looks like from outside.

mod api;
mod app;
mod bind;
mod descriptors;
mod error;
mod extract;
/// What cargo-fuzz and the tests of its corpora call.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod hold;
mod listen;
mod listings;
mod page;
mod quota;
mod request;
mod session;
mod settings;
mod tokens;
mod watcher;

pub use api::openapi;
pub use bind::tls_from_files;
pub use descriptors::raise_descriptor_limit;
pub use listen::Listener;
pub use settings::{Limits, Settings};
pub use tokens::Tokens;

use app::App;
use axum::Router;
use lockkeeper_core::Keeper;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Makes this process' metrics available to `/metrics` ([`Settings::metrics`]). To be called once, before the keeper starts.
///
/// # Errors
/// A sentence, when the program has installed another recorder of metrics.
pub fn prometheus() -> Result<PrometheusHandle, String> {
    let recorder = PrometheusBuilder::new().install_recorder();
    recorder.map_err(|error| format!("cannot collect metrics: {error}"))
}

/// A server in front of a keeper. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
/// use lockkeeper_core::{Keeper, engine::Memory};
/// use lockkeeper_serve::{Server, Settings};
/// let keeper = Keeper::builder().build(Memory::engine())?;
/// let server = Server::new(keeper, Settings::default());
/// let router = axum::Router::new().nest("/locks", server.router());
/// # drop(router); Ok(()) }
/// ```
#[derive(Clone)]
pub struct Server(App);

impl Server {
    /// A server in front of this keeper.
    pub fn new(keeper: Keeper, settings: Settings) -> Self {
        Self(App::new(keeper, settings))
    }

    /// The routes, to be served or mounted. Sessions need a tokio runtime with time enabled.
    pub fn router(&self) -> Router {
        api::router(self.0.clone())
    }

    /// Ends: no new holds, waits end with 503, holds are released when the deadlines that clients were given are over (the engine's
    /// TTL at most), or with [`Settings::drain`] kept until their session ends.
    ///
    /// Cancel safety: when dropped, the server ends no further; call it again.
    pub async fn end(&self) {
        self.0.end().await;
    }

    /// From now on [`end`](Self::end) keeps no hold for longer than it does without [`Settings::drain`].
    pub fn stop_draining(&self) {
        self.0.stop_draining();
    }

    /// Serves until `until` resolves, then [ends](Self::end) and lets the last replies out. While it ends, connections are still
    /// accepted: clients release and look over new ones, too.
    ///
    /// Cancel safety: dropping the future closes all connections.
    pub async fn serve(&self, listener: Listener, until: impl Future<Output = ()>) {
        let end = async {
            until.await;
            self.end().await;
        };
        listen::serve(listener, self.router(), &self.0.settings.limits, end).await;
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({:?})", self.0.keeper)
    }
}

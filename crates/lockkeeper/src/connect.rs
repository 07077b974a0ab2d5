//! From a URL to a keeper.

use crate::diagnosis::Servers;
use crate::engines;
use lockkeeper_core::engine::Builder;
use lockkeeper_core::engine::Engine;
use lockkeeper_core::engine::{Address, parse_duration};
use lockkeeper_core::{DEFAULT_TTL, Keeper, Result};
use std::sync::Arc;
use std::time::Duration;

/// Connects to the engine that the URL names, with the default settings.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let keeper = lockkeeper::connect("memory:").await?;
/// # Ok(()) }
/// ```
///
/// Cancel safety: dropping the future closes what was opened.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) for a URL no engine of this build knows,
/// [`Error::Engine`](crate::Error::Engine) when the engine is not reachable.
pub async fn connect(url: impl AsRef<str>) -> Result<Keeper> {
    Connect::to(url.as_ref()).connect().await
}

/// The engine that is used when none is named: files in a directory that is one per user and machine, whatever the
/// environment. So a cron job, a service, a shell and an ssh session of the same user exclude each other.
#[cfg(feature = "file")]
pub fn default_url() -> String {
    format!("file:{}", lockkeeper_file::default_directory().display())
}

/// The engine that is used when none is named: files, which this build does not have.
#[cfg(not(feature = "file"))]
pub fn default_url() -> String {
    "file:".to_owned()
}

/// Connects with settings of one's own. What is set here wins over the URL's parameters.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until connect() is called"]
pub struct Connect {
    url: String,
    ttl: Option<Duration>,
    namespace: Option<String>,
    holder: Option<String>,
    outage_limit: Option<Duration>,
}

impl Connect {
    /// To the engine that the URL names.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # use std::time::Duration;
    /// let keeper = lockkeeper::Connect::to("memory:?namespace=shop")
    ///     .ttl(Duration::from_secs(5))
    ///     .holder("checkout-7")
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn to(url: impl Into<String>) -> Self {
        Self { url: url.into(), ttl: None, namespace: None, holder: None, outage_limit: None }
    }

    /// How long a claim lives without a renewal (default 10 s); `?ttl=` in the URL.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Keeps applications apart (default `lockkeeper`); `?namespace=` in the URL. Empty means bare names.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Name shown to operators as the holder; `?holder=` in the URL.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// How long a wait without a limit of its own goes on while the engine does not reply (default one minute);
    /// `?outage_limit=` in the URL.
    pub fn outage_limit(mut self, limit: Duration) -> Self {
        self.outage_limit = Some(limit);
        self
    }

    /// Connects.
    ///
    /// Cancel safety: dropping the future closes what was opened.
    ///
    /// # Errors
    /// As [`connect`](crate::connect).
    pub async fn connect(self) -> Result<Keeper> {
        let mut address = Address::parse(&self.url)?;
        let (ttl, builder) = self.settings(&mut address)?;
        builder.build(open(address, ttl).await?)
    }

    /// Opens the engine alone, without a keeper: for tools that wrap or only look.
    ///
    /// Cancel safety: dropping the future closes what was opened.
    ///
    /// # Errors
    /// As [`connect`](crate::connect).
    pub async fn engine(self) -> Result<Arc<dyn Engine>> {
        let mut address = Address::parse(&self.url)?;
        let (ttl, _) = self.settings(&mut address)?;
        open(address, ttl).await
    }

    fn settings(&self, address: &mut Address) -> Result<(Duration, Builder)> {
        let in_url = address.take("ttl").map(|text| parse_duration(&text)).transpose()?;
        let ttl = self.ttl.or(in_url).unwrap_or(DEFAULT_TTL);
        let mut builder = Keeper::builder().ttl(ttl);
        let in_url = address.take("namespace");
        if let Some(namespace) = self.namespace.clone().or(in_url) {
            builder = builder.namespace(namespace);
        }
        let in_url = address.take("holder");
        if let Some(holder) = self.holder.clone().or(in_url) {
            builder = builder.holder(holder);
        }
        let in_url = address.take_duration("outage_limit")?;
        if let Some(limit) = self.outage_limit.or(in_url) {
            builder = builder.outage_limit(limit);
        }
        Ok((ttl, builder))
    }
}

/// Opens the engine. An error of its servers says which they are and what was found there.
async fn open(address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    let servers = Servers::of(&address);
    match (engines::open(address, ttl).await, servers) {
        (Err(error), Some(servers)) => Err(servers.explain(error).await),
        (opened, _) => opened,
    }
}

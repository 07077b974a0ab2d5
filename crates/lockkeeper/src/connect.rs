//! From a URL to a keeper.

use crate::diagnosis::Servers;
use crate::engines;
use lockkeeper_core::engine::Builder;
use lockkeeper_core::engine::{Address, Clock, parse_duration};
use lockkeeper_core::engine::{Engine, PasswordCallback};
use lockkeeper_core::{DEFAULT_TTL, Error, Keeper, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

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
    password: Option<PasswordCallback>,
    retry_for: Duration,
    label_locks: bool,
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
        let url = url.into();
        Self {
            url,
            ttl: None,
            namespace: None,
            holder: None,
            outage_limit: None,
            password: None,
            retry_for: Duration::ZERO,
            label_locks: false,
        }
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

    /// Asks this for the password whenever a connection is opened, so that it may change while the keeper lives;
    /// `?password_file=` in the URL reads a file as often. On Redis, PostgreSQL, MySQL and etcd.
    ///
    /// A server that refuses a password is tried again with the next one: renewals until the deadline of the hold, waits
    /// until their limit.
    ///
    /// ```
    /// let settings = lockkeeper::Connect::to("postgres://app@db/shop")
    ///     .password_from(|| async { std::env::var("DATABASE_PASSWORD") });
    /// # drop(settings);
    /// ```
    pub fn password_from<F, E>(mut self, ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = std::result::Result<String, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.password = Some(PasswordCallback::new(ask));
        self
    }

    /// Whether metrics have the label `lock` beside `engine` and `style` (default: no). For programs with few locks, since
    /// each name is a series of its own.
    pub fn label_locks(mut self, yes: bool) -> Self {
        self.label_locks = yes;
        self
    }

    /// How long to try again while the engine does not reply (default: not at all), so that a program may start before its
    /// server does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # use std::time::Duration;
    /// let keeper = lockkeeper::Connect::to("memory:").retry_for(Duration::from_secs(30)).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn retry_for(mut self, limit: Duration) -> Self {
        self.retry_for = limit;
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
        builder.build(open(address, ttl, self.retry_for).await?)
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
        open(address, ttl, self.retry_for).await
    }

    fn settings(&self, address: &mut Address) -> Result<(Duration, Builder)> {
        if let Some(callback) = &self.password {
            address.set_password_callback(callback.clone());
        }
        let in_url = address.take("ttl").map(|text| parse_duration(&text)).transpose()?;
        let ttl = self.ttl.or(in_url).unwrap_or(DEFAULT_TTL);
        let mut builder = Keeper::builder().ttl(ttl).label_locks(self.label_locks);
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
async fn open(address: Address, ttl: Duration, retry_for: Duration) -> Result<Arc<dyn Engine>> {
    let servers = Servers::of(&address);
    let opened = if retry_for.is_zero() {
        engines::open(address, ttl).await
    } else {
        open_within(&address, ttl, retry_for).await
    };
    match (opened, servers) {
        (Err(error), Some(servers)) => Err(servers.explain(error).await),
        (opened, _) => opened,
    }
}

/// The first and the longest pause between two tries to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// Opens the engine, and again while it does not reply, up to the limit.
async fn open_within(address: &Address, ttl: Duration, limit: Duration) -> Result<Arc<dyn Engine>> {
    let ends_at = Instant::now() + limit;
    let (mut pause, longest) = PAUSES;
    let mut last = None;
    loop {
        let rest = ends_at.saturating_duration_since(Instant::now());
        let opened = Clock::Boot.timeout(rest, engines::open(address.clone(), ttl)).await;
        let error = match opened {
            Ok(Err(error)) if error.is_temporary() => error,
            Ok(settled) => return settled,
            Err(_) => {
                let silent =
                    || Error::temporary("the engine", "connect", format!("no reply within {limit:?}"));
                return Err(last.unwrap_or_else(silent));
            }
        };
        if Instant::now() + pause >= ends_at {
            return Err(error);
        }
        Clock::Boot.sleep(pause).await;
        pause = (pause * 2).min(longest);
        last = Some(error);
    }
}

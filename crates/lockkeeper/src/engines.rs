//! The engines of this build: the only place that knows cargo features.

use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::{BoxFuture, Engine, Memory, Queue};
use lockkeeper_core::{Abilities, Error, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Opens an engine for an address and a TTL.
type Open = Arc<dyn Fn(Address, Duration) -> BoxFuture<'static, Result<Arc<dyn Engine>>> + Send + Sync>;

/// The schemes that programs have registered.
static REGISTERED: RwLock<BTreeMap<&'static str, Open>> = RwLock::new(BTreeMap::new());

/// Lets [`connect`](crate::connect()) open URLs of another scheme, with an engine of one's own.
///
/// `open` gets the parsed URL, from which it takes the parameters it knows, and the TTL. See
/// `lockkeeper_core::engine` for how to build an engine, and the example `own-engine`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper_core::engine::Memory;
/// lockkeeper::register("heap", |address, _ttl| async move {
///     address.finish()?;
///     Ok(Memory::engine())
/// })?;
/// let guard = lockkeeper::connect("heap:").await?.mutex("a").lock().await?;
/// # drop(guard); Ok(()) }
/// ```
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) when the scheme is taken or is not made of small letters, digits, `+`, `-` and `.`.
pub fn register<F>(
    scheme: &'static str,
    open: impl Fn(Address, Duration) -> F + Send + Sync + 'static,
) -> Result<()>
where
    F: Future<Output = Result<Arc<dyn Engine>>> + Send + 'static,
{
    let is_scheme = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    if !scheme.starts_with(|c: char| c.is_ascii_lowercase()) || !scheme.chars().all(is_scheme) {
        return Err(Error::invalid(format!(
            "bad scheme '{scheme}': use small letters, digits, '+', '-' and '.', and begin with a letter"
        )));
    }
    let open: Open = Arc::new(move |address, ttl| Box::pin(open(address, ttl)));
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    let is_taken = engines().iter().any(|engine| engine.schemes.contains(&scheme));
    if is_taken || registered.contains_key(scheme) {
        return Err(Error::invalid(format!("the scheme '{scheme}' is taken: choose another one")));
    }
    registered.insert(scheme, open);
    Ok(())
}

fn registered(scheme: &str) -> Option<Open> {
    REGISTERED.read().unwrap_or_else(PoisonError::into_inner).get(scheme).cloned()
}

/// One engine that lockkeeper knows, whether or not this build has it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineInfo {
    /// The schemes of its URLs.
    pub schemes: &'static [&'static str],
    /// The cargo feature that brings it; `None` if it is always there.
    pub feature: Option<&'static str>,
    /// What each of its styles can do; empty if this build does not have it.
    pub styles: Vec<Abilities>,
    schema: Option<Schema>,
}

/// From the name of a style to the statements that create what it needs.
type Schema = fn(&str) -> &'static str;

impl EngineInfo {
    /// The statements that create what this style needs, for an administrator to run beforehand;
    /// `None` if nothing has to be created, or there is no such style.
    ///
    /// ```
    /// let engines = lockkeeper::engines();
    /// let memory = engines.iter().find(|engine| engine.schemes.contains(&"memory")).unwrap();
    /// assert_eq!(memory.schema("queue"), None);
    /// ```
    pub fn schema(&self, style: &str) -> Option<&'static str> {
        self.schema.map(|schema| schema(style)).filter(|statements| !statements.is_empty())
    }
}

/// From one line per engine (feature, crate, schemes, its `schema` function if it has one) makes the list of
/// engines and the way to open them.
macro_rules! engines {
    ($($feature:literal: $engine:ident [$($scheme:literal),+] $($schema:ident)?;)*) => {
        /// Every engine lockkeeper knows, in the order of the documentation.
        ///
        /// ```
        /// assert!(lockkeeper::engines().iter().any(|engine| engine.schemes.contains(&"memory")));
        /// ```
        pub fn engines() -> Vec<EngineInfo> {
            let memory = vec![Memory::new().abilities()];
            let memory = EngineInfo { schemes: &["memory"], feature: None, styles: memory, schema: None };
            let mut engines = vec![memory];
            $(
                #[cfg(feature = $feature)]
                let (styles, schema): (_, &[Schema]) = ($engine::STYLES.to_vec(), &[$($engine::$schema)?]);
                #[cfg(not(feature = $feature))]
                let (styles, schema): (_, &[Schema]) = (Vec::new(), &[]);
                engines.push(EngineInfo {
                    schemes: &[$($scheme),+],
                    feature: Some($feature),
                    styles,
                    schema: schema.first().copied(),
                });
            )*
            engines
        }

        /// Opens the engine that the address names. The TTL is for engines whose sessions need it at once.
        pub(crate) async fn open(mut address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
            // A build without engines does not need it.
            let _ = ttl;
            match address.scheme.as_str() {
                "memory" => open_memory(&mut address),
                $(
                    #[cfg(feature = $feature)]
                    $($scheme)|+ => $engine::connect(address, ttl).await,
                )*
                scheme => match registered(scheme) {
                    Some(open) => open(address, ttl).await,
                    None => Err(unknown(scheme)),
                },
            }
        }
    };
}

engines! {
    "file": lockkeeper_file ["file"];
    "sqlite": lockkeeper_sqlite ["sqlite"] schema;
    "postgres": lockkeeper_postgres ["postgres", "postgresql"] schema;
    "mysql": lockkeeper_mysql ["mysql", "mariadb"] schema;
    "redis": lockkeeper_redis ["redis", "rediss", "redis+unix", "unix", "redis+sentinel", "redis+cluster"];
    "redlock": lockkeeper_redlock ["redlock"];
    "zookeeper": lockkeeper_zookeeper ["zookeeper"];
    "etcd": lockkeeper_etcd ["etcd", "etcds"];
}

fn open_memory(address: &mut Address) -> Result<Arc<dyn Engine>> {
    address.finish()?;
    Ok(if address.path.is_empty() { Memory::engine() } else { Memory::named(&address.path).connect() })
}

fn unknown(scheme: &str) -> Error {
    let engines = engines();
    if let Some(engine) = engines.iter().find(|engine| engine.schemes.contains(&scheme))
        && let Some(feature) = engine.feature
    {
        return Error::invalid(format!(
            "this build has no engine for '{scheme}:': build lockkeeper with the cargo feature '{feature}'"
        ));
    }
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    let built_in = engines.iter().flat_map(|engine| engine.schemes).copied();
    let known: Vec<&str> = built_in.chain(registered.keys().copied()).collect();
    Error::invalid(format!("unknown engine '{scheme}:'; the known ones are: {}", known.join(", ")))
}

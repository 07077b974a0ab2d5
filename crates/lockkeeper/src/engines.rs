//! The engines of this build: the only place that knows cargo features.

use lockkeeper_core::address::Address;
use lockkeeper_core::{Abilities, Engine, Error, Memory, Queue, Result};
use std::sync::Arc;
use std::time::Duration;

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
}

/// Every engine lockkeeper knows, in the order of the documentation.
///
/// ```
/// assert!(lockkeeper::engines().iter().any(|engine| engine.schemes.contains(&"memory")));
/// ```
pub fn engines() -> Vec<EngineInfo> {
    vec![
        EngineInfo { schemes: &["memory"], feature: None, styles: vec![Memory::new().abilities()] },
        EngineInfo { schemes: &["file"], feature: Some("file"), styles: file_styles() },
        EngineInfo { schemes: &["sqlite"], feature: Some("sqlite"), styles: sqlite_styles() },
        EngineInfo { schemes: &["etcd", "etcds"], feature: Some("etcd"), styles: etcd_styles() },
    ]
}

/// Opens the engine that the address names. The TTL is for engines whose sessions need it at once.
pub(crate) async fn open(mut address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    // Not every build has an engine that needs it.
    let _ = ttl;
    match address.scheme.as_str() {
        "memory" => open_memory(&mut address),
        #[cfg(feature = "file")]
        "file" => lockkeeper_file::connect(address, ttl).await,
        #[cfg(feature = "sqlite")]
        "sqlite" => lockkeeper_sqlite::connect(address, ttl).await,
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => lockkeeper_etcd::connect(address, ttl).await,
        scheme => Err(unknown(scheme)),
    }
}

fn open_memory(address: &mut Address) -> Result<Arc<dyn Engine>> {
    address.finish()?;
    Ok(if address.path.is_empty() { Memory::engine() } else { Memory::named(&address.path).connect() })
}

fn file_styles() -> Vec<Abilities> {
    #[cfg(feature = "file")]
    return lockkeeper_file::STYLES.to_vec();
    #[cfg(not(feature = "file"))]
    return Vec::new();
}

fn sqlite_styles() -> Vec<Abilities> {
    #[cfg(feature = "sqlite")]
    return lockkeeper_sqlite::STYLES.to_vec();
    #[cfg(not(feature = "sqlite"))]
    return Vec::new();
}

fn etcd_styles() -> Vec<Abilities> {
    #[cfg(feature = "etcd")]
    return lockkeeper_etcd::STYLES.to_vec();
    #[cfg(not(feature = "etcd"))]
    return Vec::new();
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
    let known: Vec<&str> = engines.iter().flat_map(|engine| engine.schemes).copied().collect();
    Error::invalid(format!("unknown engine '{scheme}:'; the known ones are: {}", known.join(", ")))
}

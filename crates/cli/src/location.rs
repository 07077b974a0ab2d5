//! Where a lock was looked for: engine, namespace and full name, so that 'free' is never a misunderstanding.

use crate::arguments::EngineOptions;
use crate::exit::Failure;
use lockkeeper::Keeper;
use lockkeeper::views::LockView;
use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::LockName;

/// The engine's URL without password and parameters.
pub(crate) fn of(options: &EngineOptions) -> Result<String, Failure> {
    let url = options.url()?.map_or_else(lockkeeper::default_url, str::to_owned);
    Ok(Address::parse(&url)?.redacted())
}

/// Engine and namespace, such as `redis://cache (redis, queue), namespace 'lockkeeper'`.
pub(crate) fn describe(options: &EngineOptions, keeper: &Keeper) -> Result<String, Failure> {
    let abilities = keeper.abilities();
    let namespace = match keeper.namespace() {
        "" => "no namespace".into(),
        namespace => format!("namespace '{namespace}'"),
    };
    Ok(format!("{} ({}, {}), {namespace}", of(options)?, abilities.engine, abilities.style))
}

/// The lock's name with its namespace.
pub(crate) fn full_name(keeper: &Keeper, name: &str) -> String {
    match keeper.namespace() {
        "" => name.into(),
        namespace => format!("{namespace}/{name}"),
    }
}

/// The name without the keeper's namespace, if it begins with it: errors and other tools show full names.
fn without_namespace<'a>(keeper: &Keeper, name: &'a str) -> Option<&'a str> {
    let rest = name.strip_prefix(keeper.namespace())?.strip_prefix('/')?;
    (!keeper.namespace().is_empty()).then_some(rest)
}

/// The locks in use whose name, or full name, begins with the prefix.
pub(crate) async fn locks(keeper: &Keeper, prefix: &str) -> lockkeeper::Result<Vec<LockView>> {
    let found = keeper.inspect(prefix).await?;
    match without_namespace(keeper, prefix) {
        Some(rest) if found.is_empty() => keeper.inspect(rest).await,
        _ => Ok(found),
    }
}

/// The lock of this name, or full name; without claims if it is free.
pub(crate) async fn lock(keeper: &Keeper, name: &str) -> Result<LockView, Failure> {
    LockName::new(name)?;
    let shorter = without_namespace(keeper, name);
    for name in [Some(name), shorter].into_iter().flatten() {
        if let Some(lock) = keeper.look(name).await? {
            return Ok(lock);
        }
    }
    Ok(LockView::new(shorter.unwrap_or(name), Vec::new()))
}

//! The floor of the file engine: open a file, flock it, close it.

use super::Pairs;
use crate::Result;
use futures_util::future::BoxFuture;
use lockkeeper_core::engine::Address;
use std::fs::OpenOptions;
use std::path::Path;
use tempfile::TempDir;

/// Files in a directory beside the engine's, hence on the same file system.
pub(crate) struct Flock(TempDir);

impl Flock {
    pub(crate) fn beside(address: &Address) -> Result<Self> {
        Ok(Self(directory_beside(address)?))
    }
}

/// A new directory where the engine's own directory or file is.
pub(crate) fn directory_beside(address: &Address) -> Result<TempDir> {
    let parent = Path::new(&address.path).parent().ok_or("the engine's path has no parent")?;
    Ok(tempfile::Builder::new().prefix("lockkeeper-floor-").tempdir_in(parent)?)
}

impl Pairs for Flock {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let path = self.0.path().join(lock.to_string());
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
            file.lock()?;
            drop(file);
            // As an engine must: a loop of locks may not starve its neighbours.
            tokio::task::consume_budget().await;
            Ok(())
        })
    }
}

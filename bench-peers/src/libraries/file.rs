//! The standard library's `File::lock`.

use super::{Client, Held, Place};
use futures_util::future::BoxFuture;
use lockkeeper_bench::Result;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Files that stay open.
struct Files {
    directory: PathBuf,
    open: Mutex<HashMap<String, Arc<File>>>,
}

struct Lock(Arc<File>);

pub fn connect(place: &Place) -> Result<Arc<dyn Client>> {
    let directory = PathBuf::from(format!("{}-std", place.url.trim_start_matches("file:")));
    std::fs::create_dir_all(&directory)?;
    Ok(Arc::new(Files { directory, open: Mutex::default() }))
}

impl Files {
    fn open(&self, name: &str) -> Result<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(name) {
            return Ok(Arc::clone(file));
        }
        let path = self.directory.join(name);
        let file = Arc::new(OpenOptions::new().create(true).truncate(false).write(true).open(path)?);
        open.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }
}

impl Client for Files {
    fn lock<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Box<dyn Held + 'a>>> {
        Box::pin(async move {
            let file = self.open(name)?;
            // It blocks the thread while others hold.
            if file.try_lock().is_err() {
                tokio::task::block_in_place(|| file.lock())?;
            }
            tokio::task::consume_budget().await;
            Ok(Box::new(Lock(file)) as Box<dyn Held + 'a>)
        })
    }
}

impl Held for Lock {
    fn release<'a>(self: Box<Self>) -> BoxFuture<'a, Result<()>>
    where
        Self: 'a,
    {
        Box::pin(std::future::ready(self.0.unlock().map_err(Into::into)))
    }
}

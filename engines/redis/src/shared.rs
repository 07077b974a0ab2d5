//! An engine that its own ears speak to.

use std::ops::Deref;
use std::sync::Arc;

/// An `Arc` of ours, so that it can implement the seams.
#[derive(Debug)]
pub(crate) struct Shared<T>(pub(crate) Arc<T>);

impl<T> Deref for Shared<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

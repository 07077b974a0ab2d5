//! What our claims write of their holder.

use lockkeeper_core::{Claim, Holder};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// The holder's line, made once: all claims of a keeper have the same holder.
#[derive(Debug, Default)]
pub struct HolderLine(OnceLock<(Arc<Holder>, String)>);

impl HolderLine {
    /// The line of the claim's holder.
    pub fn of(&self, claim: &Claim) -> Cow<'_, str> {
        let (holder, line) = self.0.get_or_init(|| (Arc::clone(&claim.holder), claim.holder.encode()));
        if Arc::ptr_eq(holder, &claim.holder) { line.into() } else { claim.holder.encode().into() }
    }
}

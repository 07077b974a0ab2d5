//! What our claims write of their holder.

use lockkeeper_core::{Claim, Holder};
use std::sync::{Arc, OnceLock};

/// The holder's line, made once: all claims of a keeper have the same holder.
#[derive(Debug, Default)]
pub struct HolderLine(OnceLock<(Arc<Holder>, Arc<str>)>);

impl HolderLine {
    /// The line of the claim's holder.
    pub fn of(&self, claim: &Claim) -> Arc<str> {
        let (holder, line) = self.0.get_or_init(|| (Arc::clone(&claim.holder), claim.holder.encode().into()));
        if Arc::ptr_eq(holder, &claim.holder) { Arc::clone(line) } else { claim.holder.encode().into() }
    }
}

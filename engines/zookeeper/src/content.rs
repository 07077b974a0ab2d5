//! The data of a claim's node: who stands behind it.

use lockkeeper_core::{Claim, Demand, Holder};
use serde::{Deserialize, Serialize};

/// What we write; other clients write text of their own, mostly an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    #[serde(flatten)]
    pub(crate) holder: Holder,
    pub(crate) claim: String,
    pub(crate) keeper: String,
    pub(crate) demand: String,
    /// The fencing token, where it is not the node's own transaction: after a downgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<i64>,
}

impl Content {
    pub(crate) fn of(claim: &Claim, demand: Demand, token: Option<i64>) -> Vec<u8> {
        let content = Self {
            holder: claim.holder.as_ref().clone(),
            claim: claim.id.to_string(),
            keeper: claim.keeper.to_string(),
            demand: demand.to_string(),
            token,
        };
        serde_json::to_vec(&content).unwrap_or_default()
    }

    /// Reads the data of a node; `None` if another client wrote it.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }
}

/// What another client's data tells: its text, as far as it is one.
pub(crate) fn foreign_holder(data: &[u8]) -> Holder {
    const LONGEST_CHARS: usize = 120;
    let text = String::from_utf8_lossy(data);
    let text = text.chars().filter(|c| !c.is_control()).take(LONGEST_CHARS).collect();
    Holder { text, host: String::new(), pid: 0 }
}

//! The JSON that etcd alone stores with a claim: its demand, its id and its holder.

use lockkeeper_core::engine::Claim;
use lockkeeper_core::{Demand, Holder};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The value of a claim's key. It is written without a copy of the holder, and read with one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Value<H = Holder, I = String> {
    #[serde(with = "as_text")]
    pub(crate) demand: Demand,
    #[serde(flatten)]
    pub(crate) holder: H,
    /// The claim's id.
    pub(crate) claim: I,
    /// When it joined, by its own machine's clock: shown to operators, and used for nothing else.
    pub(crate) since_ms: u64,
    /// When it was granted, likewise, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) granted_ms: Option<u64>,
}

/// The times in a value.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) since_ms: u64,
    pub(crate) granted_ms: Option<u64>,
}

impl Times {
    /// Those of a claim that did not have to wait.
    pub(crate) fn granted_at_join(self) -> Self {
        Self { granted_ms: Some(self.since_ms), ..self }
    }
}

impl Value {
    /// The value of a claim that joined and was granted then.
    pub(crate) fn encode(claim: &Claim, demand: Demand, times: Times) -> Vec<u8> {
        let (id, Times { since_ms, granted_ms }) = (claim.id.hex(), times);
        let value = Value { demand, holder: claim.holder.as_ref(), claim: id.as_str(), since_ms, granted_ms };
        serde_json::to_vec(&value).unwrap_or_default()
    }

    /// Reads a value of ours; `None` if another client wrote it.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    pub(crate) fn age(&self) -> Duration {
        elapsed(self.since_ms)
    }

    pub(crate) fn held_for(&self) -> Option<Duration> {
        self.granted_ms.map(elapsed)
    }

    pub(crate) fn times(&self) -> Times {
        Times { since_ms: self.since_ms, granted_ms: self.granted_ms }
    }
}

/// The present time of this machine's clock.
pub(crate) fn now_ms() -> u64 {
    since_epoch().as_millis().try_into().unwrap_or(u64::MAX)
}

fn elapsed(since_ms: u64) -> Duration {
    since_epoch().saturating_sub(Duration::from_millis(since_ms))
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

mod as_text {
    use lockkeeper_core::Demand;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(demand: &Demand, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(demand)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Demand, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

//! Durations, as requests have them.

use crate::error::Problem;
use lockkeeper_core::engine::parse_duration;
use serde::Deserialize;
use std::time::Duration;
use utoipa::ToSchema;

/// A duration: a text with units, or a whole number of milliseconds.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a duration is a text such as \"10s\", or whole milliseconds")]
pub(crate) enum Time {
    /// Numbers with the units ms, s, m, h and d.
    #[schema(example = "10s")]
    Text(String),
    /// Milliseconds.
    Milliseconds(u64),
}

impl Time {
    /// The duration, if it is in these limits.
    pub(crate) fn within(&self, what: &str, least: Duration, most: Duration) -> Result<Duration, Problem> {
        let duration = match self {
            Self::Text(text) => parse_duration(text)?,
            Self::Milliseconds(milliseconds) => Duration::from_millis(*milliseconds),
        };
        if duration < least || duration > most {
            return Err(Problem::invalid(format!(
                "a {what} of {duration:?} is not possible here: give {least:?} to {most:?}"
            )));
        }
        Ok(duration)
    }
}

/// Whole milliseconds, rounded down: a deadline may come early, never late.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

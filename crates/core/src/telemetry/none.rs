//! Stands for the metrics in a build without them.

use crate::engine::Abilities;
use crate::name::LockName;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(super) enum Metric {
    Granted,
    NotGranted,
    JoinedAgain,
    Renewals,
    NearMisses,
    RenewalFailures,
    Lost,
    WaitSeconds,
    HoldSeconds,
    Held,
    Waiting,
}

#[derive(Debug)]
pub(super) struct Metrics;

impl Metrics {
    pub(super) fn starting(_: &Abilities, _: bool) -> Self {
        Self
    }

    pub(super) fn count(&self, _: Metric, _: Option<&str>) {}

    pub(super) fn record(&self, _: Metric, _: &LockName, _: Duration) {}

    pub(super) fn one_more(&self, _: Metric, _: &str) -> OneMore {
        OneMore
    }
}

#[derive(Debug)]
pub(crate) struct OneMore;

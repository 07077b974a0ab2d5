//! The links of one keeper: one on the house runtime that keeps claims alive and listens, a few quick ones for
//! joins and leaves.

use crate::config::Settings;
use crate::link::Link;
use crate::session::Messages;
use std::sync::Arc;

/// A link takes so many requests before the next one is opened: one server process is quicker than two as
/// long as it is not the bottleneck.
const ENOUGH: usize = 4;

/// The links.
pub(crate) struct Links {
    house: Link,
    quick: Vec<Link>,
}

impl Links {
    /// `greeting` is sent when a link is opened; `listen`, too, on the one that listens.
    pub(crate) fn new(
        settings: &Arc<Settings>,
        statements: &'static [&'static str],
        greeting: &str,
        listen: &str,
        messages: Messages,
    ) -> Self {
        let on_house = format!("{greeting}; {listen}");
        let quick = || Link::quick(settings, statements, Some(greeting.into()));
        Self {
            house: Link::new(settings, statements, messages, Some(on_house)),
            quick: (0..settings.connections).map(|_| quick()).collect(),
        }
    }

    /// The one on the house runtime.
    pub(crate) fn house(&self) -> &Link {
        &self.house
    }

    pub(crate) fn at(&self, index: usize) -> &Link {
        &self.quick[index % self.quick.len()]
    }

    /// The first link that has room, or the one with the least to do.
    pub(crate) fn choose(&self) -> usize {
        self.quick.iter().position(|link| link.load() < ENOUGH).unwrap_or_else(|| self.idlest())
    }

    /// The link with the least to do.
    pub(crate) fn idlest(&self) -> usize {
        let loads = self.quick.iter().map(Link::load).enumerate();
        loads.min_by_key(|(_, load)| *load).map_or(0, |(index, _)| index)
    }

    pub(crate) fn close(&self) {
        self.house.close();
        self.quick.iter().for_each(Link::close);
    }
}

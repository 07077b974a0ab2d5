//! A few links that share the work of one keeper.

use crate::config::Settings;
use crate::link::Link;
use crate::session::Messages;
use std::sync::Arc;

/// A link takes so many requests before the next one is opened: one server process is quicker than two as
/// long as it is not the bottleneck.
const ENOUGH: usize = 4;

/// The links; the first one also listens and renews.
pub(crate) struct Links(Vec<Link>);

impl Links {
    pub(crate) fn new(
        settings: &Arc<Settings>,
        statements: &'static [&'static str],
        messages: Messages,
        greeting: Option<String>,
    ) -> Self {
        let mut links = vec![Link::new(settings, statements, messages, greeting)];
        links.extend((1..settings.connections).map(|_| Link::new(settings, statements, None, None)));
        Self(links)
    }

    pub(crate) fn first(&self) -> &Link {
        &self.0[0]
    }

    pub(crate) fn at(&self, index: usize) -> &Link {
        &self.0[index % self.0.len()]
    }

    /// The first link that has room, or the one with the least to do.
    pub(crate) fn choose(&self) -> usize {
        let loads = || self.0.iter().map(Link::load).enumerate();
        loads()
            .find(|(_, load)| *load < ENOUGH)
            .or_else(|| loads().min_by_key(|(_, load)| *load))
            .map_or(0, |(index, _)| index)
    }

    pub(crate) fn close(&self) {
        self.0.iter().for_each(Link::close);
    }
}

//! The tracing events of one future, for cases that judge what is said.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// Collects the messages of events.
#[derive(Debug, Clone)]
pub(crate) struct Events(Arc<Mutex<String>>);

/// While there is just one subscriber, `tracing` asks the thread that first meets an event whether anybody wants it, and another
/// case's thread says no for good. A second subscriber makes it ask all of them.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Events(Arc::default())));

impl Default for Events {
    fn default() -> Self {
        LazyLock::force(&SECOND);
        Self(Arc::default())
    }
}

impl Events {
    /// Whether an event had this text in its message.
    pub(crate) fn contain(&self, text: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(text)
    }
}

impl Subscriber for Events {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = writeln!(self.0, "{value:?}");
        }
    }
}

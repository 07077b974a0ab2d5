//! lockkeeper itself, on one style of an engine.

use crate::contest::{Contestant, Place};
use crate::libraries::{Client, in_process};
use futures_util::future::BoxFuture;
use lockkeeper::Keeper;
use lockkeeper_bench::Result;
use lockkeeper_bench::kit::{Mutexes, Pairs, Shape, Turns, connect};
use std::sync::Arc;

/// Locks with their keeper, which lives as long as they do.
struct Kept {
    locks: Mutexes,
    _keeper: Keeper,
}

impl Pairs for Kept {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        self.locks.pair(lock)
    }
}

struct Ours {
    engine: &'static str,
    style: &'static str,
}

pub fn style(engine: &'static str, style: &'static str) -> Box<dyn Contestant> {
    Box::new(Ours { engine, style })
}

impl Contestant for Ours {
    fn name(&self) -> String {
        format!("{} {}", self.engine, self.style)
    }

    fn rival(&self) -> Option<&'static str> {
        None
    }

    fn take_turns(&mut self, place: &Place<'_>) -> Result<Vec<Turns>> {
        // Engines with only one style take no parameter.
        let has_styles = !matches!(self.engine, "file" | "etcd");
        let url = if has_styles { format!("{}?style={}", place.url, self.style) } else { place.url.into() };
        in_process(place, |_: Client| {
            let (url, name) = (url.clone(), place.name.to_owned());
            let locks = if let Shape::Spread(count) = place.shape { count } else { 1 };
            async move {
                let keeper = connect(&url, None).await?;
                let locks = Mutexes::named(&keeper, &name, locks);
                Ok(Arc::new(Kept { locks, _keeper: keeper }) as Arc<dyn Pairs>)
            }
        })
    }
}

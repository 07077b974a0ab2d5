//! lockkeeper itself, on one style of an engine.

use crate::contest::{Contestant, Place};
use crate::libraries::{Client, in_process};
use lockkeeper_bench::Result;
use lockkeeper_bench::kit::{Mutexes, Pairs, Shape, Turns, connect};
use std::sync::Arc;

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
        // The file engine has one style and takes no parameter.
        let style = if self.engine == "file" { String::new() } else { format!("?style={}", self.style) };
        let style = if self.engine == "etcd" { String::new() } else { style };
        let url = format!("{}{style}", place.url);
        in_process(place, |_: Client| {
            let (url, name) = (url.clone(), place.name.to_owned());
            let locks = if let Shape::Spread(count) = place.shape { count } else { 1 };
            async move {
                let keeper = connect(&url, None).await?;
                Ok(Arc::new(Mutexes::named(&keeper, &name, locks)) as Arc<dyn Pairs>)
            }
        })
    }
}

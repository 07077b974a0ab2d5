//! The servers of the cluster: which one gets the requests, and a new connection for one that fell silent.

use lockkeeper_core::house;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

/// A connection is given at least this long before it is replaced.
const YOUNG: Duration = Duration::from_secs(1);

/// The servers, and which one is in use.
#[derive(Debug)]
pub(crate) struct Members {
    links: Vec<Link>,
    current: watch::Sender<usize>,
}

/// One server with its connection, which is opened when it is first used and again when it breaks.
#[derive(Debug)]
struct Link {
    endpoint: Endpoint,
    channel: Mutex<(Channel, Instant)>,
}

/// The server to send to.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) index: usize,
    pub(crate) channel: Channel,
}

impl Members {
    pub(crate) fn new(endpoints: Vec<Endpoint>) -> Self {
        let links = endpoints
            .into_iter()
            .map(|endpoint| Link { channel: Mutex::new((connect(&endpoint), Instant::now())), endpoint });
        Self { links: links.collect(), current: watch::Sender::new(0) }
    }

    pub(crate) fn count(&self) -> usize {
        self.links.len()
    }

    pub(crate) fn moves(&self) -> watch::Receiver<usize> {
        self.current.subscribe()
    }

    pub(crate) fn current(&self) -> Member {
        let index = *self.current.borrow();
        let channel = self.links[index].channel.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        Member { index, channel }
    }

    /// The server failed: the next one is used, unless somebody has moved on already. A silent connection may be
    /// dead without knowing, so it gets a successor.
    pub(crate) fn avoid(&self, index: usize, silent: bool) {
        if silent {
            let link = &self.links[index];
            let mut channel = link.channel.lock().unwrap_or_else(PoisonError::into_inner);
            if channel.1.elapsed() >= YOUNG {
                *channel = (connect(&link.endpoint), Instant::now());
            }
        }
        self.current.send_if_modified(|current| {
            let moves = *current == index && self.links.len() > 1;
            if moves {
                *current = (index + 1) % self.links.len();
            }
            moves
        });
    }
}

/// Connections live in the house: a blocked executor of the user's must not silence the keep-alive.
fn connect(endpoint: &Endpoint) -> Channel {
    let _in_the_house = house::handle().enter();
    endpoint.connect_lazy()
}

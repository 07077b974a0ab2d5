//! The servers of the cluster: which one gets the requests, and a new connection for one that fell silent.

use crate::cork::Cork;
use crate::wire::Wire;
use hyper_util::rt::TokioIo;
use lockkeeper_core::background;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// A connection is given at least this long before it is replaced.
const YOUNG: Duration = Duration::from_secs(1);

/// The servers, and which one is in use.
#[derive(Debug)]
pub(crate) struct Members {
    links: Vec<Link>,
    current: watch::Sender<usize>,
}

/// One server with its connections.
#[derive(Debug)]
struct Link {
    /// In the house: a blocked executor of the user's must not silence the keep-alive.
    house: Lane,
    /// On the runtime that the keeper was made on, for requests from there: they need not change threads on their
    /// way out and back.
    near: Option<Lane>,
    /// The same for single calls, where there is no TLS.
    wire: Option<Arc<Wire>>,
}

/// A connection that lives on one runtime. It is opened when it is first used and again when it breaks.
#[derive(Debug)]
struct Lane {
    endpoint: Endpoint,
    runtime: Handle,
    channel: Mutex<(Channel, Instant)>,
}

/// The server to send to.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) index: usize,
    pub(crate) channel: Channel,
    /// For single calls, if there is one on this runtime.
    pub(crate) wire: Option<Arc<Wire>>,
}

impl Members {
    /// These servers; an answer may take so long.
    pub(crate) fn new(endpoints: Vec<Endpoint>, limit: Duration) -> Self {
        let here = background::caller();
        let links = endpoints.into_iter().map(|endpoint| Link {
            wire: here.as_ref().and_then(|_| wire(&endpoint, limit)),
            near: here.clone().map(|here| Lane::new(endpoint.clone(), here)),
            house: Lane::new(endpoint, background::handle().clone()),
        });
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
        let (lane, wire) = self.links[index].lane();
        Member { index, channel: lane.channel(), wire: wire.cloned() }
    }

    /// The server failed: the next one is used, unless somebody has moved on already. A silent connection may be
    /// dead without knowing, so it gets a successor.
    pub(crate) fn avoid(&self, index: usize, silent: bool) {
        if silent {
            self.links[index].lane().0.replace();
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

impl Link {
    /// What requests from the runtime we are on go over.
    fn lane(&self) -> (&Lane, Option<&Arc<Wire>>) {
        let is_here = |lane: &&Lane| Handle::try_current().is_ok_and(|here| here.id() == lane.runtime.id());
        match self.near.as_ref().filter(is_here) {
            Some(near) => (near, self.wire.as_ref()),
            None => (&self.house, None),
        }
    }
}

impl Lane {
    fn new(endpoint: Endpoint, runtime: Handle) -> Self {
        let channel = Mutex::new((connect(&endpoint, &runtime), Instant::now()));
        Self { endpoint, runtime, channel }
    }

    fn channel(&self) -> Channel {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn replace(&self) {
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        if channel.1.elapsed() >= YOUNG {
            *channel = (connect(&self.endpoint, &self.runtime), Instant::now());
        }
    }
}

fn wire(endpoint: &Endpoint, limit: Duration) -> Option<Arc<Wire>> {
    let server = endpoint.uri();
    let authority = server.authority().filter(|_| server.scheme_str() == Some("http"))?;
    Some(Arc::new(Wire::new(authority.clone(), limit)))
}

fn connect(endpoint: &Endpoint, runtime: &Handle) -> Channel {
    let _there = runtime.enter();
    // As the driver's own, but with fewer writes.
    endpoint.connect_with_connector_lazy(service_fn(async |server: Uri| {
        Cork::connect(server.host().unwrap_or_default(), server.port_u16()).await.map(TokioIo::new)
    }))
}

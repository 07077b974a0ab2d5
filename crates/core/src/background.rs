//! The background runtime: one thread of lockkeeper's own, on which renewals and lost signals run.
//!
//! A user's executor may be blocked for seconds by a long computation; the locks must not be lost for that.
//! So whatever keeps locks alive, engines' background connections included, lives here.

use std::cell::Cell;
use std::sync::OnceLock;
use tokio::runtime::{Builder, Handle};

static BACKGROUND: OnceLock<Handle> = OnceLock::new();

thread_local! {
    static IS_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// The background runtime; starts its thread on first use.
///
/// Engines spawn on it what renewals need: connections, subscriptions, watches.
///
/// # Panics
/// When the system gives us no thread or no event queue at all.
pub fn handle() -> &'static Handle {
    BACKGROUND.get_or_init(|| {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name("lockkeeper")
            .build()
            .expect("the system has no room for an event queue");
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("lockkeeper".into())
            .spawn(move || {
                IS_BACKGROUND.set(true);
                runtime.block_on(std::future::pending::<()>());
            })
            .expect("the system has no room for a thread");
        handle
    })
}

/// Whether the caller runs on the background thread, where nothing may block. (The blocking API enters the background
/// runtime on the caller's own thread, so the runtime does not show it.)
pub fn is_current_thread() -> bool {
    IS_BACKGROUND.get()
}

/// The caller's runtime, if there is one and it is not the background's.
pub fn caller() -> Option<Handle> {
    Handle::try_current().ok().filter(|here| here.id() != handle().id())
}

/// Where a keeper's background tasks run.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// On the background runtime.
    Background,
    /// On the runtime the keeper was made on, whose clock a test may pause.
    Caller(Handle),
}

impl Place {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::Background => handle().spawn(task),
            Self::Caller(handle) => handle.spawn(task),
        };
    }
}

/// The user this process acts as, for places that are a user's own: the effective id, which owns the files that the
/// process makes.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

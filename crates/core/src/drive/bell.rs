//! A waker that reaches whoever it belongs to at the time.

use futures_util::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};

const HEARD: u8 = 0;
const UNHEARD: u8 = 1;
const CALLED: u8 = 2;

/// Wakes the one it belongs to, unless he says that he need not be woken.
pub(super) struct Bell {
    inner: Arc<Inner>,
    rope: Waker,
}

#[derive(Default)]
struct Inner {
    owner: AtomicWaker,
    /// Whether a call reaches the owner; if not, whether there was one.
    state: AtomicU8,
}

impl Wake for Inner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.load(SeqCst) == HEARD
            || self.state.compare_exchange(UNHEARD, CALLED, SeqCst, SeqCst) == Err(HEARD)
        {
            self.owner.wake();
        }
    }
}

impl Default for Bell {
    fn default() -> Self {
        let inner = Arc::new(Inner::default());
        Self { rope: Waker::from(Arc::clone(&inner)), inner }
    }
}

impl Bell {
    /// From now on it wakes this one, once.
    pub(super) fn belongs_to(&self, owner: &Context<'_>) {
        self.inner.owner.register(owner.waker());
    }

    /// To poll something with, so that it rings the bell.
    pub(super) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.rope)
    }

    /// Does something of the owner's that need not wake him. Says whether it, or anybody else meanwhile, has called.
    pub(super) fn unheard_during<T>(&self, what: impl FnOnce() -> T) -> (T, bool) {
        // If that is seen late, a call reaches the owner needlessly.
        self.inner.state.store(UNHEARD, Relaxed);
        let outcome = what();
        (outcome, self.inner.state.swap(HEARD, SeqCst) == CALLED)
    }

    pub(super) fn ring(&self) {
        self.inner.owner.wake();
    }
}

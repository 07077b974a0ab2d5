//! One inotify instance per process, read on the background runtime, notifies those who wait.

use lockkeeper_core::engine::background;
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// A file is closed by its owner's leave or death, its attributes change when its last name is removed (or its
/// owner shrinks); writing, which renewals do, is not watched. One mask for all: files watched twice in one process
/// share a watch, and a second mask would replace the first.
const MASK: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

const BUFFER_BYTES: usize = 4096;

/// Who waits for one watched file. The same waiter may be there twice.
type Waiters = Vec<Arc<Notify>>;

struct Instance {
    events: AsyncFd<OwnedFd>,
    /// Held while a watch is added or removed, or one waiter could remove what another just got to share. Looking up a path
    /// may wait for the disk, so the background never takes it.
    changing: Mutex<()>,
    /// Never held over a system call, since the background takes it.
    waiters: Mutex<HashMap<i32, Waiters>>,
}

static INSTANCE: Mutex<Option<Arc<Instance>>> = Mutex::new(None);

/// The process's instance; made on first use, and tried again if there was no room for it.
fn instance() -> Result<Arc<Instance>, Errno> {
    let mut slot = INSTANCE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(instance) = slot.as_ref() {
        return Ok(Arc::clone(instance));
    }
    let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let _background = background::handle().enter();
    // Its successor is unsafe for the sake of types that could swap their descriptor; an `OwnedFd` cannot.
    #[allow(deprecated)]
    let events = AsyncFd::with_interest(events, Interest::READABLE).map_err(|_| Errno::NOMEM)?;
    let instance = Arc::new(Instance { events, changing: Mutex::default(), waiters: Mutex::default() });
    background::handle().spawn(read_events(Arc::clone(&instance)));
    Ok(Arc::clone(slot.insert(instance)))
}

async fn read_events(instance: Arc<Instance>) {
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    while let Ok(mut ready) = instance.events.readable().await {
        let mut reader = inotify::Reader::new(instance.events.get_ref(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => instance.notify(event.wd(), event.events()),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        ready.clear_ready();
    }
}

impl Instance {
    fn waiters(&self) -> MutexGuard<'_, HashMap<i32, Waiters>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, watch: i32, events: ReadFlags) {
        let waiters = self.waiters();
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            // Events were dropped, and nothing says whose.
            waiters.values().flatten().for_each(|waiter| waiter.notify_one());
        } else {
            waiters.get(&watch).into_iter().flatten().for_each(|waiter| waiter.notify_one());
        }
    }

    /// An event that comes before the waiter is entered is lost; the look that follows will see its cause.
    fn add(&self, path: PathBuf, waiter: &Arc<Notify>) -> Result<Option<i32>, Errno> {
        let _changing = self.changing();
        match inotify::add_watch(self.events.get_ref(), path, MASK) {
            Ok(watch) => {
                self.waiters().entry(watch).or_default().push(Arc::clone(waiter));
                Ok(Some(watch))
            }
            // It has left; the look that follows will see that.
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn remove(&self, watch: i32, waiter: &Arc<Notify>) {
        let _changing = self.changing();
        if self.remove_waiter(watch, waiter) {
            // Fails when the file is gone for good and the watch with it. Numbers are not used again soon.
            let _ = inotify::remove_watch(self.events.get_ref(), watch);
        }
    }

    /// Says whether it was the last one of the watch.
    fn remove_waiter(&self, watch: i32, waiter: &Arc<Notify>) -> bool {
        let mut all = self.waiters();
        let Some(waiters) = all.get_mut(&watch) else { return false };
        if let Some(index) = waiters.iter().position(|other| Arc::ptr_eq(other, waiter)) {
            waiters.swap_remove(index);
        }
        let is_last = waiters.is_empty();
        if is_last {
            all.remove(&watch);
        }
        is_last
    }
}

/// A watch on some files.
pub(crate) struct Watching {
    instance: Arc<Instance>,
    waiter: Arc<Notify>,
    watches: Vec<i32>,
}

impl Watching {
    pub(crate) fn on(paths: impl Iterator<Item = PathBuf>) -> Result<Self, Errno> {
        let mut watching = Self { instance: instance()?, waiter: Arc::default(), watches: Vec::new() };
        for path in paths {
            watching.watches.extend(watching.instance.add(path, &watching.waiter)?);
        }
        Ok(watching)
    }

    pub(crate) async fn changed(&self) {
        self.waiter.notified().await;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        for watch in &self.watches {
            self.instance.remove(*watch, &self.waiter);
        }
    }
}

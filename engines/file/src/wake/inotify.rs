//! One inotify instance per process, read on the house's thread, rings the bells of those who wait.

use lockkeeper_core::background;
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

/// Who is to be told about one watched file. The same bell may be there twice.
type Bells = Vec<Arc<Notify>>;

struct Instance {
    events: AsyncFd<OwnedFd>,
    /// The mutex is held over adding and removing a watch, or one could remove what another just got to share.
    bells: Mutex<HashMap<i32, Bells>>,
}

static INSTANCE: Mutex<Option<Arc<Instance>>> = Mutex::new(None);

/// The process's instance; made on first use, and tried again if there was no room for it.
fn instance() -> Result<Arc<Instance>, Errno> {
    let mut slot = INSTANCE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(instance) = slot.as_ref() {
        return Ok(Arc::clone(instance));
    }
    let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let _on_house = background::handle().enter();
    // Its successor is unsafe for the sake of types that could swap their descriptor; an `OwnedFd` cannot.
    #[allow(deprecated)]
    let events = AsyncFd::with_interest(events, Interest::READABLE).map_err(|_| Errno::NOMEM)?;
    let instance = Arc::new(Instance { events, bells: Mutex::default() });
    background::handle().spawn(read_events(Arc::clone(&instance)));
    Ok(Arc::clone(slot.insert(instance)))
}

async fn read_events(instance: Arc<Instance>) {
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    while let Ok(mut ready) = instance.events.readable().await {
        let mut reader = inotify::Reader::new(instance.events.get_ref(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => instance.ring(event.wd(), event.events()),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        ready.clear_ready();
    }
}

impl Instance {
    fn bells(&self) -> MutexGuard<'_, HashMap<i32, Bells>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, watch: i32, events: ReadFlags) {
        let bells = self.bells();
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            // Events were dropped, nobody knows whose.
            bells.values().flatten().for_each(|bell| bell.notify_one());
        } else {
            bells.get(&watch).into_iter().flatten().for_each(|bell| bell.notify_one());
        }
    }

    fn add(&self, path: PathBuf, bell: &Arc<Notify>) -> Result<Option<i32>, Errno> {
        let mut bells = self.bells();
        match inotify::add_watch(self.events.get_ref(), path, MASK) {
            Ok(watch) => {
                bells.entry(watch).or_default().push(Arc::clone(bell));
                Ok(Some(watch))
            }
            // It has left; the look that follows will see that.
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn remove(&self, watch: i32, bell: &Arc<Notify>) {
        let mut all = self.bells();
        let Some(bells) = all.get_mut(&watch) else { return };
        if let Some(index) = bells.iter().position(|other| Arc::ptr_eq(other, bell)) {
            bells.swap_remove(index);
        }
        if bells.is_empty() {
            all.remove(&watch);
            // Fails when the file is gone for good and the watch with it. Numbers are not used again soon.
            let _ = inotify::remove_watch(self.events.get_ref(), watch);
        }
    }
}

/// A watch on some files.
pub(crate) struct Watching {
    instance: Arc<Instance>,
    bell: Arc<Notify>,
    watches: Vec<i32>,
}

impl Watching {
    pub(crate) fn on(paths: impl Iterator<Item = PathBuf>) -> Result<Self, Errno> {
        let mut watching = Self { instance: instance()?, bell: Arc::default(), watches: Vec::new() };
        for path in paths {
            watching.watches.extend(watching.instance.add(path, &watching.bell)?);
        }
        Ok(watching)
    }

    pub(crate) async fn rings(&self) {
        self.bell.notified().await;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        for watch in &self.watches {
            self.instance.remove(*watch, &self.bell);
        }
    }
}

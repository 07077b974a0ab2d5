//! How a departure wakes the claims that now fit, and no others: a FIFO per engine, a notification per waiting claim.
//!
//! A waiter of this engine is notified in memory. One of another process is woken by writing its claim's id into the FIFO
//! which that process reads, beside the database. So 200 idle waiters cost nothing, and a release costs one write.

use crate::error::ENGINE;
use lockkeeper_core::engine::{ClaimId, Clock, Worker, background};
use lockkeeper_core::{Error, Result};
use rustix::fs::{FileType, Mode, OFlags, mknodat};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot};

/// A FIFO that has no reader yet belongs to a process that is about to open it, unless it is this old.
const NEW: Duration = Duration::from_secs(60);

/// How long [`Wake::close`] waits for the disk.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// A claim to be woken, and the FIFO it is reached by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wakeup {
    pub(crate) wake: String,
    pub(crate) id: ClaimId,
}

/// The claims of this engine that wait. The mutex is never held over a system call, since the background takes it.
#[derive(Debug, Default)]
struct Waiters(Mutex<HashMap<ClaimId, Arc<Notify>>>);

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClaimId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, id: ClaimId) {
        if let Some(waiter) = self.lock().get(&id) {
            waiter.notify_one();
        }
    }
}

/// One waiting claim. To be made before the queue is looked at, so that no wake-up is missed.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    id: ClaimId,
    notify: Arc<Notify>,
}

impl Waiter<'_> {
    /// Resolves when it is woken, also if that was before.
    pub(crate) async fn woken(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiters = self.waiters.lock();
        if waiters.get(&self.id).is_some_and(|notify| Arc::ptr_eq(notify, &self.notify)) {
            waiters.remove(&self.id);
        }
    }
}

/// The wake side of one engine: reads its own FIFO, writes into others'.
#[derive(Debug)]
pub(crate) struct Wake {
    /// What the claims of this engine store, so that others find the FIFO.
    pub(crate) address: String,
    waiters: Arc<Waiters>,
    database: PathBuf,
    /// Ends the reader. The second half resolves when the FIFO is removed.
    reader: Mutex<Option<(oneshot::Sender<()>, oneshot::Receiver<()>)>>,
}

impl Wake {
    /// Makes the FIFO, reads it on the background runtime, and removes what dead processes left. Blocks.
    ///
    /// # Errors
    /// When the directory does not take a FIFO.
    pub(crate) fn open(database: &Path, worker: &Worker) -> Result<Self> {
        let failed =
            |error: std::io::Error| Error::permanent(ENGINE, "make the FIFO that wakes waiters", error);
        sweep(database);
        let address = ClaimId::random().to_string();
        let path = fifo(database, &address);
        // It gets its name when it has a reader, so that no other process takes it for a dead one's.
        let new = fifo(database, &format!("{address}.new"));
        mknodat(rustix::fs::CWD, &new, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .map_err(|error| failed(error.into()))?;
        let opened = share(database, &new).and_then(|()| open_reader(&new));
        let reader = opened.and_then(|reader| std::fs::rename(&new, &path).map(|()| reader));
        let reader = reader.inspect_err(|_| drop(std::fs::remove_file(&new))).map_err(failed)?;
        let waiters = Arc::<Waiters>::default();
        let ((end, ended), (removed, is_removed)) = (oneshot::channel(), oneshot::channel());
        let fifo = Fifo { reader, path, worker: worker.clone(), removed };
        background::handle().spawn(fifo.read(Arc::clone(&waiters), ended));
        let reader = Mutex::new(Some((end, is_removed)));
        Ok(Self { address, waiters, database: database.to_owned(), reader })
    }

    /// Registers a waiting claim.
    pub(crate) fn waiter(&self, id: ClaimId) -> Waiter<'_> {
        let notify = Arc::<Notify>::default();
        self.waiters.lock().insert(id, Arc::clone(&notify));
        Waiter { waiters: &self.waiters, id, notify }
    }

    /// Wakes these claims, wherever they wait. Writes to the FIFOs of other processes, so it may wait for the disk.
    pub(crate) fn wake(&self, wakeups: &[Wakeup]) {
        for (at, wakeup) in wakeups.iter().enumerate() {
            if wakeup.wake == self.address {
                self.waiters.notify(wakeup.id);
            } else if !wakeups[..at].iter().any(|earlier| earlier.wake == wakeup.wake) {
                let ids = wakeups.iter().filter(|other| other.wake == wakeup.wake).map(|other| other.id);
                self.send(&wakeup.wake, ids);
            }
        }
    }

    /// Writes claims' ids into another engine's FIFO. A wake-up that is lost is made up for by the waiter itself, when
    /// the claim expires that blocked it at its last look.
    fn send(&self, address: &str, ids: impl Iterator<Item = ClaimId>) {
        use std::io::Write as _;
        let path = fifo(&self.database, address);
        let message: Vec<u8> = ids.flat_map(|id| id.0.to_be_bytes()).collect();
        let sent = open_writer(&path).and_then(|mut fifo| fifo.write_all(&message));
        if let Err(error) = sent {
            tracing::debug!(%error, fifo = %path.display(), "could not wake a waiter; it will look by itself");
        }
    }

    /// Stops reading and removes the FIFO.
    pub(crate) async fn close(&self) {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((end, is_removed)) = reader {
            drop(end);
            let _ = Clock::Boot.timeout(CLOSE_LIMIT, is_removed).await;
        }
    }
}

/// The engine's own FIFO.
struct Fifo {
    reader: pipe::Receiver,
    path: PathBuf,
    worker: Worker,
    removed: oneshot::Sender<()>,
}

impl Fifo {
    /// Notifies the waiting claims whose ids arrive, until the engine ends. Then it is closed and removed on the engine's
    /// thread, for either may wait for the disk.
    async fn read(mut self, waiters: Arc<Waiters>, ended: oneshot::Receiver<()>) {
        let mut id = [0; 16];
        let read = async {
            // Writers send whole ids at once, at most what a pipe takes in one piece, so they never mix.
            while self.reader.read_exact(&mut id).await.is_ok() {
                waiters.notify(ClaimId(u128::from_be_bytes(id)));
            }
        };
        tokio::select! {
            () = read => {}
            _ = ended => {}
        }
        let Self { reader, path, worker, removed } = self;
        worker.send(move || {
            let _ = std::fs::remove_file(path);
            drop(reader);
            let _ = removed.send(());
        });
    }
}

fn fifo(database: &Path, address: &str) -> PathBuf {
    let mut path = OsString::from(database);
    path.push("-wake-");
    path.push(address);
    path.into()
}

/// Lets everybody write to the FIFO who may write to the database.
fn share(database: &Path, fifo: &Path) -> std::io::Result<()> {
    let mode = std::fs::metadata(database)?.permissions().mode() & 0o666;
    std::fs::set_permissions(fifo, std::fs::Permissions::from_mode(mode | 0o600))
}

fn open_reader(path: &Path) -> std::io::Result<pipe::Receiver> {
    // Without a time of access, which would be written to the disk by the background. Open for writing, too, so that it
    // does not end when the last writer closes it.
    let flags = (OFlags::NONBLOCK | OFlags::NOATIME).bits() as i32;
    let file = File::options().read(true).write(true).custom_flags(flags).open(path)?;
    let _background = background::handle().enter();
    pipe::Receiver::from_file(file)
}

/// Fails with ENXIO, instead of waiting, if there is no reader.
fn open_writer(path: &Path) -> std::io::Result<File> {
    File::options().write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}

/// Removes the FIFOs of processes that died without closing.
fn sweep(database: &Path) {
    let (Some(directory), Some(name)) = (database.parent(), database.file_name()) else { return };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let mut prefix = name.to_owned();
    prefix.push("-wake-");
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(prefix.as_encoded_bytes())
            && is_dead(&entry.path())
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn is_dead(fifo: &Path) -> bool {
    let is_new = fifo.extension().is_some_and(|extension| extension == "new");
    let age = fifo.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
    if is_new && age.is_none_or(|age| age < NEW) {
        return false;
    }
    let no_reader = rustix::io::Errno::NXIO.raw_os_error();
    open_writer(fifo).is_err_and(|error| error.raw_os_error() == Some(no_reader))
}

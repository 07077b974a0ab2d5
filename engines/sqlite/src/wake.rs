//! How a departure wakes the claims that now fit, and nobody else: a FIFO per engine, a bell per waiting claim.
//!
//! A waiter of this engine is rung in memory. One of another process is rung by writing its claim's id into the FIFO
//! which that process reads, beside the database. So 200 idle waiters cost nothing, and a release costs one write.

use lockkeeper_core::{ClaimId, Error, Result, background};
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
use tokio::sync::Notify;

/// A FIFO that has no reader yet belongs to a process that is about to open it, unless it is this old.
const NEWBORN: Duration = Duration::from_secs(60);

/// A claim to be woken, and the FIFO it is reached by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) wake: String,
    pub(crate) id: ClaimId,
}

/// The bells of the claims that wait in this process.
#[derive(Debug, Default)]
struct Bells(Mutex<HashMap<ClaimId, Arc<Notify>>>);

impl Bells {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClaimId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, id: ClaimId) {
        if let Some(bell) = self.lock().get(&id) {
            bell.notify_one();
        }
    }
}

/// One waiting claim's bell. To be hung up before the queue is looked at, so that no ring is missed.
#[derive(Debug)]
pub(crate) struct Bell<'a> {
    bells: &'a Bells,
    id: ClaimId,
    rung: Arc<Notify>,
}

impl Bell<'_> {
    /// Resolves when it is rung, also if that was before.
    pub(crate) async fn rung(&self) {
        self.rung.notified().await;
    }
}

impl Drop for Bell<'_> {
    fn drop(&mut self) {
        let mut bells = self.bells.lock();
        if bells.get(&self.id).is_some_and(|bell| Arc::ptr_eq(bell, &self.rung)) {
            bells.remove(&self.id);
        }
    }
}

/// The wake side of one engine: reads its own FIFO, writes into others'.
#[derive(Debug)]
pub(crate) struct Wake {
    /// What the claims of this engine store, so that others find the FIFO.
    pub(crate) address: String,
    bells: Arc<Bells>,
    database: PathBuf,
    reader: tokio::task::AbortHandle,
}

impl Wake {
    /// Makes the FIFO, reads it on the house's thread, and removes what dead processes left.
    ///
    /// # Errors
    /// When the directory does not take a FIFO.
    pub(crate) fn open(database: &Path) -> Result<Self> {
        let failed =
            |error: std::io::Error| Error::permanent("sqlite", "make the FIFO that wakes waiters", error);
        sweep(database);
        let address = ClaimId::random().to_string();
        let path = fifo(database, &address);
        // It gets its name when it has a reader, so that nobody's sweep takes it for a dead process's.
        let newborn = fifo(database, &format!("{address}.new"));
        mknodat(rustix::fs::CWD, &newborn, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .map_err(|error| failed(error.into()))?;
        let opened = share(database, &newborn).and_then(|()| open_reader(&newborn));
        let reader = opened.and_then(|reader| std::fs::rename(&newborn, &path).map(|()| reader));
        let reader = reader.inspect_err(|_| drop(std::fs::remove_file(&newborn))).map_err(failed)?;
        let bells = Arc::<Bells>::default();
        let reader = background::handle().spawn(listen(reader, Arc::clone(&bells))).abort_handle();
        Ok(Self { address, bells, database: database.to_owned(), reader })
    }

    /// Hangs up a claim's bell.
    pub(crate) fn bell(&self, id: ClaimId) -> Bell<'_> {
        let rung = Arc::<Notify>::default();
        self.bells.lock().insert(id, Arc::clone(&rung));
        Bell { bells: &self.bells, id, rung }
    }

    /// Wakes these claims, wherever they wait.
    pub(crate) fn ring(&self, rings: &[Ring]) {
        for (at, ring) in rings.iter().enumerate() {
            if ring.wake == self.address {
                self.bells.ring(ring.id);
            } else if !rings[..at].iter().any(|earlier| earlier.wake == ring.wake) {
                let ids = rings.iter().filter(|other| other.wake == ring.wake).map(|other| other.id);
                self.send(&ring.wake, ids);
            }
        }
    }

    /// Writes claims' ids into another engine's FIFO. A ring that is lost is made up for by the waiter itself, when
    /// the expiry of the claim ahead comes that it last saw.
    fn send(&self, address: &str, ids: impl Iterator<Item = ClaimId>) {
        use std::io::Write as _;
        let path = fifo(&self.database, address);
        let message: Vec<u8> = ids.flat_map(|id| id.0.to_be_bytes()).collect();
        let sent = open_writer(&path).and_then(|mut fifo| fifo.write_all(&message));
        if let Err(error) = sent {
            tracing::debug!(%error, fifo = %path.display(), "could not wake a waiter; it will look by itself");
        }
    }

    /// Stops listening and removes the FIFO.
    pub(crate) fn close(&self) {
        self.reader.abort();
        let _ = std::fs::remove_file(fifo(&self.database, &self.address));
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.close();
    }
}

/// Rings the bells of the claims whose ids arrive.
async fn listen(mut fifo: pipe::Receiver, bells: Arc<Bells>) {
    let mut id = [0; 16];
    // Writers send whole ids at once, at most what a pipe takes in one piece, so they never mix.
    while fifo.read_exact(&mut id).await.is_ok() {
        bells.ring(ClaimId(u128::from_be_bytes(id)));
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
    // Open for writing, too, so that it does not end when the last writer closes it.
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).write(true).custom_flags(nonblocking).open(path)?;
    let _house = background::handle().enter();
    pipe::Receiver::from_file(file)
}

/// Fails with ENXIO, instead of waiting, if nobody reads.
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
    let newborn = fifo.extension().is_some_and(|extension| extension == "new");
    let age = fifo.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
    if newborn && age.is_none_or(|age| age < NEWBORN) {
        return false;
    }
    let no_reader = rustix::io::Errno::NXIO.raw_os_error();
    open_writer(fifo).is_err_and(|error| error.raw_os_error() == Some(no_reader))
}

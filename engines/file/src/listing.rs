//! Reads the names in a directory, in one system call where there is one. Only this engine lists directories to lock.

use rustix::fd::OwnedFd;
use rustix::io::Errno;

/// Room for about 300 claims per system call.
#[cfg(target_os = "linux")]
const BUFFER_BYTES: usize = 32 * 1024;

/// Reads names from the start of one open directory. Not to be shared without a mutex: the descriptor has one
/// position.
pub(crate) struct Listing {
    #[cfg(target_os = "linux")]
    buffer: Box<[std::mem::MaybeUninit<u8>]>,
}

impl Listing {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            buffer: vec![std::mem::MaybeUninit::uninit(); BUFFER_BYTES].into_boxed_slice(),
        }
    }

    /// Calls `each` with every name. Names that are there all the while are never missed; fails with `NOENT` when
    /// the directory was removed.
    #[cfg(target_os = "linux")]
    pub(crate) fn read(&mut self, directory: &OwnedFd, mut each: impl FnMut(&[u8])) -> Result<(), Errno> {
        rustix::fs::seek(directory, rustix::fs::SeekFrom::Start(0))?;
        let mut names = rustix::fs::RawDir::new(directory, &mut self.buffer);
        while let Some(entry) = names.next() {
            each(entry?.file_name().to_bytes());
        }
        Ok(())
    }

    /// The same where there is no such system call.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn read(&mut self, directory: &OwnedFd, mut each: impl FnMut(&[u8])) -> Result<(), Errno> {
        for entry in rustix::fs::Dir::read_from(directory)? {
            each(entry?.file_name().to_bytes());
        }
        Ok(())
    }
}

//! A wall clock that can be set while servers run: a small library in C, put before the system's.

use crate::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable by which the system's loader is told of the library.
pub(crate) const PRELOAD: &str = "LD_PRELOAD";
/// The variable that names the file with the offset.
pub(crate) const FILE: &str = "LOCKKEEPER_CLOCK_FILE";
const SOURCE: &str = include_str!("shim.c");

/// A compiled library and the file by which its clock is set.
#[derive(Debug, Clone)]
pub(crate) struct Shim {
    library: PathBuf,
    file: PathBuf,
}

impl Shim {
    /// Compiles it into a folder.
    pub(crate) fn build(folder: &Path) -> Result<Self> {
        let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
        fs::write(&source, SOURCE)?;
        let compiled =
            Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).output();
        let compiled =
            compiled.map_err(|error| Error::new(format!("the clock needs a C compiler, cc: {error}")))?;
        if !compiled.status.success() {
            return Err(Error::new(format!("cc: {}", String::from_utf8_lossy(&compiled.stderr))));
        }
        let shim = Self { library, file: folder.join("clock") };
        shim.set(0)?;
        // Servers may run as another user.
        for (path, mode) in [(folder, 0o755), (&shim.library, 0o755), (&shim.file, 0o644)] {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
        }
        Ok(shim)
    }

    /// The one that this process runs under, if it was started so.
    pub(crate) fn inherited() -> Option<Self> {
        let (library, file) = (std::env::var_os(PRELOAD)?, std::env::var_os(FILE)?);
        Some(Self { library: library.into(), file: file.into() })
    }

    /// What a process needs in its environment to run under it.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        vec![(PRELOAD.into(), text(&self.library)), (FILE.into(), text(&self.file))]
    }

    /// Puts the wall clock of those who run under it ahead of the true one by this time.
    pub(crate) fn set(&self, seconds: i64) -> Result<()> {
        // Written in place, for they have it in their memory.
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&self.file)?;
        Ok(std::os::unix::fs::FileExt::write_all_at(&file, &seconds.to_ne_bytes(), 0)?)
    }
}

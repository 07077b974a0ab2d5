//! Finds the command's program before anything is claimed, so that a typing error costs no wait.

use crate::exit::{Failure, NOT_EXECUTABLE, NOT_FOUND};
use rustix::fs::{Access, access};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Where programs are searched without a PATH, as the system does.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Checks that the program is there and may be executed.
pub(crate) fn check(program: &OsStr) -> Result<(), Failure> {
    let named = Path::new(program);
    let candidates: Vec<PathBuf> = if named.components().count() > 1 || named.is_absolute() {
        vec![named.into()]
    } else {
        directories().into_iter().map(|directory| directory.join(named)).collect()
    };
    if candidates.iter().any(|path| is_executable(path)) {
        return Ok(());
    }
    let kind = match candidates.iter().any(|path| path.exists()) {
        true => io::ErrorKind::PermissionDenied,
        false => io::ErrorKind::NotFound,
    };
    Err(not_started(program, &kind.into()))
}

/// The directories of PATH.
pub(crate) fn directories() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    std::env::split_paths(&path).collect()
}

pub(crate) fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// Why a program could not be started.
pub(crate) fn not_started(program: &OsStr, error: &io::Error) -> Failure {
    let program = program.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        let message = format!(
            "command not found: {program}\n  Give the command and its arguments as separate words after '--', \
             or a whole line with: -- sh -c '…'"
        );
        return Failure::new(NOT_FOUND, message);
    }
    let message = format!("cannot execute {program}: {error}\n  Is it a program, and may you execute it?");
    Failure::new(NOT_EXECUTABLE, message)
}

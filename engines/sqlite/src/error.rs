//! From SQLite's errors to errors that say what to do.

use lockkeeper_core::Error;
use rusqlite::ErrorCode;

pub(crate) const ENGINE: &str = "sqlite";

/// A result of SQLite.
pub(crate) type Sql<T> = rusqlite::Result<T>;

/// Whether another connection was at work, so that the same call will succeed later. The last code comes when a
/// process stays in the middle of a commit for ten seconds: it is stopped, or the disk is slow.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    use ErrorCode::{DatabaseBusy, DatabaseLocked, FileLockingProtocolFailed};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked | FileLockingProtocolFailed))
}

/// SQLite's error as lockkeeper's.
pub(crate) fn from_sqlite(doing: &'static str, error: rusqlite::Error) -> Error {
    let (advice, is_temporary) = match error.sqlite_error_code() {
        _ if is_busy(&error) => (LOCKED, true),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            ("the file is not a SQLite database, or is damaged: choose another file", false)
        }
        Some(ErrorCode::ReadOnly) => ("the file or its directory is read-only", false),
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            ("no permission for the file", false)
        }
        Some(ErrorCode::CannotOpen) => ("the file, or its -wal or -shm file, cannot be opened", false),
        Some(ErrorCode::DiskFull) => ("the disk is full", true),
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => ("the system failed", true),
        _ => ("the database refused", false),
    };
    let why = format!("{advice} ({error})");
    if is_temporary { Error::temporary(ENGINE, doing, why) } else { Error::permanent(ENGINE, doing, why) }
}

/// Why a busy database is given up.
pub(crate) const LOCKED: &str = "another process has kept the database locked for too long";

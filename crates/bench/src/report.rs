//! The report: one page with tables and plots that needs nothing but itself.

use crate::Result;
use crate::command::Outcome;
use std::path::{Path, PathBuf};

/// Writes the page into the directory; its path.
///
/// # Errors
/// When it cannot be written.
pub fn write(outcome: &Outcome, directory: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(directory)?;
    let path = directory.join("index.html");
    std::fs::write(&path, serde_json::to_string(outcome)?)?;
    Ok(path)
}

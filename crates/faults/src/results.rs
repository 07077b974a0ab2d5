//! The file of results: one line for each cell that was run, so that a matrix can go on where it was interrupted.

use crate::Result;
use crate::record::Record;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

/// All that was recorded; nothing if the file is not there.
pub(crate) fn read(path: &Path) -> Result<Vec<Record>> {
    let Ok(file) = File::open(path) else { return Ok(Vec::new()) };
    // A run that was interrupted while it wrote leaves a broken line.
    let lines = BufReader::new(file).lines().map_while(std::result::Result::ok);
    Ok(lines.filter_map(|line| serde_json::from_str(&line).ok()).collect())
}

/// Adds one.
pub(crate) fn add(path: &Path, record: &Record) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    Ok(writeln!(file, "{}", serde_json::to_string(record)?)?)
}

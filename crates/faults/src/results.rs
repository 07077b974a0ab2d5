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
    // In one write, for two matrices may run at once.
    Ok(file.write_all(format!("{}\n", serde_json::to_string(record)?).as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_add_up_in_short_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("docs/faults.jsonl");
        let mut record = Record { date: "2026-11-19".into(), commit: "abc1234".into(), ..Record::default() };
        add(&path, &record).expect("a line");
        record.surprise = Some("two held".into());
        add(&path, &record).expect("another line");
        let (text, read) = (fs::read_to_string(&path).expect("a file"), read(&path).expect("records"));
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().all(|line| line.len() < 200 && line.contains("2026-11-19")), "{text}");
        assert_eq!((read.len(), &*read[0].commit, &read[1].surprise), (2, "abc1234", &record.surprise));
    }
}

//! The report: one page with tables and plots that needs nothing but itself.

mod axis;
mod bars;
mod lines;
mod page;
mod plots;
mod words;

use crate::Result;
use crate::command::Outcome;
use std::path::{Path, PathBuf};

/// Writes the page, and beside it the figures as JSON, into the directory; the page's path.
///
/// # Errors
/// When it cannot be written.
pub fn write(outcome: &Outcome, directory: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join("bench.json"), serde_json::to_string(outcome)?)?;
    for plot in plots::all(&outcome.results)? {
        std::fs::write(directory.join(format!("{}.svg", plot.file)), &plot.svg)?;
    }
    let path = directory.join("index.html");
    std::fs::write(&path, render(outcome)?)?;
    Ok(path)
}

/// The page's text.
///
/// # Errors
/// When a plot cannot be drawn.
pub fn render(outcome: &Outcome) -> Result<String> {
    Ok(page::render(outcome, &plots::all(&outcome.results)?))
}

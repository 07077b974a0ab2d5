//! The tables in the terminal, one per workload.

use crate::summary::{Figure, Summary, Unit};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

/// All tables, each under its workload's name.
pub fn render(summaries: &[Summary]) -> String {
    let mut text = String::new();
    for group in by_workload(summaries) {
        text += &format!("\n{}\n{}\n", group[0].workload, table(group));
    }
    text
}

/// The summaries of each workload, in order.
pub fn by_workload(summaries: &[Summary]) -> impl Iterator<Item = &[Summary]> {
    summaries.chunk_by(|one, next| one.workload == next.workload)
}

/// The names of the numbers that any of the summaries has, in order.
pub fn columns(summaries: &[Summary]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for figure in summaries.iter().flat_map(|summary| &summary.figures) {
        if !names.contains(&figure.name.as_str()) {
            names.push(&figure.name);
        }
    }
    names
}

fn table(summaries: &[Summary]) -> Table {
    let columns = columns(summaries);
    let has_sizes = summaries.iter().any(|summary| !summary.size.is_empty());
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
    let mut header = vec!["engine".to_string()];
    header.extend(has_sizes.then(|| "size".to_string()));
    header.extend(columns.iter().map(|column| (*column).to_string()));
    table.set_header(header);
    for summary in summaries {
        let mut cells = vec![Cell::new(&summary.subject.name)];
        cells.extend(has_sizes.then(|| Cell::new(&summary.size)));
        cells.extend(columns.iter().map(|column| {
            let figure = summary.figures.iter().find(|figure| figure.name == *column);
            Cell::new(figure.map(with_spread).unwrap_or_default()).set_alignment(CellAlignment::Right)
        }));
        // The reason stands where the first number would.
        if let (Some(note), true) = (&summary.note, summary.figures.is_empty()) {
            let first = 1 + usize::from(has_sizes);
            cells.truncate(first);
            cells.push(Cell::new(shorten(note)));
        }
        table.add_row(cells);
    }
    table
}

/// The first line, and no more than fits.
fn shorten(note: &str) -> String {
    let line = note.lines().next().unwrap_or_default();
    let short: String = line.chars().take(100).collect();
    if short.len() < note.len() { format!("{short}…") } else { short }
}

/// The median, and the spread where it is worth a word.
pub fn with_spread(figure: &Figure) -> String {
    let median = show(figure.unit, figure.median);
    let spread = figure.high - figure.low;
    if spread <= figure.median.abs() * 0.01 || figure.unit == Unit::Count {
        return median;
    }
    format!("{median} ({}–{})", show(figure.unit, figure.low), show(figure.unit, figure.high))
}

/// A number in the unit that fits.
pub fn show(unit: Unit, value: f64) -> String {
    match unit {
        Unit::PerSecond => thousands(value),
        Unit::Seconds => seconds(value),
        Unit::Count => format!("{value:.0}"),
        Unit::Ratio => digits(value),
        Unit::Bytes => bytes(value),
        Unit::Processor => format!("{:.1} %", value * 100.0),
    }
}

/// A round number on an axis: without the zeros that say nothing.
pub fn tick(unit: Unit, value: f64) -> String {
    let text = show(unit, value);
    let (number, unit) = text.split_once(' ').map_or((text.as_str(), ""), |(number, unit)| (number, unit));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    if unit.is_empty() { number.into() } else { format!("{number} {unit}") }
}

/// Three digits that count.
pub(crate) fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

fn thousands(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{} M", digits(value / 1e6)),
        size if size >= 1e4 => format!("{} k", digits(value / 1e3)),
        size if size >= 100.0 => format!("{value:.0}"),
        _ => digits(value),
    }
}

fn seconds(value: f64) -> String {
    match value.abs() {
        size if size >= 1.0 => format!("{} s", digits(value)),
        size if size >= 1e-3 => format!("{} ms", digits(value * 1e3)),
        _ => format!("{} µs", digits(value * 1e6)),
    }
}

fn bytes(value: f64) -> String {
    match value.abs() {
        size if size >= 1024.0 * 1024.0 => format!("{} MiB", digits(value / 1024.0 / 1024.0)),
        size if size >= 1024.0 => format!("{} KiB", digits(value / 1024.0)),
        _ => format!("{value:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Subject;

    #[test]
    fn numbers_are_shown_in_the_unit_that_fits() {
        assert_eq!(show(Unit::Seconds, 0.000_004_25), "4.25 µs");
        assert_eq!(show(Unit::Seconds, 0.0123), "12.3 ms");
        assert_eq!(show(Unit::Seconds, 1.5), "1.50 s");
        assert_eq!(show(Unit::PerSecond, 123_456.0), "123 k");
        assert_eq!(show(Unit::PerSecond, 9_876.0), "9876");
        assert_eq!(show(Unit::Bytes, 2048.0), "2.00 KiB");
        assert_eq!(show(Unit::Processor, 0.015), "1.5 %");
        assert_eq!(tick(Unit::Seconds, 0.01), "10 ms");
        assert_eq!(tick(Unit::PerSecond, 10_000.0), "10 k");
        assert_eq!(tick(Unit::PerSecond, 100.0), "100");
        assert_eq!(tick(Unit::PerSecond, 0.1), "0.1");
    }

    fn summary(workload: &str, name: &str, figures: Vec<Figure>, note: Option<&str>) -> Summary {
        Summary {
            workload: workload.into(),
            size: String::new(),
            size_number: 1,
            subject: Subject { name: name.into(), engine: name.into(), is_floor: false },
            runs: 2,
            figures,
            curve: Vec::new(),
            note: note.map(Into::into),
        }
    }

    fn rate(median: f64, low: f64, high: f64) -> Figure {
        Figure { name: "pairs/s".into(), unit: Unit::PerSecond, median, low, high }
    }

    #[test]
    fn each_workload_has_a_table_with_medians_spreads_and_reasons() {
        let text = render(&[
            summary("uncontended", "file queue", vec![rate(2_000.0, 1_500.0, 2_500.0)], None),
            summary("uncontended", "redis queue", vec![rate(1_000.0, 1_000.0, 1_000.0)], None),
            summary("crash", "memory queue", Vec::new(), Some("its locks live in one process")),
        ]);
        assert!(text.contains("2000 (1500–2500)"), "{text}");
        assert!(text.contains(" 1000 "), "a spread of nothing is not shown: {text}");
        assert!(text.contains("its locks live in one process"), "{text}");
        assert_eq!(text.matches("engine").count(), 2, "{text}");
    }
}

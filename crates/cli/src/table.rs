//! Tables for people: plain columns, safe to print whatever the cells hold.

use comfy_table::{Table, presets};
use std::time::Duration;

/// Lays out rows under headings, one line each.
pub(crate) fn layout(headings: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(headings.to_vec());
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)).collect::<Vec<_>>());
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Text of another client's cannot send control sequences to our terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A duration in two units at most: `350ms`, `12.3s`, `2m05s`, `3h20m`, `4d07h`.
pub(crate) fn brief(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{:.1}s", (duration.as_secs_f64() * 10.0).floor() / 10.0),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// What is not known is a dash.
pub(crate) fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_brief() {
        for (millis, text) in [
            (0, "0ms"),
            (350, "350ms"),
            (12_345, "12.3s"),
            (59_999, "59.9s"),
            (125_000, "2m05s"),
            (12_000_000, "3h20m"),
            (370_800_000, "4d07h"),
        ] {
            assert_eq!(brief(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn columns_line_up_and_control_characters_do_not_get_through() {
        let rows = vec![vec!["漢字".into(), "1".into()], vec!["a\u{1b}[2J".into(), "2".into()]];
        let text = layout(&["NAME", "N"], rows);
        assert_eq!(text, "NAME   N\n漢字   1\na\u{fffd}[2J  2\n");
    }
}

//! Tables for operators: plain columns that fit the terminal, safe to print whatever the cells contain.

use lockkeeper::views::ClaimView;
use std::io::IsTerminal;
use std::time::Duration;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The space between two columns.
const GAP: usize = 2;

/// A column, and what may be done to it when the terminal is too narrow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    heading: &'static str,
    /// It may be cut to this width, if that is not less than the heading's.
    least: Option<usize>,
    /// It may be left out; smaller ranks first, and rank 0 before anything is cut.
    rank: Option<u8>,
}

impl Column {
    /// A column that stays as it is.
    pub(crate) const fn new(heading: &'static str) -> Self {
        Self { heading, least: None, rank: None }
    }

    /// Its heading.
    pub(crate) const fn heading(&self) -> &'static str {
        self.heading
    }

    /// One whose text may be cut.
    pub(crate) const fn cut_to(self, least: usize) -> Self {
        Self { least: Some(least), ..self }
    }

    /// One that may be left out.
    pub(crate) const fn optional(self, rank: u8) -> Self {
        Self { rank: Some(rank), ..self }
    }
}

/// How wide a table on standard output may be: as wide as the terminal, or COLUMNS if that is set. `None`, so as wide
/// as it has to be, in a pipe or if the user asks for it.
pub(crate) fn width(wide: bool) -> Option<usize> {
    if wide {
        return None;
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    if !std::io::stdout().is_terminal() {
        return columns;
    }
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok();
    let shown = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    shown.or(columns).or(Some(80))
}

/// Lays out rows under headings, one line each, no wider than the limit.
pub(crate) fn layout(columns: &[Column], rows: Vec<Vec<String>>, width: Option<usize>) -> String {
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let mut widths: Vec<Option<usize>> = columns.iter().map(|column| Some(column.heading.width())).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(Some(cell.width()));
        }
    }
    if let Some(limit) = width {
        fit(columns, &mut widths, limit);
    }
    let headings: Vec<String> = columns.iter().map(|column| column.heading.to_owned()).collect();
    let lines = std::iter::once(&headings).chain(&rows).map(|row| line(row, &widths, width));
    lines.collect()
}

/// Leaves columns out (`None`) and cuts others until all fit, as far as they can.
fn fit(columns: &[Column], widths: &mut [Option<usize>], limit: usize) {
    let least = |index: usize, width: usize| {
        columns[index].least.map_or(width, |least| width.min(least.max(columns[index].heading.width())))
    };
    loop {
        let shown: Vec<(usize, usize)> =
            widths.iter().enumerate().filter_map(|(index, width)| Some((index, (*width)?))).collect();
        let gaps = GAP * shown.len().saturating_sub(1);
        let whole = gaps + shown.iter().map(|(_, width)| width).sum::<usize>();
        if whole <= limit {
            return;
        }
        let shortest = gaps + shown.iter().map(|(index, width)| least(*index, *width)).sum::<usize>();
        let out = shown.iter().filter_map(|(index, _)| Some((columns[*index].rank?, *index))).min();
        match out {
            Some((rank, index)) if rank == 0 || shortest > limit => widths[index] = None,
            _ => {
                // The widest first, a character at a time.
                let widest = shown.iter().filter(|(index, width)| least(*index, *width) < *width);
                let Some((index, width)) = widest.max_by_key(|(_, width)| *width) else { return };
                widths[*index] = Some(width - 1);
            }
        }
    }
}

fn line(row: &[String], widths: &[Option<usize>], limit: Option<usize>) -> String {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths).filter_map(|(cell, width)| Some((cell, (*width)?))) {
        let cell = cut(cell, width);
        line += &cell;
        line.extend(std::iter::repeat_n(' ', width - cell.width() + GAP));
    }
    let line = line.trim_end();
    limit.map_or_else(|| line.to_owned(), |limit| cut(line, limit)) + "\n"
}

/// The text, cut to a width if it is longer, which shows in an ellipsis.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 1;
    for letter in text.chars() {
        used += letter.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(letter);
    }
    kept + if width > 0 { "…" } else { "" }
}

/// A line of text as lines no wider than the limit, broken at its spaces. The further ones are indented deeper.
pub(crate) fn wrap(text: &str, width: Option<usize>) -> String {
    let Some(limit) = width.filter(|limit| text.width() > *limit) else { return text.to_owned() + "\n" };
    let indent = text.len() - text.trim_start().len();
    let (mut lines, mut line) = (String::new(), " ".repeat(indent));
    for word in text.split_whitespace() {
        let is_first = line.trim_start().is_empty();
        if !is_first && line.width() + 1 + word.width() > limit {
            lines += &(cut(&line, limit) + "\n");
            line = " ".repeat(indent + 4) + word;
        } else {
            line += if is_first { "" } else { " " };
            line += word;
        }
    }
    lines + &cut(&line, limit) + "\n"
}

/// Text of another client cannot send control sequences to the terminal, begin lines or turn the rest of its line around.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if is_harmless(c) { c } else { '\u{fffd}' }).collect()
}

/// Whether a character shows as itself: no control character, line separator, change of direction or invisible space.
pub(crate) fn is_harmless(c: char) -> bool {
    let changes_others = matches!(c,
        '\u{061c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    !c.is_control() && !changes_others
}

/// How many characters of these ids are enough to tell them apart: at least eight.
pub(crate) fn unique_prefix<'a>(ids: impl Iterator<Item = &'a str>) -> usize {
    let mut sorted: Vec<&str> = ids.collect();
    sorted.sort_unstable();
    let common = |pair: &[&str]| pair[0].chars().zip(pair[1].chars()).take_while(|(a, b)| a == b).count();
    sorted.windows(2).map(|pair| common(pair) + 1).max().unwrap_or(0).max(8)
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

/// How long a claim has held or waited. Of one that was granted just now, after a wait, the most that it can have held.
pub(crate) fn standing_for(claim: &ClaimView) -> String {
    match (claim.standing_for(), claim.age) {
        (Some(time), _) => brief(time),
        (None, Some(most)) => format!("<{}", brief(most)),
        (None, None) => "-".into(),
    }
}

/// What is not known is a dash.
pub(crate) fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper::Holder;
    use lockkeeper::views::{Demand, Standing};

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
    fn a_time_that_is_not_known_is_at_most_the_claims_age() {
        let seconds = Duration::from_secs;
        let shown = |standing, age, held_for| {
            standing_for(
                &ClaimView::new("aa", standing, Demand::Exclusive, Holder::here("test"))
                    .age(age)
                    .held_for(held_for),
            )
        };
        assert_eq!(shown(Standing::Holds, Some(seconds(9)), Some(seconds(2))), "2.0s");
        assert_eq!(shown(Standing::Holds, Some(seconds(9)), None), "<9.0s");
        assert_eq!(shown(Standing::Waits, Some(seconds(9)), None), "9.0s");
        assert_eq!(shown(Standing::Holds, None, None), "-");
    }

    #[test]
    fn columns_line_up_and_control_characters_do_not_get_through() {
        let rows = vec![vec!["漢字".into(), "1".into()], vec!["a\u{1b}[2J".into(), "2".into()]];
        let text = layout(&[Column::new("NAME"), Column::new("N")], rows, None);
        assert_eq!(text, "NAME   N\n漢字   1\na\u{fffd}[2J  2\n");
    }

    #[test]
    fn text_of_others_neither_begins_a_line_nor_turns_one_around() {
        let hostile = "a\u{1b}]0;b\u{7}\u{9b}c\nd\u{2028}e\u{202e}f\u{2066}g\u{200b}h";
        let shown = printable(hostile);
        assert!(shown.chars().all(is_harmless), "{shown:?}");
        assert_eq!(shown.replace('\u{fffd}', ""), "a]0;bcdefgh");
        assert_eq!(printable("größe 漢字 👩\u{200d}🚀"), "größe 漢字 👩\u{200d}🚀");
    }

    const COLUMNS: [Column; 4] = [
        Column::new("NAME").cut_to(6),
        Column::new("SINCE").optional(0),
        Column::new("AS").optional(1),
        Column::new("N"),
    ];

    fn at(width: usize) -> String {
        let row = ["orders/42/lines", "2026-03-01", "shared", "17"].map(String::from).to_vec();
        layout(&COLUMNS, vec![row], Some(width)).lines().nth(1).unwrap().to_owned()
    }

    #[test]
    fn a_narrow_table_leaves_out_and_cuts() {
        assert_eq!(at(39), "orders/42/lines  2026-03-01  shared  17");
        assert_eq!(at(38), "orders/42/lines  shared  17");
        assert_eq!(at(26), "orders/42/lin…  shared  17");
        assert_eq!(at(18), "order…  shared  17");
        assert_eq!(at(17), "orders/42/li…  17");
        assert_eq!(at(8), "order… …", "a table that cannot fit is cut");
    }

    #[test]
    fn wide_letters_are_cut_in_whole() {
        assert_eq!(cut("漢字漢字", 8), "漢字漢字");
        assert_eq!(cut("漢字漢字", 6), "漢字…");
        assert_eq!(cut("漢字漢字", 0), "");
    }

    #[test]
    fn a_long_line_is_broken_at_its_spaces() {
        assert_eq!(wrap("  one two three", None), "  one two three\n");
        assert_eq!(wrap("  one two three", Some(15)), "  one two three\n");
        assert_eq!(wrap("  one two three", Some(14)), "  one two\n      three\n");
        assert_eq!(
            wrap("  one two three", Some(9)),
            "  one two\n      th…\n",
            "a word that cannot fit is cut"
        );
    }

    #[test]
    fn ids_are_as_long_as_tells_them_apart() {
        let ids = |ids: &[&str]| unique_prefix(ids.iter().copied());
        assert_eq!(ids(&[]), 8);
        assert_eq!(ids(&["0123456789abcdef", "f123456789abcdef"]), 8);
        assert_eq!(ids(&["0123456789abcdef", "0123456789fbcdef"]), 11);
    }
}

//! The page: words, pictures and tables in one file, for a browser and for paper.

use super::plots::Plot;
use crate::Workload;
use crate::command::Outcome;
use crate::summary::{Figure, Summary, Unit};
use crate::table::{by_workload, columns, show};
use lockkeeper_testkit::Placement;

const STYLE: &str = include_str!("page.css");

/// The page's text; well-formed XML as well as HTML.
pub(crate) fn render(outcome: &Outcome, plots: &[Plot]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>lockkeeper bench</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>lockkeeper bench</h1>\n"
    );
    page += &introduction(outcome);
    for plot in plots {
        page += &picture(plot);
    }
    for group in by_workload(&outcome.results) {
        page += &section(group, "");
    }
    for group in by_workload(&outcome.peers) {
        page += &section(group, "Beside other libraries: ");
    }
    page += "</body>\n</html>\n";
    page
}

fn introduction(outcome: &Outcome) -> String {
    format!(
        "<p>lockkeeper {} on {}.{} Every run was repeated {} times, interleaved over all engines; shown are the \
         medians, and small beside them the spread. Figures of other machines, or of other runs on this one, \
         must not be compared with these: the ratios may. Rows in italics are raw floors: the same requests on \
         the same driver with no lockkeeper code.{}{}</p>\n",
        escape(&outcome.version),
        escape(&outcome.machine.line()),
        outcome.machine.caveat(),
        outcome.scale.repetitions,
        placed(outcome.scale.placement),
        outcome.scale.network()
    )
}

fn placed(placement: Placement) -> &'static str {
    match placement {
        Placement::Free => "",
        Placement::Together => " While one task locked alone, client and server shared one processor.",
        Placement::Apart => " While one task locked alone, it had one processor and the servers the others.",
    }
}

fn picture(plot: &Plot) -> String {
    let name = escape(plot.words.title);
    let svg = plot.svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{name}\" "), 1);
    format!("<figure>\n{svg}\n</figure>\n")
}

fn section(summaries: &[Summary], before: &str) -> String {
    let name = &summaries[0].workload;
    let workload = Workload::all().into_iter().find(|workload| workload.name() == name);
    let about = workload.map(Workload::about).unwrap_or_default();
    let columns = columns(summaries);
    let mut text = format!(
        "<h2>{before}{}</h2>\n<p class=\"about\">{}</p>\n<div class=\"scroll\">\n<table>\n<thead><tr><th>engine</th>",
        escape(name),
        escape(about)
    );
    let has_sizes = summaries.iter().any(|summary| !summary.size.is_empty());
    if has_sizes {
        text += "<th class=\"size\">size</th>";
    }
    for column in &columns {
        text += &format!("<th>{}</th>", escape(column));
    }
    text += "</tr></thead>\n<tbody>\n";
    for summary in summaries {
        text += &row(summary, &columns, has_sizes);
    }
    text + "</tbody>\n</table>\n</div>\n"
}

fn row(summary: &Summary, columns: &[&str], has_sizes: bool) -> String {
    let class = if summary.subject.is_floor { " class=\"floor\"" } else { "" };
    let mut text = format!("<tr{class}><td>{}</td>", escape(&summary.subject.name));
    if has_sizes {
        text += &format!("<td class=\"size\">{}</td>", escape(&summary.size));
    }
    match &summary.note {
        Some(note) if summary.figures.is_empty() => {
            let span = columns.len().max(1);
            text += &format!("<td class=\"note\" colspan=\"{span}\">{}</td>", escape(note));
        }
        _ => {
            for column in columns {
                let figure = summary.figures.iter().find(|figure| figure.name == *column);
                text += &format!("<td>{}</td>", figure.map(cell).unwrap_or_default());
            }
        }
    }
    text + "</tr>\n"
}

fn cell(figure: &Figure) -> String {
    let median = escape(&show(figure.unit, figure.median));
    if figure.high - figure.low <= figure.median.abs() * 0.01 || figure.unit == Unit::Count {
        return median;
    }
    let (low, high) = (show(figure.unit, figure.low), show(figure.unit, figure.high));
    format!("{median}<br/><small>{}–{}</small>", escape(&low), escape(&high))
}

/// Text for HTML. Control characters, which an engine's error might carry, have no place in it.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn nothing_in_a_note_can_become_markup() {
        assert_eq!(escape("<b>\"a\" & b\u{1b}</b>"), "&lt;b&gt;&quot;a&quot; &amp; b &lt;/b&gt;");
    }
}

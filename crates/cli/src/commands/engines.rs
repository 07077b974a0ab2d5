//! `lockkeeper engines`: the engines, their styles and what each can do.

use crate::arguments::EngineOptions;
use crate::exit::{Failure, Outcome, SUCCESS};
use crate::table::{Column, brief, layout, width};
use crate::{location, output};
use clap::Args;
use lockkeeper::views::{Abilities, CrashFrees, EngineInfo};
use serde::Serialize;

/// List the engines, their styles and what each can do
#[derive(Debug, Args)]
pub(crate) struct Engines {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print Markdown tables: of styles, and of engines
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print all columns in full, however wide
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    wide: bool,
}

/// One engine in JSON.
#[derive(Serialize)]
struct Entry {
    schemes: &'static [&'static str],
    feature: Option<&'static str>,
    in_this_build: bool,
    styles: Vec<Abilities>,
}

/// All of it in JSON.
#[derive(Serialize)]
struct Everything {
    selected: Selected,
    engines: Vec<Entry>,
}

/// The engine, or server, that a command with these options uses.
#[derive(Serialize)]
struct Selected {
    url: String,
    /// The option or variable that names it; none for the default.
    source: Option<&'static str>,
}

impl Selected {
    fn by(options: &EngineOptions) -> Result<Self, Failure> {
        let names = match (options.server()?, &options.engine) {
            (Some(_), _) => Some(("--server", "LOCKKEEPER_SERVER")),
            (None, Some(_)) => Some(("--engine", "LOCKKEEPER_URL")),
            (None, None) => None,
        };
        let source = names.map(|(option, variable)| {
            // An option wins over its variable.
            let is_option = |word: String| {
                word == option
                    || word.starts_with(&format!("{option}="))
                    || (option == "--engine" && is_short(&word))
            };
            if std::env::args().skip(1).any(is_option) { option } else { variable }
        });
        Ok(Self { url: location::of(options)?, source })
    }
}

fn is_short(word: &str) -> bool {
    word.starts_with("-e")
}

impl From<EngineInfo> for Entry {
    fn from(info: EngineInfo) -> Self {
        let EngineInfo { schemes, feature, styles, .. } = info;
        Self { schemes, feature, in_this_build: !styles.is_empty(), styles }
    }
}

impl Engines {
    /// Prints them.
    pub(crate) fn run(self, options: &EngineOptions) -> Outcome {
        let entries: Vec<Entry> = lockkeeper::engines().into_iter().map(Entry::from).collect();
        if self.json {
            output::print_json(&Everything { selected: Selected::by(options)?, engines: entries })?
        } else if self.markdown {
            output::print(&markdown(&entries))?
        } else {
            let Selected { url, source } = Selected::by(options)?;
            let table = table(&entries, width(self.wide));
            output::print(&format!("{table}\nSelected: {url} ({})\n", source.unwrap_or("the default")))?
        };
        Ok(SUCCESS)
    }
}

const COLUMNS: [Column; 13] = [
    Column::new("ENGINE"),
    Column::new("STYLE"),
    Column::new("URL").cut_to(24),
    Column::new("FAIR"),
    Column::new("READ").optional(4),
    Column::new("PERMITS").optional(3),
    Column::new("DOWNGRADE").optional(0),
    Column::new("WAKES BY").optional(2),
    Column::new("DETACH").optional(1),
    Column::new("REACH").optional(5),
    Column::new("CRASH FREES").optional(6),
    Column::new("TOKENS SURVIVE").optional(1),
    Column::new("MIN TTL").optional(0),
];

fn table(entries: &[Entry], width: Option<usize>) -> String {
    let mut rows: Vec<Vec<String>> = entries.iter().flat_map(|entry| &entry.styles).map(row).collect();
    for entry in entries.iter().filter(|entry| !entry.in_this_build) {
        let feature = entry.feature.unwrap_or_default();
        rows.push(vec![
            entry.schemes[0].into(),
            "-".into(),
            format!("not in this build: cargo feature '{feature}'"),
        ]);
    }
    layout(&COLUMNS, rows, width)
}

/// The columns of the table of styles in `docs/engines.md`, which is to be narrower than a page: the rest is the same for nearly all.
const NARROW: [usize; 9] = [0, 1, 3, 4, 5, 7, 8, 9, 10];

/// The engines of this build as two Markdown tables: what each style can do, and how each engine is named in a URL.
fn markdown(entries: &[Entry]) -> String {
    let styles = entries.iter().flat_map(|entry| &entry.styles).map(|style| {
        let cells = row(style);
        NARROW.map(|column| cells[column].clone())
    });
    let urls = entries.iter().filter_map(|entry| {
        let first = entry.styles.first()?;
        let styles: Vec<&str> = entry.styles.iter().map(|style| style.style).collect();
        Some([first.engine.into(), format!("`{}`", first.url), reach(first).into(), styles.join(", ")])
    });
    let headings = NARROW.map(|column| COLUMNS[column].heading().to_lowercase());
    markdown_table(headings, styles) + "\n" + &markdown_table(URL_HEADINGS.map(Into::into), urls)
}

/// The headings of the table in the README: a row for each engine.
const URL_HEADINGS: [&str; 4] = ["engine", "url", "shared by", "styles, the first is its own"];

fn markdown_table<const N: usize>(headings: [String; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let line = |cells: [String; N]| format!("| {} |\n", cells.join(" | "));
    let rule = [const { String::new() }; N].map(|_| "---".to_owned());
    [headings, rule].into_iter().chain(rows).map(line).collect()
}

fn reach(style: &Abilities) -> &'static str {
    match style {
        Abilities { across_machines: true, .. } => "machines",
        Abilities { across_processes: true, .. } => "processes",
        _ => "one process",
    }
}

fn row(style: &Abilities) -> Vec<String> {
    let yes_no = |can: bool| String::from(if can { "yes" } else { "no" });
    let crash_frees = match style.crash_frees {
        CrashFrees::AtOnce => "at once",
        CrashFrees::WithinTtl => "when the TTL ends",
        _ => "with the process",
    };
    vec![
        style.engine.into(),
        style.style.into(),
        style.url.into(),
        yes_no(style.fair),
        yes_no(style.shared),
        yes_no(style.permits),
        yes_no(style.downgrade),
        if style.push { "message" } else { "poll" }.into(),
        yes_no(style.detach),
        reach(style).into(),
        crash_frees.into(),
        yes_no(style.token_survives_restart),
        brief(style.min_ttl),
    ]
}

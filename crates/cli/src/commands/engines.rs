//! `lockkeeper engines`: the engines, their styles and what each can do.

use crate::arguments::EngineOptions;
use crate::exit::{Failure, Outcome, SUCCESS};
use crate::table::{Column, brief, layout, width};
use crate::{location, output};
use clap::Args;
use lockkeeper::{Abilities, CrashFrees, EngineInfo};
use serde::Serialize;

/// List the engines, their styles and what each can do
#[derive(Debug, Args)]
pub(crate) struct Engines {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print a Markdown table, such as the one in the README
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
            output::print_json(&entries)?
        } else if self.markdown {
            output::print(&markdown(&entries))?
        } else {
            output::print(&(table(&entries, width(self.wide)) + &selected(options)?))?
        };
        Ok(SUCCESS)
    }
}

const COLUMNS: [Column; 12] = [
    Column::new("ENGINE"),
    Column::new("STYLE"),
    Column::new("URL").cut_to(24),
    Column::new("FAIR"),
    Column::new("READ").optional(4),
    Column::new("PERMITS").optional(3),
    Column::new("DOWNGRADE").optional(0),
    Column::new("WAKES BY").optional(2),
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

/// The engine that a command without --engine uses now.
fn selected(options: &EngineOptions) -> Result<String, Failure> {
    let from = if options.engine.is_some() { "given by --engine or LOCKKEEPER_URL" } else { "the default" };
    Ok(format!("\nSelected: {} ({from})\n", location::of(options)?))
}

/// The engines of this build as a Markdown table.
fn markdown(entries: &[Entry]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let headings = COLUMNS.map(|column| column.heading().to_lowercase());
    let rule = COLUMNS.map(|_| "---".to_owned());
    let rows = entries.iter().flat_map(|entry| &entry.styles).map(|style| {
        let mut cells = row(style);
        cells[2] = format!("`{}`", cells[2]);
        line(&cells)
    });
    [line(&headings), line(&rule)].into_iter().chain(rows).collect()
}

fn row(style: &Abilities) -> Vec<String> {
    let yes_no = |can: bool| String::from(if can { "yes" } else { "no" });
    let reach = match style {
        Abilities { across_machines: true, .. } => "machines",
        Abilities { across_processes: true, .. } => "processes",
        _ => "one process",
    };
    let crash_frees = match style.crash_frees {
        CrashFrees::AtOnce => "at once",
        CrashFrees::WithinTtl => "within the TTL",
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
        reach.into(),
        crash_frees.into(),
        yes_no(style.token_survives_restart),
        brief(style.min_ttl),
    ]
}

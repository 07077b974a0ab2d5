//! `lockkeeper engines`: the engines there are, and what each style can do.

use crate::exit::{Outcome, SUCCESS};
use crate::output;
use crate::table::{brief, layout};
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
    pub(crate) fn run(self) -> Outcome {
        let entries: Vec<Entry> = lockkeeper::engines().into_iter().map(Entry::from).collect();
        if self.json {
            output::print_json(&entries)?
        } else if self.markdown {
            output::print(&markdown(&entries))?
        } else {
            output::print(&table(&entries))?
        };
        Ok(SUCCESS)
    }
}

const HEADINGS: [&str; 12] = [
    "ENGINE",
    "STYLE",
    "URL",
    "FAIR",
    "READ",
    "PERMITS",
    "DOWNGRADE",
    "WAKES BY",
    "REACH",
    "CRASH FREES",
    "TOKENS SURVIVE",
    "MIN TTL",
];

fn table(entries: &[Entry]) -> String {
    let mut rows: Vec<Vec<String>> = entries.iter().flat_map(|entry| &entry.styles).map(row).collect();
    for entry in entries.iter().filter(|entry| !entry.in_this_build) {
        let feature = entry.feature.unwrap_or_default();
        rows.push(vec![
            entry.schemes[0].into(),
            "-".into(),
            format!("not in this build: cargo feature '{feature}'"),
        ]);
    }
    layout(&HEADINGS, rows)
}

/// The engines of this build as a Markdown table.
fn markdown(entries: &[Entry]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let headings = HEADINGS.map(str::to_lowercase);
    let rule = HEADINGS.map(|_| "---".to_owned());
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
        CrashFrees::WithTheProcess => "with the process",
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

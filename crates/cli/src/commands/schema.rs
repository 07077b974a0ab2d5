//! `lockkeeper schema`: the statements that create an engine's tables.

use crate::complete;
use crate::exit::{Failure, Outcome, SUCCESS};
use crate::output;
use clap::Args;
use clap_complete::ArgValueCompleter;
use lockkeeper::views::EngineInfo;

const EXAMPLES: &str = "\
Examples:
  lockkeeper schema postgres | psql shop
  lockkeeper schema mysql --style row | mysql shop";

/// Print the statements that create what an engine needs
///
/// For those whose database user may not create tables: let somebody run them who may. Otherwise the engine
/// does it by itself at first use.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Schema {
    /// The engine: postgres, mysql or sqlite
    #[arg(value_name = "ENGINE", add = ArgValueCompleter::new(complete::schemes))]
    name: String,
    /// The style of locking [default: the engine's first]
    #[arg(long)]
    style: Option<String>,
}

impl Schema {
    /// Prints them.
    pub(crate) fn run(self) -> Outcome {
        let engines = lockkeeper::engines();
        // A whole URL is understood, too.
        let scheme = self.name.split(':').next().unwrap_or_default();
        let engine = engines.iter().find(|engine| engine.schemes.contains(&scheme));
        let Some(engine) = engine else {
            return Err(Failure::usage(format!("unknown engine '{scheme}'; see 'lockkeeper engines'")));
        };
        let Some(first) = engine.styles.first() else {
            let feature = engine.feature.unwrap_or_default();
            return Err(Failure::usage(format!(
                "'{scheme}' is not in this build: it needs the cargo feature '{feature}'"
            )));
        };
        let style = self.style.as_deref().unwrap_or(first.style);
        let statements = engine.schema(style).ok_or_else(|| nothing(engine, &engines, scheme, style))?;
        output::print(statements)?;
        Ok(SUCCESS)
    }
}

/// Why there is nothing to print.
fn nothing(engine: &EngineInfo, engines: &[EngineInfo], scheme: &str, style: &str) -> Failure {
    let styles: Vec<&str> = engine.styles.iter().map(|known| known.style).collect();
    if !styles.contains(&style) {
        return Failure::usage(format!(
            "'{scheme}' has no style '{style}'; its styles are: {}",
            styles.join(", ")
        ));
    }
    let needing =
        |engine: &&EngineInfo| engine.styles.iter().any(|known| engine.schema(known.style).is_some());
    let needing: Vec<&str> = engines.iter().filter(needing).map(|engine| engine.schemes[0]).collect();
    Failure::usage(format!(
        "'{scheme}' needs nothing created beforehand; only these do: {}",
        needing.join(", ")
    ))
}

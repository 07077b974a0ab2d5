//! What a shell completes besides options: lock names, engines, and the command after `--`.

use crate::arguments::{Arguments, EngineOptions};
use crate::lookup;
use crate::table::is_harmless;
use clap::CommandFactory;
use clap_complete::CompleteEnv;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use lockkeeper_core::engine::parse_duration;
use std::ffi::OsStr;
use std::time::Duration;

/// The variable by which a shell asks for completions.
pub(crate) const VARIABLE: &str = "LOCKKEEPER_COMPLETE";

/// A shell that waits for completions waits no longer than this for the engine.
const LIMIT: Duration = Duration::from_secs(1);

/// Answers a shell that asks for completions, and ends the program then; returns at once otherwise.
pub(crate) fn answer() {
    if std::env::var_os(VARIABLE).is_some() {
        CompleteEnv::with_factory(Arguments::command).var(VARIABLE).complete();
    }
}

/// The names of the locks in use that begin like this; none if the engine does not answer soon.
pub(crate) fn names(current: &OsStr) -> Vec<CompletionCandidate> {
    let prefix = current.to_string_lossy();
    let found = crate::commands::block_on(async {
        let looking = async {
            let keeper = options().connect(None).await.ok()?;
            keeper.inspect_at_most(&prefix, 1000).await.ok()
        };
        Ok(tokio::time::timeout(LIMIT, looking).await.ok().flatten())
    });
    let locks = found.ok().flatten().unwrap_or_default();
    // The shell writes it into the line as it is.
    let safe = locks.into_iter().filter(|lock| lock.name.chars().all(is_harmless));
    safe.map(|lock| CompletionCandidate::new(lock.name)).collect()
}

/// The engines' URLs, to be edited.
pub(crate) fn engines(current: &OsStr) -> Vec<CompletionCandidate> {
    let engines = lockkeeper::engines();
    let urls = engines.iter().flat_map(|engine| &engine.styles).map(|style| style.url);
    begins(current, urls.map(str::to_owned))
}

/// The engines that `schema` knows.
pub(crate) fn schemes(current: &OsStr) -> Vec<CompletionCandidate> {
    let engines = lockkeeper::engines();
    let needing = engines
        .iter()
        .filter(|engine| engine.styles.iter().any(|style| engine.schema(style.style).is_some()));
    begins(current, needing.map(|engine| engine.schemes[0].to_owned()))
}

/// A name, or after '--' the command: the completion engine takes what follows it for more names.
pub(crate) fn names_or_command(current: &OsStr) -> Vec<CompletionCandidate> {
    // The first one separates the line from this program's own name.
    let mut words = std::env::args_os().skip(2).skip_while(|word| word != "--").skip(1);
    match (words.next(), words.next()) {
        (None, _) => names(current),
        (Some(_), None) => programs(current),
        (Some(_), Some(_)) => PathCompleter::any().complete(current),
    }
}

/// The programs of PATH, or those of a directory.
fn programs(current: &OsStr) -> Vec<CompletionCandidate> {
    if current.to_string_lossy().contains('/') {
        return PathCompleter::any().complete(current);
    }
    let entries = lookup::directories().into_iter().filter_map(|directory| directory.read_dir().ok());
    let programs = entries.flatten().flatten().filter(|entry| lookup::is_executable(&entry.path()));
    let mut names: Vec<String> =
        programs.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names.dedup();
    begins(current, names.into_iter())
}

fn begins(current: &OsStr, all: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let prefix = current.to_string_lossy();
    all.filter(|text| text.starts_with(&*prefix)).map(CompletionCandidate::new).collect()
}

/// The options given on the line that is being completed, or by the environment.
fn options() -> EngineOptions {
    let words: Vec<String> = std::env::args().collect();
    let given = |names: &[&str], variable: &str| {
        let at = words.iter().position(|word| names.contains(&word.as_str()));
        let joined = names.iter().filter(|name| name.starts_with("--")).find_map(|name| {
            words.iter().find_map(|word| word.strip_prefix(&format!("{name}=")).map(str::to_owned))
        });
        at.and_then(|at| words.get(at + 1).cloned()).or(joined).or_else(|| std::env::var(variable).ok())
    };
    EngineOptions {
        engine: given(&["-e", "--engine"], "LOCKKEEPER_URL"),
        #[cfg(feature = "serve")]
        server: given(&["--server"], "LOCKKEEPER_SERVER"),
        namespace: given(&["--namespace"], "LOCKKEEPER_NAMESPACE"),
        ttl: given(&["--ttl"], "LOCKKEEPER_TTL").and_then(|text| parse_duration(&text).ok()),
    }
}

//! What is measured: an engine and style at a URL, with the raw floor that belongs to it.

use crate::floors::Floor;
use crate::servers::Servers;
use crate::{Result, Usage, runtime};
use lockkeeper::views::Abilities;
use lockkeeper::{Connect, Keeper};
use lockkeeper_core::engine::Address;
use std::time::Duration;

/// Keeps the bench's locks apart from everybody else's.
const NAMESPACE: &str = "lockkeeper-bench";
/// How long a first connection may take.
const FIRST_CONNECTION: Duration = Duration::from_secs(20);

/// One engine and style.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Such as `redis queue`.
    pub(crate) name: String,
    pub(crate) engine: String,
    pub(crate) url: String,
    /// What it can do; `None` if this build lacks the engine, and its floor alone is measured.
    pub(crate) abilities: Option<Abilities>,
    pub(crate) floor: Option<Floor>,
    /// Whether its server was started here.
    pub(crate) is_ours: bool,
}

impl Target {
    fn new(abilities: Abilities, url: String) -> Self {
        Self {
            name: format!("{} {}", abilities.engine, abilities.style),
            engine: abilities.engine.into(),
            url,
            floor: Floor::of(abilities.engine, abilities.style),
            abilities: Some(abilities),
            is_ours: true,
        }
    }

    fn floor_alone(engine: &str, url: String) -> Option<Self> {
        let floor = Floor::of(engine, "queue")?;
        let name = engine.to_owned();
        Some(Self {
            name: name.clone(),
            engine: name,
            url,
            abilities: None,
            floor: Some(floor),
            is_ours: true,
        })
    }
}

/// The engines, or single styles of them, that are asked for: `redis` or `redis:plain`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    engine: String,
    style: Option<String>,
}

impl Wish {
    pub(crate) fn parse(text: &str) -> Self {
        match text.split_once(':') {
            Some((engine, style)) => Self { engine: engine.into(), style: Some(style.into()) },
            None => Self { engine: text.into(), style: None },
        }
    }

    fn takes(&self, abilities: &Abilities) -> bool {
        self.engine == abilities.engine && self.style.as_deref().is_none_or(|style| style == abilities.style)
    }
}

/// All styles of all engines in this build.
fn styles() -> Vec<Abilities> {
    lockkeeper::engines().into_iter().flat_map(|engine| engine.styles).collect()
}

/// The targets that are wished for, on servers started here; those of an engine whose server is not
/// installed are an error if wished for by name, and left out with a word on stderr otherwise.
pub(crate) fn start(wishes: &[Wish], servers: &mut Servers) -> Result<Vec<Target>> {
    let styles = styles();
    let mut targets = Vec::new();
    if wishes.is_empty() {
        for abilities in styles {
            match servers.url(abilities.engine) {
                Ok(url) => targets.push(Target::new(abilities, with_style(&url, &abilities))),
                Err(why) => eprintln!("{} is left out: {why}", abilities.engine),
            }
        }
        return Ok(targets);
    }
    for wish in wishes {
        let wished: Vec<Abilities> = styles.iter().copied().filter(|style| wish.takes(style)).collect();
        if !wished.is_empty() {
            for abilities in wished {
                let url = servers.url(abilities.engine)?;
                targets.push(Target::new(abilities, with_style(&url, &abilities)));
            }
        } else if wish.style.is_none() && Floor::of(&wish.engine, "queue").is_some() {
            eprintln!("this build has no engine '{}'; only its raw floor is measured", wish.engine);
            targets.extend(Target::floor_alone(&wish.engine, servers.url(&wish.engine)?));
        } else {
            let known: Vec<String> =
                styles.iter().map(|style| format!("{}:{}", style.engine, style.style)).collect();
            let style = wish.style.as_deref().map(|style| format!(":{style}")).unwrap_or_default();
            let known = known.join(", ");
            return Err(Usage(format!("unknown engine '{}{style}'; known: {known}", wish.engine)).into());
        }
    }
    Ok(targets)
}

/// The target of a running engine.
pub(crate) fn at(url: &str) -> Result<Target> {
    let abilities = runtime::run(runtime::Threads::Many, FIRST_CONNECTION, async {
        let keeper = connect(url, None).await?;
        let abilities = keeper.abilities();
        keeper.close().await;
        Ok(abilities)
    })?;
    let mut target = Target { is_ours: false, ..Target::new(abilities, url.into()) };
    // Two URLs may name the same engine; the address tells them apart.
    target.name = format!("{} {}", target.name, Address::parse(url)?.redacted());
    Ok(target)
}

/// Engines with only one style do not all take the parameter.
fn with_style(url: &str, abilities: &Abilities) -> String {
    let count = styles().iter().filter(|style| style.engine == abilities.engine).count();
    if count > 1 { format!("{url}?style={}", abilities.style) } else { url.into() }
}

/// A keeper on the engine at this URL.
///
/// # Errors
/// The engine's.
pub(crate) async fn connect(url: &str, ttl: Option<Duration>) -> Result<Keeper> {
    let mut connect = Connect::to(url).namespace(NAMESPACE).holder("bench");
    if let Some(ttl) = ttl {
        connect = connect.ttl(ttl);
    }
    Ok(connect.connect().await?)
}

/// Closes a keeper, but does not wait for ever: an engine that cannot say goodbye spoils no figure.
pub(crate) async fn close(keeper: Keeper) {
    let _ = tokio::time::timeout(Duration::from_secs(5), keeper.close()).await;
}

/// A lock that no run before has used.
pub fn fresh_name(workload: &str) -> String {
    format!("{workload}/{:016x}", rand::random::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_may_name_a_style() {
        let wish = Wish::parse("memory:queue");
        let memory = styles().into_iter().find(|style| style.engine == "memory").unwrap();
        assert!(wish.takes(&memory));
        assert!(Wish::parse("memory").takes(&memory));
        assert!(!Wish::parse("memory:plain").takes(&memory));
        assert!(!Wish::parse("file").takes(&memory));
    }

    #[test]
    fn an_unknown_engine_is_refused_with_the_known_ones() {
        let error = start(&[Wish::parse("abacus")], &mut Servers::default()).unwrap_err().to_string();
        assert!(error.contains("abacus") && error.contains("memory:queue"), "{error}");
    }

    #[test]
    fn the_style_of_an_engine_with_only_one_stays_out_of_the_url() {
        let memory = styles().into_iter().find(|style| style.engine == "memory").unwrap();
        assert_eq!(with_style("memory:bench", &memory), "memory:bench");
    }
}

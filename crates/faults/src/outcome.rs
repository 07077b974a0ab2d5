//! The one table of what each fault does to each engine, and what its words mean.

use crate::fault::Fault;
use crate::{Error, Result};
use lockkeeper_conformance::checker::Rule;
use std::fmt;
use std::time::Duration;

/// What a cell must come to. A run that differs either way fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// No promise is broken, and the locks are granted again within [`SOON`].
    Safe,
    /// No promise is broken; by its nature the engine may take this time until locks are granted again.
    SafeWaits(Duration),
    /// This break is documented, and must happen.
    KnownBreak(Break),
    /// This break is documented, and may happen: whether it does is a race inside the server.
    MayBreak(Break),
}

impl Outcome {
    /// The break that is documented.
    pub(crate) fn documented(self) -> Option<Break> {
        match self {
            Self::KnownBreak(stated) | Self::MayBreak(stated) => Some(stated),
            Self::Safe | Self::SafeWaits(_) => None,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Safe => f.write_str("safe"),
            Self::SafeWaits(time) => write!(f, "safe, may wait {} s", time.as_secs()),
            Self::KnownBreak(stated) => write!(f, "known break: {stated}"),
            Self::MayBreak(stated) => write!(f, "known break, a race: {stated}"),
        }
    }
}

/// How soon locks are granted again after most faults, at the latest: leases have a TTL of two seconds here, and somebody
/// may have taken the lock for more than that.
///
/// Where the table has a number below it, they are granted sooner.
pub const SOON: Duration = Duration::from_secs(10);

/// What a documented break looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Break {
    /// Two held at once.
    Overlap,
    /// A client that checks no token lost updates.
    Unfenced,
    /// Tokens went back, beside whatever else.
    Token,
    /// Locks are not granted again in time, since the server keeps dead claims.
    Stuck,
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overlap => "two holders",
            Self::Unfenced => "lost updates without a check of tokens",
            Self::Token => "tokens go back",
            Self::Stuck => "dead claims are kept",
        })
    }
}

impl Break {
    /// Whether a breach of this rule is part of it.
    pub(crate) fn covers(self, rule: Rule) -> bool {
        match self {
            // A client that was pushed out may release what it no longer has.
            Self::Overlap => matches!(rule, Rule::Exclusion | Rule::Release | Rule::Order),
            Self::Token => matches!(rule, Rule::Exclusion | Rule::Release | Rule::Token),
            Self::Stuck => rule == Rule::Liveness,
            Self::Unfenced => false,
        }
    }

    /// The rule that must be broken, if it is one of the checker's.
    pub(crate) fn rule(self) -> Option<Rule> {
        match self {
            Self::Overlap => Some(Rule::Exclusion),
            Self::Token => Some(Rule::Token),
            Self::Stuck => Some(Rule::Liveness),
            Self::Unfenced => None,
        }
    }
}

/// A row for each subject, a column for each fault. `s`: safe; a number: safe, and may wait as many seconds; `-`: does not
/// apply; `!overlap`, `!unfenced`, `!token`, `!stuck`: a documented break; with `?` instead of `!` it may happen.
const TABLE: &str = include_str!("outcomes.txt");

/// What this cell must come to; `None` if the fault does not apply to the subject.
pub(crate) fn stated(subject: &str, fault: Fault) -> Result<Option<Outcome>> {
    let column = columns().iter().position(|name| *name == fault.to_string());
    let column = column.ok_or_else(|| Error::new(format!("the table of outcomes has no column {fault}")))?;
    let cells = rows().find(|(name, _)| *name == subject).map(|(_, cells)| cells);
    let cells = cells.ok_or_else(|| Error::new(format!("the table of outcomes has no row {subject:?}")))?;
    let cell =
        cells.get(column).ok_or_else(|| Error::new(format!("the row {subject:?} has no cell {fault}")))?;
    parse(cell).ok_or_else(|| Error::new(format!("the row {subject:?} has a bad cell {cell:?}")))
}

/// What is stated for an engine that somebody else has started, whose default style has the row of the engine's name. What must
/// break on servers of our own need not break there; of an engine that the table does not know, everything is expected.
pub(crate) fn stated_elsewhere(engine: &str, style: &str, fault: Fault) -> Outcome {
    let of_style = stated(&format!("{engine}:{style}"), fault);
    match of_style.or_else(|_| stated(engine, fault)).ok().flatten() {
        Some(Outcome::KnownBreak(known)) => Outcome::MayBreak(known),
        Some(outcome) => outcome,
        None => Outcome::Safe,
    }
}

fn lines() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

fn columns() -> Vec<&'static str> {
    lines()
        .next()
        .and_then(|line| line.split_once('|'))
        .map_or(Vec::new(), |(_, names)| names.split_whitespace().collect())
}

fn rows() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    lines()
        .skip(1)
        .filter_map(|line| line.split_once('|'))
        .map(|(name, cells)| (name.trim(), cells.split_whitespace().collect()))
}

fn parse(cell: &str) -> Option<Option<Outcome>> {
    Some(Some(match cell {
        "-" => return Some(None),
        "s" => Outcome::Safe,
        "!overlap" => Outcome::KnownBreak(Break::Overlap),
        "?overlap" => Outcome::MayBreak(Break::Overlap),
        "!unfenced" => Outcome::KnownBreak(Break::Unfenced),
        "!token" => Outcome::KnownBreak(Break::Token),
        "!stuck" => Outcome::KnownBreak(Break::Stuck),
        number => Outcome::SafeWaits(Duration::from_secs(number.parse().ok()?)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::SUBJECTS;

    #[test]
    fn every_subject_and_fault_has_a_stated_outcome() {
        for subject in SUBJECTS {
            for fault in Fault::ALL {
                stated(subject.name, fault).expect("a cell");
            }
        }
        assert_eq!(rows().count(), SUBJECTS.len());
        assert_eq!(columns().len(), Fault::ALL.len());
        assert!(rows().all(|(_, cells)| cells.len() == Fault::ALL.len()));
    }

    #[test]
    fn an_engine_elsewhere_has_the_outcome_of_its_style() {
        let may = Outcome::MayBreak(Break::Overlap);
        assert_eq!(stated_elsewhere("postgres", "session", Fault::HalfOpenClients), may);
        assert_eq!(stated_elsewhere("postgres", "queue", Fault::HalfOpenClients), Outcome::Safe);
        let waits = Outcome::SafeWaits(Duration::from_secs(15));
        assert_eq!(stated_elsewhere("redis", "plain", Fault::ClientFiles), waits);
        assert_eq!(stated_elsewhere("stone-tablets", "queue", Fault::HalfOpenClients), Outcome::Safe);
    }

    #[test]
    fn cells_are_read() {
        assert_eq!(parse("12"), Some(Some(Outcome::SafeWaits(Duration::from_secs(12)))));
        assert_eq!(parse("-"), Some(None));
        assert_eq!(parse("?overlap"), Some(Some(Outcome::MayBreak(Break::Overlap))));
        assert_eq!(parse("perhaps"), None);
    }
}

//! The version of the tables and functions of a style, as the database says and as the program knows it.

use lockkeeper_core::{Error, Result};

/// How what the database has compares with what the program needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    /// It is what the program needs.
    Current,
    /// It is missing, or of an older release: the program creates or migrates it.
    Outdated,
}

impl Schema {
    /// Compares the version found in the database, if there is one, with the one that the program knows.
    ///
    /// # Errors
    /// A permanent error when the database is newer than the program.
    pub fn compare(engine: &'static str, found: Option<i64>, known: i64) -> Result<Self> {
        match found {
            Some(found) if found > known => Err(Error::permanent(
                engine,
                "use the tables",
                format!(
                    "the database has version {found} of them, and this program knows version {known}: \
                     use a newer release of the program"
                ),
            )),
            Some(found) if found == known => Ok(Self::Current),
            _ => Ok(Self::Outdated),
        }
    }
}

/// The error of a user that may not create or migrate the tables.
pub fn may_not_create(engine: &'static str, style: &str, why: &str) -> Error {
    Error::permanent(
        engine,
        "create the tables",
        format!(
            "{why}; let a user that may create them run what 'lockkeeper schema {engine} --style {style}' prints"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_is_migrated_and_newer_is_refused() {
        let compare = |found| Schema::compare("sql", found, 2);
        assert_eq!(compare(None).unwrap(), Schema::Outdated);
        assert_eq!(compare(Some(1)).unwrap(), Schema::Outdated);
        assert_eq!(compare(Some(2)).unwrap(), Schema::Current);
        let newer = compare(Some(3)).unwrap_err();
        assert!(!newer.is_temporary() && newer.to_string().contains("version 3"), "{newer}");
    }
}

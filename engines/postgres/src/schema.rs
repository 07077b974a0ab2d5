//! The tables and functions of each style: created, and migrated from older releases.

use crate::config::Settings;
use crate::connection::{Connection, Purpose};
use crate::error::{ENGINE, failed};
use lockkeeper_core::engine::background;
use lockkeeper_core::{Error, Result};
use lockkeeper_sql_common::{Schema, may_not_create};
use std::sync::Arc;
use tokio_postgres::error::SqlState;

/// The version of what this program needs. Without a version in the database, its tables are those of 0.1.0 or missing.
macro_rules! version {
    () => {
        4
    };
}
const VERSION: i64 = version!();

/// The first version with `plan_cache_mode` and `AS MATERIALIZED`. The engine's page and the changelog say the same.
const OLDEST_MAJOR_VERSION: u32 = 12;

/// Whether the server lacks SQL that every style uses. One that says no number is believed to have it.
pub(crate) fn is_too_old(version: &str) -> bool {
    let number = version.strip_prefix("PostgreSQL ").map(|rest| rest.split(|c: char| !c.is_ascii_digit()));
    let major = number.and_then(|mut parts| parts.next()?.parse::<u32>().ok());
    major.is_some_and(|major| major < OLDEST_MAJOR_VERSION)
}

/// The statements of a style. They create what is missing and replace what is older, so they are its migration as well.
macro_rules! statements {
    ($style:literal) => {
        concat!(
            include_str!("sql/schema_tokens.sql"),
            "\n",
            include_str!(concat!("sql/schema_", $style, ".sql")),
            "\n",
            include_str!("sql/schema_version.sql"),
            "INSERT INTO lockkeeper_schema AS found (style, version) VALUES ('",
            $style,
            "', ",
            version!(),
            ")\nON CONFLICT (style) DO UPDATE SET version = excluded.version WHERE found.version < excluded.version;\n"
        )
    };
}

/// The statements that create or migrate what a style needs; empty for an unknown style.
pub fn schema(style: &str) -> &'static str {
    match style {
        "queue" => statements!("queue"),
        "row" => statements!("row"),
        "session" => statements!("session"),
        "advisory" => statements!("advisory"),
        _ => "",
    }
}

const IS_THERE: &str = "SELECT to_regclass('lockkeeper_schema')";
const DOING: &str = "create the tables";

/// Creates or migrates the style's tables and functions, unless they are of this version: then no right to create is needed.
pub(crate) async fn create(settings: &Arc<Settings>, style: &'static str) -> Result<Connection> {
    let settings = Arc::clone(settings);
    // In the background, where the caller's runtime does not matter.
    let created = background::handle().spawn(async move {
        let purpose = Purpose { bare: true, ..Purpose::default() };
        let connection = Connection::open(&settings, &purpose, settings.limits.connect).await?;
        if found(&connection, style).await? == Schema::Outdated {
            update(&connection, &settings, style).await?;
        }
        Ok(connection)
    });
    created.await.unwrap_or_else(|error| Err(Error::temporary(ENGINE, "connect", error)))
}

async fn found(connection: &Connection, style: &'static str) -> Result<Schema> {
    let mut version = None;
    if connection.text(IS_THERE).await?.is_some() {
        let found = connection
            .text(&format!("SELECT version FROM lockkeeper_schema WHERE style = '{style}'"))
            .await?;
        version = found.and_then(|version| version.parse().ok());
    }
    Schema::compare(ENGINE, version, VERSION)
}

/// One at a time: two that create the same table at once would fail, 'if not exists' or not.
async fn update(connection: &Connection, settings: &Settings, style: &'static str) -> Result<()> {
    let limit = settings.limits.connect;
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL transaction_read_only = off; \
         SET LOCAL statement_timeout = {0}; SET LOCAL lock_timeout = {0}; \
         SELECT pg_advisory_xact_lock(hashtextextended('lockkeeper schema', 0))",
        limit.as_millis()
    );
    let send = async |text: &str| {
        let sent = connection.slow_batch(text, limit).await;
        sent.map_err(|error| match error {
            Some(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                let why =
                    error.as_db_error().map_or_else(|| error.to_string(), |reply| reply.message().into());
                may_not_create(ENGINE, style, &why)
            }
            Some(error) => failed(DOING, error),
            None => Error::temporary(ENGINE, DOING, format!("no reply within {limit:?}")),
        })
    };
    send(&begin).await?;
    // Another program may have done it meanwhile, and may be a newer release.
    if found(connection, style).await? == Schema::Outdated {
        send(schema(style)).await?;
    }
    send("COMMIT").await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_the_sql_of_every_style_is_too_old() {
        for (version, expected) in [
            ("PostgreSQL 9.6.24 on x86_64-pc-linux-gnu", true),
            ("PostgreSQL 11.22 (Debian 11.22-1) on x86_64-pc-linux-gnu", true),
            ("PostgreSQL 12beta1 on x86_64-pc-linux-gnu", false),
            ("PostgreSQL 12.0, compiled by Visual C++", false),
            ("PostgreSQL 15.8 (Debian 15.8-0+deb12u1) on x86_64-pc-linux-gnu", false),
            ("EnterpriseDB 9", false),
            ("PostgreSQL", false),
            ("", false),
        ] {
            assert_eq!(is_too_old(version), expected, "{version}");
        }
    }

    /// A database may have any encoding, and not every one has every letter.
    #[test]
    fn what_is_sent_is_ascii() {
        for style in crate::STYLES {
            assert!(schema(style.style).is_ascii(), "{}", style.style);
        }
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sql");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            assert!(std::fs::read(&path).unwrap().is_ascii(), "{}", path.display());
        }
    }
}

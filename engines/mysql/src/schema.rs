//! Creates what a style needs, or migrates what an older release has created.

use crate::config::Settings;
use crate::connection::{Guarded, Server, Work, open};
use crate::error::{ENGINE, failed, too_late};
use lockkeeper_core::engine::Clock;
use lockkeeper_core::{Error, Result};
use lockkeeper_sql_common::{Schema, may_not_create};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use std::sync::Arc;

/// What this program creates; the last statement of each schema file writes it.
const VERSION: i64 = 3;
const FOUND: &str = "SELECT version FROM lockkeeper_schema WHERE style = ?";

/// The statements of a file that the `mysql` program understands, too: it needs a delimiter to know where a procedure ends.
fn statements(text: &str) -> Vec<String> {
    let (mut found, mut delimiter, mut current) = (Vec::new(), ";", String::new());
    for line in text.lines().filter(|line| !line.starts_with("--")) {
        if let Some(other) = line.strip_prefix("DELIMITER ") {
            delimiter = other;
            continue;
        }
        current.push_str(line);
        current.push('\n');
        if let Some(whole) = current.trim_end().strip_suffix(delimiter) {
            found.push(whole.trim().to_owned());
            current.clear();
        }
    }
    found
}

/// Creates or migrates the tables and procedures; needs no right to create if they are current. Says what the server is.
pub(crate) async fn create(
    settings: Arc<Settings>,
    style: &'static str,
    text: &'static str,
) -> Result<Server> {
    let (mut conn, server) = open(&settings, &settings.driver).await?;
    let found = run(&settings, &mut conn, "look for the tables", found(style)).await?;
    if Schema::compare(ENGINE, found, VERSION)? == Schema::Current {
        return Ok(server);
    }
    let create: Work<Option<i64>> = Box::new(move |conn| Box::pin(create_all(conn, style, text)));
    match run(&settings, &mut conn, "create the tables", create).await {
        Err(Error::Engine { source, temporary: false, .. }) => {
            Err(may_not_create(ENGINE, style, &source.to_string()))
        }
        outcome => {
            Schema::compare(ENGINE, outcome?, VERSION)?;
            Ok(server)
        }
    }
}

async fn run<T>(settings: &Settings, conn: &mut Guarded, doing: &'static str, work: Work<T>) -> Result<T> {
    let limit = settings.limits.connect;
    let done = Clock::Boot.timeout(limit, conn.run(&work)).await.map_err(|_| too_late(doing, limit))?;
    done.map_err(|error| failed(doing, error))
}

/// The version of a style in the database; `None` if there is none, or it is from before there were versions.
fn found(style: &'static str) -> Work<Option<i64>> {
    /// The same for a user without rights on all tables.
    const NOT_ALLOWED: u16 = 1142;
    const NO_TABLE: u16 = 1146;
    Box::new(move |conn| {
        Box::pin(async move {
            match conn.exec_first(FOUND, (style,)).await {
                Err(mysql_async::Error::Server(error)) if [NOT_ALLOWED, NO_TABLE].contains(&error.code) => {
                    Ok(None)
                }
                outcome => outcome,
            }
        })
    })
}

/// Runs the statements unless another keeper has done so meanwhile. Says the version that was found.
async fn create_all(
    conn: &mut Conn,
    style: &'static str,
    text: &'static str,
) -> mysql_async::Result<Option<i64>> {
    /// A statement for the other kind of server.
    const EMPTY: u16 = 1065;
    /// A column that a migration adds is there: MySQL, as opposed to MariaDB, has no 'if not exists' for it.
    const HAS_COLUMN: u16 = 1060;
    // One creator at a time, or a procedure would be missing for those who use it already. The lock goes with the connection.
    conn.query_drop("DO GET_LOCK('lockkeeper schema', 5)").await?;
    let found = found(style)(conn).await?;
    if found.is_some_and(|found| found >= VERSION) {
        return Ok(found);
    }
    for statement in statements(text) {
        match conn.query_drop(statement).await {
            Err(mysql_async::Error::Server(error)) if [EMPTY, HAS_COLUMN].contains(&error.code) => {}
            outcome => outcome?,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_style_says_which_version_it_creates() {
        for style in crate::STYLES.iter().map(|style| style.style) {
            let last = super::statements(crate::schema(style)).pop().expect("statements");
            let says = format!("INSERT INTO lockkeeper_schema VALUES ('{style}', {})", super::VERSION);
            assert!(last.starts_with(&says), "{last}");
        }
    }

    #[test]
    fn procedures_stay_in_one_piece() {
        let found = super::statements(
            "-- a\nCREATE TABLE a (b INT);\nDELIMITER //\nBEGIN\n x;\nEND //\nDELIMITER ;\n",
        );
        assert_eq!(found, ["CREATE TABLE a (b INT)", "BEGIN\n x;\nEND"]);
    }
}

//! Creates what a style needs, unless it is there.

use crate::config::Settings;
use crate::fault::ENGINE;
use crate::wire::Wire;
use lockkeeper_core::{Error, Result, background};
use mysql_async::prelude::Queryable;
use std::sync::Arc;

const IS_THERE: &str = include_str!("sql/tables.sql");

/// The statements of a file that the `mysql` program understands, too: it needs to be told where a procedure ends.
fn statements(text: &'static str) -> Vec<String> {
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

/// Creates the tables and procedures; needs no right to create if all is there. Gives the connection that it used.
pub(crate) async fn create(
    settings: &Settings,
    text: &'static str,
    newest: &'static str,
) -> Result<Arc<Wire>> {
    let wire = Wire::open(settings, background::handle()).await?;
    let there: u64 = wire
        .run(
            "look for the tables",
            Box::new(move |conn| {
                Box::pin(async move { Ok(conn.exec_first(IS_THERE, (newest,)).await?.unwrap_or_default()) })
            }),
        )
        .await?;
    if there > 0 {
        return Ok(wire);
    }
    let created = wire
        .run_within(
            "create the tables",
            settings.limits.connect,
            Box::new(move |conn| {
                Box::pin(async move {
                    // One creator at a time; the lock goes with the connection.
                    conn.query_drop("DO GET_LOCK('lockkeeper schema', 5)").await?;
                    for statement in statements(text) {
                        create_one(conn, &statement).await?;
                    }
                    Ok(())
                })
            }),
        )
        .await;
    created.map(|()| Arc::clone(&wire)).map_err(|error| match error {
        Error::Engine { source, temporary: false, .. } => {
            let hint = format!(
                "{source}; let somebody who may create them run what 'lockkeeper schema mysql' prints"
            );
            Error::permanent(ENGINE, "create the tables", hint)
        }
        other => other,
    })
}

async fn create_one(conn: &mut mysql_async::Conn, statement: &str) -> mysql_async::Result<()> {
    const EXISTS: u16 = 1304;
    /// A statement for the other kind of server.
    const EMPTY: u16 = 1065;
    match conn.query_drop(statement).await {
        Err(mysql_async::Error::Server(told)) if [EXISTS, EMPTY].contains(&told.code) => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn procedures_stay_in_one_piece() {
        let found = super::statements(
            "-- a\nCREATE TABLE a (b INT);\nDELIMITER //\nBEGIN\n x;\nEND //\nDELIMITER ;\n",
        );
        assert_eq!(found, ["CREATE TABLE a (b INT)", "BEGIN\n x;\nEND"]);
    }
}

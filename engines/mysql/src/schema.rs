//! Creates what a style needs, unless it is there.

use crate::config::Settings;
use crate::connection::{Guarded, Server, Work, first_row, open};
use crate::error::{ENGINE, failed, too_late};
use lockkeeper_core::{Error, Result};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use std::sync::Arc;

const IS_THERE: &str =
    "SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_name = ?";

/// The statements of a file that the `mysql` program understands, too: it needs to be told where a procedure ends.
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

/// Creates the tables and procedures; needs no right to create if all is there. Says what the server is.
pub(crate) async fn create(settings: Arc<Settings>, text: &'static str, newest: &'static str) -> Result<Server> {
    let (mut conn, server) = open(&settings, &settings.driver).await?;
    let there: Option<u64> = run(&settings, &mut conn, "look for the tables", first_row(IS_THERE, (newest,))).await?;
    if there.is_some_and(|count| count > 0) {
        return Ok(server);
    }
    let create: Work<()> = Box::new(move |conn| Box::pin(create_all(conn, text)));
    match run(&settings, &mut conn, "create the tables", create).await {
        Err(Error::Engine { source, temporary: false, .. }) => {
            let hint = format!("{source}; let somebody who may create them run what 'lockkeeper schema mysql' prints");
            Err(Error::permanent(ENGINE, "create the tables", hint))
        }
        outcome => outcome.map(|()| server),
    }
}

async fn run<T>(settings: &Settings, conn: &mut Guarded, doing: &'static str, work: Work<T>) -> Result<T> {
    let limit = settings.limits.connect;
    let done = tokio::time::timeout(limit, conn.run(&work)).await.map_err(|_| too_late(doing, limit))?;
    done.map_err(|error| failed(doing, error))
}

async fn create_all(conn: &mut Conn, text: &'static str) -> mysql_async::Result<()> {
    const EXISTS: u16 = 1304;
    /// A statement for the other kind of server.
    const EMPTY: u16 = 1065;
    // One creator at a time; the lock goes with the connection.
    conn.query_drop("DO GET_LOCK('lockkeeper schema', 5)").await?;
    for statement in statements(text) {
        match conn.query_drop(statement).await {
            Err(mysql_async::Error::Server(error)) if [EXISTS, EMPTY].contains(&error.code) => {}
            outcome => outcome?,
        }
    }
    Ok(())
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

//! Several statements in one request.

use mysql_async::Conn;
use mysql_async::prelude::{FromRow, Queryable};

/// What they say, all together, and how many rows they changed. What they have begun is undone if one of them fails.
pub(crate) async fn run<T: FromRow + Send + 'static>(
    conn: &mut Conn,
    statements: String,
) -> mysql_async::Result<(Vec<T>, u64)> {
    match send(conn, statements).await {
        Err(error @ mysql_async::Error::Server(_)) => {
            conn.query_drop("ROLLBACK").await?;
            Err(error)
        }
        outcome => outcome,
    }
}

async fn send<T: FromRow + Send + 'static>(
    conn: &mut Conn,
    statements: String,
) -> mysql_async::Result<(Vec<T>, u64)> {
    let mut result = conn.query_iter(statements).await?;
    let (mut rows, mut changed) = (Vec::new(), 0);
    while !result.is_empty() {
        changed += result.affected_rows();
        rows.extend(result.collect::<T>().await?);
    }
    Ok((rows, changed))
}

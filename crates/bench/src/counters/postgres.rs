//! PostgreSQL: connects, and counts the statements that clients have sent, by pg_stat_statements.

use crate::Result;
use lockkeeper_core::engine::Address;
use tokio_postgres::{Client, Config, NoTls};

/// A session; its connection ends with the runtime.
pub(crate) async fn connect(address: &Address) -> Result<Client> {
    let mut config = Config::new();
    for host in &address.hosts {
        config.host(&host.name).port(host.port.unwrap_or(5432));
    }
    config.user(address.user.as_deref().unwrap_or("postgres"));
    if let Some(password) = &address.password {
        config.password(password);
    }
    if let database @ [_, ..] = address.path.trim_matches('/').as_bytes() {
        config.dbname(std::str::from_utf8(database)?);
    }
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A session that can ask for the count; `None` where the server does not load pg_stat_statements.
pub(crate) async fn counter(address: &Address) -> Result<Option<Client>> {
    let client = connect(address).await?;
    let counts = client.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await.is_ok()
        && requests(&client).await.is_ok();
    Ok(counts.then_some(client))
}

/// Statements of all clients; pg_stat_database would tell them a second late. A bare call of a function, as by which the advisory
/// style frees its locks, is none.
pub(crate) async fn requests(client: &Client) -> Result<u64> {
    let row = client.query_one("SELECT sum(calls)::bigint FROM pg_stat_statements", &[]).await?;
    let calls: Option<i64> = row.try_get(0)?;
    Ok(u64::try_from(calls.unwrap_or_default())?)
}

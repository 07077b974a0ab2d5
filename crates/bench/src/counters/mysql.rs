//! MySQL and MariaDB: connects, and counts the statements that clients have sent, by the status variable Questions.

use crate::Result;
use lockkeeper_core::engine::Address;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use tokio::sync::Mutex;

/// A session over TCP, as the engine has.
pub(crate) async fn connect(address: &Address) -> Result<Conn> {
    let host = address.hosts.first().ok_or("the URL names no host")?;
    let database = address.path.trim_matches('/');
    let options = OptsBuilder::default()
        .ip_or_hostname(host.name.clone())
        .tcp_port(host.port.unwrap_or(3306))
        .user(address.user.clone())
        .pass(address.password.clone())
        .db_name((!database.is_empty()).then(|| database.to_string()))
        .prefer_socket(false);
    Ok(Conn::new(options).await?)
}

/// Statements of all clients.
pub(crate) async fn requests(connection: &Mutex<Conn>) -> Result<u64> {
    let status: Option<(String, u64)> =
        connection.lock().await.query_first("SHOW GLOBAL STATUS LIKE 'Questions'").await?;
    Ok(status.ok_or("the server does not tell its Questions")?.1)
}

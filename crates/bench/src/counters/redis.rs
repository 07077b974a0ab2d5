//! Redis: connects, and counts the requests among the commands of INFO commandstats.

use crate::Result;
use lockkeeper_core::engine::Address;
use redis::aio::MultiplexedConnection;
use redis::{Client, IntoConnectionInfo};

/// A connection without Nagle's delay, to the server that the address names.
pub(crate) async fn connect(address: &Address) -> Result<MultiplexedConnection> {
    let host = address.hosts.first().ok_or("the URL names no host")?.with_port(6379);
    let login = match (&address.user, &address.password) {
        (user, Some(password)) => format!("{}:{password}@", user.as_deref().unwrap_or_default()),
        _ => String::new(),
    };
    let info = format!("redis://{login}{host}/{}", address.path.trim_matches('/')).into_connection_info()?;
    let nodelay = info.tcp_settings().clone().set_nodelay(true);
    let client = Client::open(info.set_tcp_settings(nodelay))?;
    Ok(client.get_multiplexed_async_connection().await?)
}

/// An address for each of the nodes that an address names.
pub(crate) fn nodes(address: &Address) -> impl Iterator<Item = Address> {
    address.hosts.iter().map(|host| {
        let mut node = address.clone();
        node.hosts = vec![host.clone()];
        node
    })
}

/// The requests that clients have sent to all the nodes, these commands among them.
pub(crate) async fn requests(nodes: &[MultiplexedConnection], direct: &[&str]) -> Result<u64> {
    let mut sum = 0;
    for node in nodes {
        let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut node.clone()).await?;
        sum += count(&info, direct);
    }
    Ok(sum)
}

/// Commands that a script runs inside the server are in the statistics, too, and cannot be told from
/// requests; so, when there are scripts, only these commands are counted, which scripts do not run, and those of which the
/// caller knows it.
const NEVER_IN_SCRIPTS: &[&str] = &[
    "eval",
    "evalsha",
    "fcall",
    "subscribe",
    "unsubscribe",
    "ssubscribe",
    "ping",
    "hello",
    "client",
    "script",
];

fn count(info: &str, direct: &[&str]) -> u64 {
    let calls: Vec<(&str, u64)> = info.lines().filter_map(command).collect();
    let has_scripts = calls.iter().any(|(command, _)| matches!(*command, "eval" | "evalsha" | "fcall"));
    calls
        .into_iter()
        .filter(|(command, _)| *command != "info")
        .filter(|(command, _)| !has_scripts || NEVER_IN_SCRIPTS.contains(command) || direct.contains(command))
        .map(|(_, calls)| calls)
        .sum()
}

/// `cmdstat_client|setinfo:calls=2,usec=…`
fn command(line: &str) -> Option<(&str, u64)> {
    let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    let calls = rest.split(',').next()?.parse().ok()?;
    Some((name.split('|').next().unwrap_or(name), calls))
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn without_scripts_every_command_is_a_request() {
        assert_eq!(
            count("# Commandstats\r\ncmdstat_set:calls=3,usec=1\r\ncmdstat_info:calls=9,usec=1\r\n", &[]),
            3
        );
    }

    #[test]
    fn what_a_script_does_is_one_request() {
        let info =
            "cmdstat_evalsha:calls=5,usec=1\ncmdstat_zadd:calls=5,usec=1\ncmdstat_client|setinfo:calls=2,u=1";
        assert_eq!(count(info, &[]), 7);
    }

    #[test]
    fn a_command_that_a_client_sends_beside_its_scripts_is_a_request() {
        let info = "cmdstat_evalsha:calls=5,usec=1\ncmdstat_set:calls=9,usec=1\ncmdstat_get:calls=5,usec=1";
        assert_eq!(count(info, &["set"]), 14);
    }
}

//! Counts that a server tells in plain text: ZooKeeper's `mntr`, etcd's `/metrics`.

use crate::Result;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Packets that all members have received, heartbeats included.
pub(crate) async fn zookeeper_packets(hosts: &[String]) -> Result<u64> {
    let mut sum = 0;
    for host in hosts {
        sum += packets(&ask(host, "mntr").await?)?;
    }
    Ok(sum)
}

fn packets(mntr: &str) -> Result<u64> {
    let line = mntr.lines().find_map(|line| line.strip_prefix("zk_packets_received"));
    let number = line.ok_or("ZooKeeper does not answer mntr: allow it with 4lw.commands.whitelist")?;
    Ok(number.trim().parse::<f64>()? as u64)
}

/// Messages that clients have sent to all members, those within streams (watches, keep-alives) included.
pub(crate) async fn etcd_messages(hosts: &[String]) -> Result<u64> {
    let mut sum = 0;
    for host in hosts {
        let request = format!("GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n");
        sum += messages(&ask(host, &request).await?);
    }
    Ok(sum)
}

fn messages(metrics: &str) -> u64 {
    let received = metrics.lines().filter(|line| line.starts_with("grpc_server_msg_received_total{"));
    received.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
}

async fn ask(host: &str, question: &str) -> Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(host).await?;
        stream.write_all(question.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    tokio::time::timeout(TIMEOUT, exchange).await.map_err(|_| format!("{host} did not tell its counts"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mntr_tells_the_packets() {
        assert_eq!(packets("zk_version\t3.8\nzk_packets_received\t42\nzk_packets_sent\t43\n").unwrap(), 42);
        assert!(packets("mntr is not executed because it is not in the whitelist.").is_err());
    }

    #[test]
    fn the_messages_of_all_services_are_summed() {
        let metrics = "grpc_server_msg_received_total{grpc_method=\"Txn\"} 5\n\
                       grpc_server_msg_received_total{grpc_method=\"Watch\"} 1e+01\n\
                       grpc_server_msg_sent_total{grpc_method=\"Txn\"} 99\n";
        assert_eq!(messages(metrics), 15);
    }
}

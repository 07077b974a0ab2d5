//! The network between the bench and its servers: none, or the test kit's proxy with a delay in front of each server.

use lockkeeper_testkit::Proxy;
use std::net::SocketAddr;
use std::time::Duration;

/// Parses a delay such as `250us` or `1ms`.
///
/// # Errors
/// When it is no duration.
pub fn parse_delay(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(text)
}

/// Puts a proxy in front of every server that the URL names, so that each round trip takes longer by `delay`. Without a
/// delay, or where the URL names no local server, there is no proxy.
pub(crate) fn delayed(url: &str, delay: Duration) -> (String, Vec<Proxy>) {
    let (Some((scheme, rest)), false) = (url.split_once("://"), delay.is_zero()) else {
        return (url.into(), Vec::new());
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
    let mut proxies = Vec::new();
    let hosts: Vec<String> = hosts.split(',').map(|host| in_front_of(host, delay, &mut proxies)).collect();
    let at = if user.is_empty() { "" } else { "@" };
    (format!("{scheme}://{user}{at}{}{path}", hosts.join(",")), proxies)
}

fn in_front_of(host: &str, delay: Duration, proxies: &mut Vec<Proxy>) -> String {
    let Ok(server) = host.parse::<SocketAddr>() else { return host.into() };
    let proxy = Proxy::start(server);
    proxy.delay(delay / 2);
    let address = proxy.addr().to_string();
    proxies.push(proxy);
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    const DELAY: Duration = Duration::from_millis(20);

    #[test]
    fn every_server_of_a_url_gets_a_proxy() {
        let (url, proxies) = delayed("postgres://me@127.0.0.1:5432/database?style=row", DELAY);
        assert_eq!(url, format!("postgres://me@{}/database?style=row", proxies[0].addr()));
        let (url, proxies) = delayed("redlock://127.0.0.1:1,127.0.0.1:2", DELAY);
        assert_eq!(url, format!("redlock://{},{}", proxies[0].addr(), proxies[1].addr()));
    }

    #[test]
    fn without_a_delay_or_a_server_there_is_no_proxy() {
        for (url, delay) in [("redis://127.0.0.1:6379", Duration::ZERO), ("file:/tmp/locks", DELAY)] {
            let (same, proxies) = delayed(url, delay);
            assert_eq!((same.as_str(), proxies.len()), (url, 0));
        }
    }

    #[test]
    fn a_round_trip_takes_the_delay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (_, proxies) = delayed(&format!("redis://{}", listener.local_addr().unwrap()), DELAY);
        let mut client = TcpStream::connect(proxies[0].addr()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let started = Instant::now();
        client.write_all(b"a").unwrap();
        server.read_exact(&mut [0]).unwrap();
        assert!(started.elapsed() >= DELAY / 2);
        server.write_all(b"b").unwrap();
        client.read_exact(&mut [0]).unwrap();
        assert!(started.elapsed() >= DELAY);
    }

    #[test]
    fn delays_are_parsed() {
        assert_eq!(parse_delay("250us").unwrap(), Duration::from_micros(250));
        assert!(parse_delay("250").is_err());
    }
}

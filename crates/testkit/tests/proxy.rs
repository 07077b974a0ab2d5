//! The proxy cuts, delays, resets and heals.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_testkit::Proxy;

const SILENCE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(10);

/// A server which returns every byte, and tells which it got.
fn echo() -> (SocketAddr, Receiver<u8>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, got) = mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let tell = tell.clone();
            thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() {
                    let _ = tell.send(byte[0]);
                    if stream.write_all(&byte).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, got)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let client = TcpStream::connect(proxy.addr()).unwrap();
    client.set_nodelay(true).unwrap();
    client
}

/// Reads one byte, or says why not.
fn read(mut client: &TcpStream, timeout: Duration) -> Result<u8, ErrorKind> {
    client.set_read_timeout(Some(timeout)).unwrap();
    let mut byte = [0];
    client.read_exact(&mut byte).map(|()| byte[0]).map_err(|error| error.kind())
}

fn write(mut client: &TcpStream, byte: u8) {
    client.write_all(&[byte]).unwrap();
}

/// A proxied client whose connection has been used once.
fn warm() -> (Proxy, TcpStream, Receiver<u8>) {
    let (address, got) = echo();
    let proxy = Proxy::start(address);
    let client = connect(&proxy);
    write(&client, 0);
    assert_eq!(read(&client, PATIENCE), Ok(0));
    assert_eq!(got.recv_timeout(PATIENCE), Ok(0));
    (proxy, client, got)
}

#[test]
fn cut_requests_arrive_after_the_heal() {
    let (proxy, client, got) = warm();
    proxy.cut_requests();
    write(&client, 1);
    assert!(got.recv_timeout(SILENCE).is_err());
    proxy.heal();
    assert_eq!(read(&client, PATIENCE), Ok(1));
}

#[test]
fn a_request_whose_reply_is_cut_takes_effect() {
    let (proxy, client, got) = warm();
    proxy.cut_replies();
    write(&client, 1);
    assert_eq!(got.recv_timeout(PATIENCE), Ok(1));
    assert_eq!(read(&client, SILENCE), Err(ErrorKind::WouldBlock));
    proxy.heal();
    assert_eq!(read(&client, PATIENCE), Ok(1));
}

#[test]
fn a_cut_silences_new_connections_as_well() {
    let (proxy, _, _) = warm();
    proxy.cut();
    let client = connect(&proxy);
    write(&client, 1);
    assert_eq!(read(&client, SILENCE), Err(ErrorKind::WouldBlock));
    proxy.heal();
    assert_eq!(read(&client, PATIENCE), Ok(1));
}

#[test]
fn a_delay_counts_each_way() {
    let (proxy, client, _) = warm();
    proxy.delay(Duration::from_millis(50));
    let start = Instant::now();
    write(&client, 1);
    assert_eq!(read(&client, PATIENCE), Ok(1));
    assert!(start.elapsed() >= Duration::from_millis(100));
}

#[test]
fn a_reset_ends_even_a_cut_connection_and_lets_others_in() {
    let (proxy, client, _) = warm();
    proxy.cut();
    write(&client, 1);
    proxy.reset();
    assert_eq!(read(&client, PATIENCE), Err(ErrorKind::ConnectionReset));
    proxy.heal();
    let client = connect(&proxy);
    write(&client, 2);
    assert_eq!(read(&client, PATIENCE), Ok(2));
}

#[test]
fn a_closed_connection_is_closed_on_the_other_side() {
    let (address, _got) = echo();
    let proxy = Proxy::start(address);
    let client = connect(&proxy);
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read(&client, PATIENCE), Err(ErrorKind::UnexpectedEof));
}

#[test]
fn a_dead_target_resets_the_client() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let proxy = Proxy::start(closed);
    assert_eq!(read(&connect(&proxy), PATIENCE), Err(ErrorKind::ConnectionReset));
}

#[test]
fn the_ports_to_the_server_are_those_of_open_connections() {
    let (address, _got) = echo();
    let proxy = Proxy::start(address);
    assert_eq!(proxy.ports_to_server(), []);
    let client = connect(&proxy);
    write(&client, 1);
    assert_eq!(read(&client, PATIENCE), Ok(1));
    let ports = proxy.ports_to_server();
    let clients = client.local_addr().unwrap().port();
    assert!(matches!(ports[..], [(own, peer)] if own != clients && peer == address.port()), "{ports:?}");
}

#[test]
fn a_dropped_proxy_resets_its_connections_and_listens_no_more() {
    let (proxy, client, _) = warm();
    let address = proxy.addr();
    drop(proxy);
    assert_eq!(read(&client, PATIENCE), Err(ErrorKind::ConnectionReset));
    lockkeeper_testkit::wait_until("nobody listens", PATIENCE, || TcpStream::connect(address).is_err());
}

#[test]
fn a_torn_connection_ends_in_the_middle_of_a_request() {
    // A reset may overtake bytes that nobody has read yet, so the whole half does not arrive each time.
    const TRIES: usize = 50;
    assert!((0..TRIES).any(|_| torn() == [1, 2]), "half of the request never arrived");
}

/// What arrives of a request of four bytes.
fn torn() -> Vec<u8> {
    let (proxy, mut client, got) = warm();
    proxy.tear();
    client.write_all(&[1, 2, 3, 4]).unwrap();
    let mut arrived = Vec::new();
    while let Ok(byte) = got.recv_timeout(SILENCE) {
        arrived.push(byte);
    }
    assert!([1, 2].starts_with(&arrived), "the other half does not arrive: {arrived:?}");
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = client.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
    let other = connect(&proxy);
    write(&other, 8);
    assert_eq!(read(&other, PATIENCE), Ok(8));
    arrived
}

#[test]
fn a_half_open_connection_says_nothing_and_stays_open_and_new_ones_work() {
    for half_open in [Proxy::half_open, Proxy::half_open_for_clients] {
        let (proxy, client, _served) = warm();
        half_open(&proxy);
        write(&client, 7);
        assert_eq!(read(&client, SILENCE), Err(ErrorKind::WouldBlock), "neither an answer nor an end");
        proxy.heal();
        assert_eq!(read(&client, SILENCE), Err(ErrorKind::WouldBlock), "no heal brings it back");
        let other = connect(&proxy);
        write(&other, 8);
        assert_eq!(read(&other, PATIENCE), Ok(8));
        proxy.reset();
        assert!(!matches!(read(&client, PATIENCE), Err(ErrorKind::WouldBlock)), "a reset ends it as well");
    }
}

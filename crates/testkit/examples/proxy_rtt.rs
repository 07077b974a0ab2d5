//! How much time the proxy adds to a round trip: `cargo run --release -p lockkeeper-testkit --example proxy_rtt`.

use lockkeeper_testkit::Proxy;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

fn main() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || {
                let mut bytes = [0; 64];
                while let Ok(length) = stream.read(&mut bytes) {
                    if length == 0 || stream.write_all(&bytes[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let direct = median(address);
    println!("direct {direct:?}");
    for micros in [0, 50, 125, 500, 2500] {
        let proxy = Proxy::start(address);
        proxy.delay(Duration::from_micros(micros));
        let proxied = median(proxy.addr());
        println!(
            "delay of {micros} µs each way: gained {:?} besides",
            proxied.saturating_sub(direct + 2 * Duration::from_micros(micros))
        );
    }
}

fn median(address: SocketAddr) -> Duration {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut times: Vec<Duration> = (0..1000)
        .map(|_| {
            let started = Instant::now();
            stream.write_all(&[1; 40]).unwrap();
            stream.read_exact(&mut [0; 40]).unwrap();
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

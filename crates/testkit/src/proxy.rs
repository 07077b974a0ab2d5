//! A TCP proxy which cuts, delays and resets connections, without any privilege.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZero;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use rustix::thread::set_current_timer_slack;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a write into a full connection looks whether the connection was reset.
const WRITE_LOOK: Duration = Duration::from_millis(50);
const CHUNK_BYTES: usize = 16 * 1024;
/// Chunks held per direction before the sender is made to wait, as a full network would.
const CHUNKS_HELD: usize = 64;
/// The most by which one wake-up changes what is known of its lateness.
const LATENESS_STEP: Duration = Duration::from_micros(20);

/// A proxy on 127.0.0.1 in front of one address.
///
/// Bytes that meet a cut are held, not lost: they arrive after [`heal`](Self::heal), as on a real network,
/// where TCP sends again what was not acknowledged. The end of a connection is held as well: one side
/// does not learn that the other has gone. New connections are still accepted, and stay silent.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    network: Arc<Network>,
}

impl Proxy {
    /// Starts a proxy in front of `target`, which need not listen yet.
    ///
    /// # Panics
    /// When it finds no free port.
    #[track_caller]
    pub fn start(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port for the proxy");
        let address = listener.local_addr().expect("the proxy's own address");
        let network = Arc::new(Network::default());
        let accepting = network.clone();
        thread::spawn(move || accept(&listener, target, &accepting));
        Proxy { address, network }
    }

    /// The address clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The ports of its connections to the server: its own, and the server's.
    pub fn ports_to_server(&self) -> Vec<(u16, u16)> {
        let open: Vec<_> = self.network.rules().open.iter().filter_map(Weak::upgrade).collect();
        let ports = |link: &Arc<Link>| {
            let (local, peer) = (link.server.local_addr().ok()?, link.server.peer_addr().ok()?);
            Some((local.port(), peer.port()))
        };
        open.iter().filter_map(ports).collect()
    }

    /// Holds all bytes both ways; connections stay open.
    pub fn cut(&self) {
        self.network.change(|rules| (rules.requests_cut, rules.replies_cut) = (true, true));
    }

    /// Holds the bytes to the server only.
    pub fn cut_requests(&self) {
        self.network.change(|rules| rules.requests_cut = true);
    }

    /// Holds the bytes from the server only: requests take effect, and nobody learns it.
    pub fn cut_replies(&self) {
        self.network.change(|rules| rules.replies_cut = true);
    }

    /// Delays all bytes, each way: a round trip takes `time` twice.
    pub fn delay(&self, time: Duration) {
        self.network.change(|rules| rules.delay = time);
    }

    /// Ends all connections at once with a reset towards both sides; held bytes are lost.
    ///
    /// New connections are accepted as before.
    pub fn reset(&self) {
        self.network.change(Rules::reset_all);
    }

    /// Passes half of what is sent next on each connection there is, either way, and ends it with a reset towards both sides.
    ///
    /// New connections are accepted and work.
    pub fn tear(&self) {
        self.network.change(|rules| rules.torn_before = rules.made);
    }

    /// Makes every connection there is half open: both sides keep their socket, and nothing passes any more, ever.
    ///
    /// New connections are accepted and work.
    pub fn half_open(&self) {
        self.network.change(|rules| rules.half_open_before = rules.made);
    }

    /// Like [`half_open`](Self::half_open), but the server learns that the connection is gone; only the client does not.
    pub fn half_open_for_clients(&self) {
        self.network.change(|rules| {
            rules.half_open_before = rules.made;
            for link in rules.open.iter().filter_map(Weak::upgrade) {
                let _ = link.server.shutdown(Shutdown::Both);
            }
        });
    }

    /// Ends cuts and delays; held bytes go on their way.
    pub fn heal(&self) {
        self.network.change(|rules| {
            (rules.requests_cut, rules.replies_cut, rules.delay) = (false, false, Duration::ZERO);
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.network.change(|rules| {
            rules.closed = true;
            rules.reset_all();
        });
        // Wakes the thread that accepts, so that it sees the end.
        let _ = TcpStream::connect(self.address);
    }
}

#[derive(Debug, Default)]
struct Network {
    rules: Mutex<Rules>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Rules {
    requests_cut: bool,
    replies_cut: bool,
    delay: Duration,
    /// Connections made before a reset belong to an earlier age, and are over.
    age: u64,
    closed: bool,
    open: Vec<Weak<Link>>,
    /// How many connections were made.
    made: u64,
    /// Connections with a number below this one are half open.
    half_open_before: u64,
    /// Connections with a number below this one end in the middle of what is sent next.
    torn_before: u64,
}

/// What happens to bytes that were read.
enum Fate {
    Pass,
    Vanish,
    /// Half of them pass.
    Tear,
    /// Their connection is over.
    Over,
}

impl Rules {
    fn is_cut(&self, direction: Direction) -> bool {
        match direction {
            Direction::Request => self.requests_cut,
            Direction::Reply => self.replies_cut,
        }
    }

    fn reset_all(&mut self) {
        self.age += 1;
        self.open.drain(..).filter_map(|link| link.upgrade()).for_each(|link| link.abort());
    }
}

impl Network {
    fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.rules());
        self.changed.notify_all();
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a chunk read at `read_at` may go on.
    fn let_pass(&self, direction: Direction, link: &Link, read_at: Instant, lateness: &mut Lateness) -> Fate {
        let mut rules = self.rules();
        loop {
            let (now, due) = (Instant::now(), read_at + rules.delay);
            if rules.age != link.age {
                return Fate::Over;
            } else if link.number < rules.half_open_before {
                return Fate::Vanish;
            } else if link.number < rules.torn_before {
                return Fate::Tear;
            } else if rules.is_cut(direction) {
                rules = self.changed.wait(rules).unwrap_or_else(PoisonError::into_inner);
            } else if now >= due {
                return Fate::Pass;
            } else if let Some(sleep) = lateness.sleep_before(due - now) {
                let (woken, end) =
                    self.changed.wait_timeout(rules, sleep).unwrap_or_else(PoisonError::into_inner);
                rules = woken;
                if end.timed_out() {
                    lateness.woke(now + sleep);
                }
            } else {
                drop(rules);
                while Instant::now() < due {
                    std::hint::spin_loop();
                }
                rules = self.rules();
            }
        }
    }
}

/// How late this thread wakes from a timed sleep: tens of microseconds, which would add to every delay.
#[derive(Debug, Default)]
struct Lateness {
    usual: Duration,
}

impl Lateness {
    /// How long to sleep so that the wake-up comes just before the time left has passed; none when the rest is too short.
    fn sleep_before(&self, left: Duration) -> Option<Duration> {
        left.checked_sub(self.usual).filter(|sleep| !sleep.is_zero())
    }

    /// Learns from a wake-up that was to come at `wanted`. One that is much later than usual, as on a busy machine, counts little.
    fn woke(&mut self, wanted: Instant) {
        let late = wanted.elapsed().min(self.usual * 2 + LATENESS_STEP);
        self.usual = (self.usual * 15 + late) / 16;
    }
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Request,
    Reply,
}

/// The two connections of one client.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    age: u64,
    number: u64,
}

impl Link {
    /// Wakes the threads of this link; the last one closes the connections, with a reset.
    fn abort(&self) {
        for stream in [&self.client, &self.server] {
            reset_on_close(stream);
            // Wakes a blocked read, and unlike the other ways sends nothing that looks like a normal end.
            let _ = stream.shutdown(Shutdown::Read);
        }
    }

    fn ends(&self, direction: Direction) -> (&TcpStream, &TcpStream) {
        match direction {
            Direction::Request => (&self.client, &self.server),
            Direction::Reply => (&self.server, &self.client),
        }
    }
}

fn reset_on_close(stream: &TcpStream) {
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}

fn accept(listener: &TcpListener, target: SocketAddr, network: &Arc<Network>) {
    for client in listener.incoming().flatten() {
        let (closed, age) = {
            let rules = network.rules();
            (rules.closed, rules.age)
        };
        if closed {
            return;
        }
        let network = network.clone();
        // Apart, because a target that does not answer must not keep others waiting.
        thread::spawn(move || connect(client, target, &network, age));
    }
}

fn connect(client: TcpStream, target: SocketAddr, network: &Arc<Network>, age: u64) {
    let Ok(server) = TcpStream::connect_timeout(&target, CONNECT_TIMEOUT) else {
        return reset_on_close(&client);
    };
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
        let _ = stream.set_write_timeout(Some(WRITE_LOOK));
    }
    let number = {
        let mut rules = network.rules();
        rules.made += 1;
        rules.made - 1
    };
    let link = Arc::new(Link { client, server, age, number });
    network.change(|rules| {
        rules.open.retain(|link| link.strong_count() > 0);
        rules.open.push(Arc::downgrade(&link));
        // A reset came while we connected.
        if rules.age != age {
            link.abort();
        }
    });
    for direction in [Direction::Request, Direction::Reply] {
        let (sender, receiver) = mpsc::sync_channel(CHUNKS_HELD);
        let reading = link.clone();
        thread::spawn(move || read_chunks(&reading, direction, &sender));
        let (writing, network) = (link.clone(), network.clone());
        thread::spawn(move || write_chunks(&writing, direction, &receiver, &network));
    }
}

/// Bytes and when they were read; no bytes at the end.
type Chunk = (Instant, Vec<u8>);

fn read_chunks(link: &Link, direction: Direction, chunks: &SyncSender<Chunk>) {
    let (mut from, _) = link.ends(direction);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let length = from.read(&mut buffer).unwrap_or(0);
        let sent = chunks.send((Instant::now(), buffer[..length].to_vec()));
        if length == 0 || sent.is_err() {
            return;
        }
    }
}

fn write_chunks(link: &Link, direction: Direction, chunks: &Receiver<Chunk>, network: &Network) {
    let (_, to) = link.ends(direction);
    let mut lateness = Lateness::default();
    // The kernel may else delay every wake-up by 50 µs, to save power.
    let _ = set_current_timer_slack(NonZero::new(1));
    for (read_at, bytes) in chunks {
        match network.let_pass(direction, link, read_at, &mut lateness) {
            Fate::Pass => {}
            Fate::Vanish => continue,
            Fate::Tear => {
                write_all(to, &bytes[..bytes.len() / 2], || network.rules().age == link.age);
                return link.abort();
            }
            Fate::Over => return,
        }
        if bytes.is_empty() || !write_all(to, &bytes, || network.rules().age == link.age) {
            // The other direction may have more to say.
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
    }
}

/// False when the connection broke or is no longer wanted.
fn write_all(mut to: &TcpStream, mut bytes: &[u8], is_wanted: impl Fn() -> bool) -> bool {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                if !is_wanted() {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}

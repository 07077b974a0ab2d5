//! Side by side with `etcdctl lock`, which is Go's concurrency.Mutex, and with the server's lock service.

use crate::common::{address, all_done, keeper, keeper_at, look, server, soon, until_waiting};
use lockkeeper::Keeper;
use lockkeeper::views::Demand;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

/// `etcdctl lock NAME`, which prints its key when it has the lock and holds it until it is interrupted.
struct OtherClient {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

fn etcdctl(arguments: &[&str]) -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", &address(server())]).args(arguments);
    command.kill_on_drop(true);
    command
}

impl OtherClient {
    fn lock(name: &str) -> Self {
        let mut child =
            etcdctl(&["lock", name]).stdout(Stdio::piped()).spawn().expect("etcdctl is installed");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { child, lines }
    }

    /// Waits until it has the lock; returns its key.
    async fn key(&mut self) -> String {
        soon("etcdctl gets the lock", self.lines.next_line()).await.expect("a line").expect("its key")
    }

    /// Lets it end in its own way, which frees the lock at once.
    async fn release(mut self) {
        let pid = self.child.id().expect("it runs").to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
        soon("etcdctl ends", self.child.wait()).await.expect("an end");
    }
}

fn wait_for(keeper: &Keeper, name: &str, demand: Demand) -> tokio::task::JoinHandle<lockkeeper::Guard> {
    let (keeper, name) = (keeper.clone(), name.to_owned());
    tokio::spawn(async move {
        let got = match demand {
            Demand::Shared => keeper.rwlock(name).read().await,
            _ => keeper.mutex(name).lock().await,
        };
        got.expect("a grant")
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_hold_and_we_wait_in_order() {
    for demand in [Demand::Exclusive, Demand::Shared] {
        let name = format!("interop/{demand}/they-hold");
        let keeper = keeper().await;
        let mut first = OtherClient::lock(&name);
        let key = first.key().await;
        assert!(key.starts_with(&format!("{name}/")), "{key}");
        assert!(keeper.mutex(&*name).try_lock().await.expect("a reply").is_none());
        let ours = wait_for(&keeper, &name, demand);
        until_waiting(&keeper, &name, 1).await;
        let mut second = OtherClient::lock(&name);
        until_waiting(&keeper, &name, 2).await;
        let lock = look(&keeper, &name).await.expect("in use");
        let foreign: Vec<bool> = lock.claims.iter().map(|claim| claim.foreign).collect();
        assert_eq!(foreign, [true, false, true]);
        assert!(lock.claims[0].ttl_left.is_some() && key.ends_with(&lock.claims[0].id), "{lock:?}");
        assert!(!ours.is_finished());

        first.release().await;
        let guard = soon("our turn", ours).await.expect("no panic");
        assert_eq!(look(&keeper, &name).await.expect("in use").holders().count(), 1);
        assert!(guard.token().expect("held").0 > lock.claims[0].token.expect("a holder").0);
        guard.release().await.expect("a release");
        second.key().await;
        second.release().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_hold_and_they_wait_in_order() {
    for demand in [Demand::Exclusive, Demand::Shared] {
        let name = format!("interop/{demand}/we-hold");
        let keeper = keeper().await;
        let guard = soon("the lock", wait_for(&keeper, &name, demand)).await.expect("no panic");
        let mut first = OtherClient::lock(&name);
        until_waiting(&keeper, &name, 1).await;
        let ours = wait_for(&keeper, &name, demand);
        until_waiting(&keeper, &name, 2).await;
        let early =
            tokio::time::timeout(std::time::Duration::from_millis(100), first.lines.next_line()).await;
        assert!(early.is_err(), "etcdctl got the lock while we hold it: {early:?}");

        guard.release().await.expect("a release");
        first.key().await;
        assert!(!ours.is_finished());
        first.release().await;
        soon("our turn", ours).await.expect("no panic").release().await.expect("a release");
        assert!(look(&keeper, &name).await.is_none());
    }
}

/// Much code for etcd ends its names with a slash; without it they are ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_ends_with_a_slash_there_is_ours_without_it() {
    let (keeper, name) = (keeper().await, "interop/slash");
    let mut theirs = OtherClient::lock(&format!("{name}/"));
    assert!(theirs.key().await.starts_with("interop/slash//"));
    assert!(keeper.mutex(name).try_lock().await.unwrap().is_none(), "they hold it");
    assert!(keeper.rwlock(name).try_read().await.unwrap().is_none(), "for readers, too");
    let waiting = wait_for(&keeper, name, Demand::Exclusive);
    until_waiting(&keeper, name, 1).await;
    let lock = look(&keeper, name).await.expect("it is in use");
    assert!(lock.claims[0].foreign && !lock.claims[1].foreign, "{lock:?}");
    theirs.release().await;
    let guard = soon("we get the lock", waiting).await.unwrap();
    let mut theirs = OtherClient::lock(&format!("{name}/"));
    until_waiting(&keeper, name, 1).await;
    guard.release().await.unwrap();
    theirs.key().await;
    theirs.release().await;
}

/// Much code for etcd begins its names with a slash; a prefix puts it in front of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_begins_with_a_slash_there_is_ours_behind_a_prefix() {
    let keeper = keeper_at(&format!("{}?prefix=/", server().url()), Duration::from_secs(2)).await;
    let (bare, name) = (crate::common::keeper().await, "interop-prefix/a");
    for theirs in ["/interop-prefix/a", "/interop-prefix/a/"] {
        let mut first = OtherClient::lock(theirs);
        assert!(first.key().await.starts_with(theirs));
        assert!(keeper.mutex(name).try_lock().await.unwrap().is_none(), "they hold it");
        let waiting = wait_for(&keeper, name, Demand::Exclusive);
        until_waiting(&keeper, name, 1).await;
        let lock = look(&keeper, name).await.expect("it is in use, by the name without the prefix");
        assert!(lock.claims[0].foreign && !lock.claims[1].foreign, "{lock:?}");
        assert!(
            bare.mutex(name).try_lock().await.unwrap().is_some(),
            "without the prefix it is another lock"
        );
        first.release().await;
        let guard = soon("we get the lock", waiting).await.unwrap();
        let keys = etcdctl(&["get", "--prefix", "--keys-only", "/interop-prefix/a/"]).output().await.unwrap();
        let keys = String::from_utf8(keys.stdout).unwrap();
        assert!(keys.starts_with("/interop-prefix/a//x-"), "{keys}");
        let mut second = OtherClient::lock(theirs);
        until_waiting(&keeper, name, 1).await;
        guard.release().await.unwrap();
        second.key().await;
        second.release().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_prefix_a_lock_does_what_it_does_without() {
    let url = format!("{}?prefix=/locks/", server().url());
    let (keeper, other) =
        (keeper_at(&url, Duration::from_secs(2)).await, keeper_at(&url, Duration::from_secs(2)).await);
    let guard = keeper.rwlock("a/b").write().await.unwrap();
    guard.downgrade().await.unwrap();
    let second = other.rwlock("a/b").read().await.unwrap();
    assert_eq!(look(&other, "a/b").await.unwrap().holders().count(), 2);
    assert!(!other.ask("a/b", &guard.claim(), Duration::ZERO).await.unwrap(), "it is still there");
    soon("the next renewal asks", guard.release_requested()).await;
    assert!(other.evict("a/b", &guard.claim()).await.unwrap());
    soon("the loss", guard.lost()).await;
    second.release().await.unwrap();
    let permit = keeper.semaphore("p", 2).acquire(1).await.unwrap();
    let handle = permit.detach(Duration::from_secs(30)).await.unwrap();
    let attached = other.attach(&handle).await.unwrap();
    assert_eq!(other.look("p").await.unwrap().unwrap().claims.len(), 1);
    attached.release().await.unwrap();
    assert!(keeper.inspect("").await.unwrap().is_empty());
}

/// A call of the server's own lock service, through its JSON gateway: the reply's body.
async fn lock_service(call: &str, body: String) -> String {
    let address = address(server());
    let mut stream = TcpStream::connect(&*address).await.expect("a connection");
    let headers = format!("Host: {address}\r\nConnection: close\r\nContent-Length: {}", body.len());
    let request = format!("POST /v3/lock/{call} HTTP/1.1\r\n{headers}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut reply = String::new();
    soon("the lock service replies", stream.read_to_string(&mut reply)).await.expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    reply.rsplit_once("\r\n\r\n").expect("a body").1.to_owned()
}

/// `interop/v3lock` in base64, as the gateway has bytes.
const SERVICE_NAME: (&str, &str) = ("interop/v3lock", "aW50ZXJvcC92M2xvY2s=");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_own_lock_service_waits_for_us_and_we_for_it() {
    let (name, encoded) = SERVICE_NAME;
    let keeper = keeper().await;
    let lock = || lock_service("lock", format!(r#"{{"name":"{encoded}"}}"#));
    let unlock = async |reply: &str| {
        let key = reply.split(r#""key":""#).nth(1).and_then(|rest| rest.split('"').next());
        lock_service("unlock", format!(r#"{{"key":"{}"}}"#, key.expect("a key"))).await
    };
    let theirs = lock().await;
    assert!(keeper.mutex(name).try_lock().await.unwrap().is_none(), "it holds");
    let waiting = wait_for(&keeper, name, Demand::Exclusive);
    until_waiting(&keeper, name, 1).await;
    unlock(&theirs).await;
    let guard = soon("our turn", waiting).await.unwrap();
    let theirs = tokio::spawn(lock());
    until_waiting(&keeper, name, 1).await;
    assert!(!theirs.is_finished());
    guard.release().await.unwrap();
    unlock(&theirs.await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_client_can_be_evicted_and_a_semaphore_does_not_mix_with_one() {
    let (name, keeper) = ("interop/mixed", keeper().await);
    let mut other_client = OtherClient::lock(name);
    other_client.key().await;
    let refused = keeper.semaphore(name, 3).acquire(1).await;
    assert!(matches!(refused, Err(lockkeeper::Error::Mismatch { .. })), "{refused:?}");
    let lock = look(&keeper, name).await.expect("in use");
    assert_eq!(lock.claims.len(), 1, "the refused claim left nothing behind");
    assert!(keeper.evict(name, &lock.claims[0].id).await.expect("a reply"));
    assert!(keeper.mutex(name).try_lock().await.expect("a reply").is_some());
}

/// Reads, waits a moment and writes back: exact only if nobody else does so at the same time.
const ADD_ONE: &str = "n=$(cat \"$0\"); sleep 0.002; echo $((n+1)) > \"$0\"";

async fn add_one(file: &Path) {
    let count: u64 = std::fs::read_to_string(file).expect("the counter").trim().parse().expect("a number");
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    std::fs::write(file, format!("{}\n", count + 1)).expect("the counter");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unprotected_counter_stays_exact_under_contention() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("counter");
    std::fs::write(&file, "0\n").expect("the counter");
    let name = "interop/counter";
    let (clients, rounds) = (4, 15);
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let (keeper, ours, theirs) = (keeper().await, file.clone(), file.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..rounds {
                let guard = keeper.mutex(name).lock().await.expect("a grant");
                add_one(&ours).await;
                guard.release().await.expect("a release");
            }
        }));
        tasks.push(tokio::spawn(async move {
            for _ in 0..rounds {
                let path = theirs.to_str().expect("a path").to_owned();
                let mut command = etcdctl(&["lock", name, "--", "sh", "-c", ADD_ONE, &path]);
                assert!(command.status().await.expect("etcdctl runs").success());
            }
        }));
    }
    all_done(tasks).await;
    let count = std::fs::read_to_string(&file).expect("the counter");
    assert_eq!(count.trim(), (2 * clients * rounds).to_string());
}

//! Sessions that break, expire, move to another server or are watched by many, on real servers.

use crate::common::{LIMIT, connect, keeper_with, server, unique};
use lockkeeper_core::engine::Address;
use lockkeeper_core::{Guard, Keeper, LockView, State};
use lockkeeper_testkit::{Proxy, ZooKeeper, wait_until};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::time::timeout;

fn proxy_to(zookeeper: &ZooKeeper) -> Proxy {
    Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, zookeeper.servers()[0].port())))
}

async fn through(proxy: &Proxy, query: &str, ttl: Duration) -> Keeper {
    connect(&format!("zookeeper://{}{query}", proxy.addr()), ttl).await.expect("a keeper")
}

fn claims(locks: &[LockView]) -> usize {
    locks.first().map_or(0, |lock| lock.claims.len())
}

/// Polls until the lock has this number of claims.
async fn until_claims(keeper: &Keeper, name: &str, count: usize) {
    let reached = async {
        while claims(&keeper.inspect(name).await.unwrap()) != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, reached).await.unwrap_or_else(|_| panic!("{name} has not {count} claims"));
}

#[tokio::test]
async fn the_keepers_ttl_is_the_negotiated_session_timeout() {
    let long = connect(&server().url(), Duration::from_secs(20)).await.unwrap();
    assert_eq!(long.ttl(), Duration::from_secs(20));
    // A third of it is kept in reserve.
    let guard = long.mutex(unique("reserve")).lock().await.unwrap();
    assert!(guard.valid_for() <= Duration::from_secs(20) * 2 / 3, "{:?}", guard.valid_for());
    guard.release().await.unwrap();
    // The server allows sessions of 1 s to 60 s.
    let longest = connect(&server().url(), Duration::from_secs(3600)).await.unwrap();
    assert_eq!(longest.ttl(), Duration::from_secs(60));
    let shortest = connect(&server().url(), Duration::from_millis(200)).await.unwrap();
    assert_eq!(shortest.ttl(), Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_connection_loses_neither_holds_nor_places() {
    for query in ["", "?style=plain"] {
        let proxy = proxy_to(server());
        let keeper = through(&proxy, query, Duration::from_secs(10)).await;
        let other = keeper_with(query).await;
        let (held, awaited) = (unique("held"), unique("awaited"));
        let guard = keeper.mutex(&held).lock().await.unwrap();
        let blocker = other.mutex(&awaited).lock().await.unwrap();
        let waiting = tokio::spawn({
            let mutex = keeper.mutex(&awaited);
            async move { mutex.lock().await }
        });
        if query.is_empty() {
            until_claims(&other, &awaited, 2).await;
        }
        for _ in 0..3 {
            proxy.reset();
        }
        assert!(other.mutex(&held).try_lock().await.unwrap().is_none());
        blocker.release().await.unwrap();
        let next = timeout(LIMIT, waiting).await.unwrap().unwrap().unwrap();
        assert_ne!(guard.state(), State::Lost);
        next.release().await.unwrap();
        guard.release().await.unwrap();
    }
}

/// Polls until the guard is in this state.
async fn until_state(guard: &Guard, state: State, limit: Duration) {
    let reached = async {
        while guard.state() != state {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(limit, reached).await.unwrap_or_else(|_| panic!("{:?}, not {state:?}", guard.state()));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_connection_a_hold_is_uncertain_at_once_and_certain_again_after_it() {
    for query in ["", "?style=plain"] {
        let proxy = proxy_to(server());
        // The first renewal comes 20 s after the grant: it cannot be the cause.
        let keeper = through(&proxy, query, Duration::from_secs(60)).await;
        let guard = keeper.mutex(unique("uncertain")).lock().await.unwrap();
        for _ in 0..2 {
            until_state(&guard, State::Held, Duration::from_secs(8)).await;
            proxy.cut();
            proxy.reset();
            until_state(&guard, State::Uncertain, Duration::from_secs(8)).await;
            proxy.heal();
        }
        until_state(&guard, State::Held, Duration::from_secs(8)).await;
        guard.release().await.unwrap();
    }
}

/// The time of the grant is written without a reply at the first renewal, which is lost here.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_shown_since_its_grant_although_the_write_was_lost() {
    let (proxy, name) = (proxy_to(server()), unique("since"));
    let (keeper, other) = (through(&proxy, "", Duration::from_secs(6)).await, keeper_with("").await);
    let guard = keeper.mutex(&name).lock().await.unwrap();
    proxy.cut();
    until_state(&guard, State::Uncertain, LIMIT).await;
    proxy.reset();
    proxy.heal();
    let shown = async {
        loop {
            let locks = other.inspect(&name).await.unwrap();
            match locks[0].holders().next().unwrap().held_for {
                Some(held_for) => return held_for,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(LIMIT, shown).await.expect("the time since the grant is shown");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_makes_a_hold_uncertain_and_then_lost() {
    let own = ZooKeeper::start();
    let keeper = connect(&own.url(), Duration::from_secs(6)).await.unwrap();
    let guard = keeper.mutex(unique("hangs")).lock().await.unwrap();
    own.servers()[0].pause();
    until_state(&guard, State::Uncertain, LIMIT).await;
    until_state(&guard, State::Lost, LIMIT).await;
    own.servers()[0].resume();
    assert_eq!(guard.state(), State::Lost);
}

/// The silence is judged by the connection: nobody waits for a reply when it begins, and the client gets no error.
#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_connection_is_replaced_before_its_holds_are_lost() {
    const TTL: Duration = Duration::from_secs(9);
    let holds = async |query: &str| {
        let proxy = proxy_to(server());
        let keeper = through(&proxy, query, TTL).await;
        let guard = keeper.mutex(unique("half-open")).lock().await.unwrap();
        for half_open in [Proxy::half_open, Proxy::half_open_for_clients] {
            half_open(&proxy);
            // Trust ends after two thirds of it.
            tokio::time::sleep(TTL).await;
            assert_eq!(guard.state(), State::Held, "{query}");
        }
        guard.release().await.unwrap();
    };
    tokio::join!(holds(""), holds("?style=plain"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_behind_a_half_open_connection_is_granted_over_the_next_one() {
    for query in ["", "?style=plain"] {
        let proxy = proxy_to(server());
        let keeper = through(&proxy, query, Duration::from_secs(4)).await;
        let other = keeper_with(query).await;
        let name = unique("half-open-waiter");
        let blocker = other.mutex(&name).lock().await.unwrap();
        let waiting = tokio::spawn({
            let mutex = keeper.mutex(&name);
            async move { mutex.lock().await }
        });
        // Until it has its watch.
        tokio::time::sleep(Duration::from_millis(500)).await;
        proxy.half_open();
        blocker.release().await.unwrap();
        let guard = timeout(Duration::from_secs(8), waiting).await.expect("a grant").unwrap().unwrap();
        assert!(other.mutex(&name).try_lock().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_whose_reply_is_lost_is_found_again_or_removed() {
    for query in ["", "?style=plain"] {
        let proxy = proxy_to(server());
        let keeper = through(&proxy, query, Duration::from_secs(6)).await;
        let other = keeper_with(query).await;
        // Found again: the join is repeated with the same id and must not stand behind itself. (The lock has
        // been in use before, so that its directory exists and the first request is the create.)
        let name = unique("again");
        keeper.mutex(&name).lock().await.unwrap().release().await.unwrap();
        proxy.cut_replies();
        let joining = tokio::spawn({
            let mutex = keeper.mutex(&name);
            async move { mutex.lock().await }
        });
        until_claims(&other, &name, 1).await;
        proxy.reset();
        proxy.heal();
        let guard = timeout(LIMIT, joining).await.unwrap().unwrap().unwrap();
        assert_eq!(claims(&other.inspect(&name).await.unwrap()), 1);
        guard.release().await.unwrap();
        until_claims(&other, &name, 0).await;
        // Removed: nobody waits for it any more.
        let name = unique("orphan");
        keeper.mutex(&name).lock().await.unwrap().release().await.unwrap();
        proxy.cut_replies();
        let joining = tokio::spawn({
            let mutex = keeper.mutex(&name);
            async move { mutex.lock().await }
        });
        until_claims(&other, &name, 1).await;
        joining.abort();
        proxy.reset();
        proxy.heal();
        until_claims(&other, &name, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_was_held_up_leaves_nothing_behind() {
    // Two ways to one server. Only the first is open at the beginning, so the session starts there.
    let (first, second) = (proxy_to(server()), proxy_to(server()));
    second.cut();
    let url = format!("zookeeper://{},{}", first.addr(), second.addr());
    let keeper = connect(&url, Duration::from_secs(4)).await.unwrap();
    let (other, name) = (keeper_with("").await, unique("late"));
    keeper.mutex(&name).lock().await.unwrap().release().await.unwrap();
    second.heal();
    // The create is held up, while the keeper gives that way up and goes the other, where it leaves.
    first.cut_requests();
    let joining = tokio::spawn({
        let mutex = keeper.mutex(&name);
        async move { mutex.lock().await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    joining.abort();
    timeout(LIMIT, keeper.mutex(unique("elsewhere")).lock()).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(claims(&other.inspect(&name).await.unwrap()), 0);
    first.heal();
    // The server has closed the old connection when the session came on another, so it should not even appear;
    // if it did, the engine would sweep it away.
    until_claims(&other, &name, 0).await;
    timeout(LIMIT, other.mutex(&name).lock()).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_session_loses_its_claims_and_later_ones_get_a_new_session() {
    for query in ["", "?style=plain"] {
        let proxy = proxy_to(server());
        let keeper = through(&proxy, query, Duration::from_secs(1)).await;
        let other = keeper_with(query).await;
        let (name, awaited) = (unique("expires"), unique("expires-waiting"));
        let guard = keeper.mutex(&name).lock().await.unwrap();
        let token = guard.token().unwrap();
        let blocker = other.mutex(&awaited).lock().await.unwrap();
        let waiting = tokio::spawn({
            let mutex = keeper.mutex(&awaited);
            async move { mutex.lock().await }
        });
        if query.is_empty() {
            until_claims(&other, &awaited, 2).await;
        }
        proxy.cut();
        let next = tokio::spawn({
            let mutex = other.mutex(&name);
            async move { mutex.lock().await }
        });
        timeout(LIMIT, guard.lost()).await.unwrap();
        assert!(!next.is_finished(), "lost comes before the next grant");
        let next = timeout(LIMIT, next).await.unwrap().unwrap().unwrap();
        assert!(next.token().unwrap() > token);
        assert!(!waiting.is_finished(), "a wait outlives its session");
        proxy.heal();
        assert_eq!(guard.state(), State::Lost);
        next.release().await.unwrap();
        // The server says that the session is over; the next claim is made in another one.
        let again = timeout(LIMIT, async {
            loop {
                match keeper.mutex(&name).lock_within(Duration::from_millis(700)).await {
                    Ok(Some(guard)) => break guard,
                    Ok(None) => {}
                    Err(error) => assert!(error.is_temporary() || error.is_lost(), "{error}"),
                }
            }
        });
        let again = again.await.unwrap();
        assert!(again.token().unwrap() > token);
        drop(guard);
        assert!(other.mutex(&name).try_lock().await.unwrap().is_none(), "a lost guard frees nothing");
        again.release().await.unwrap();
        blocker.release().await.unwrap();
        timeout(LIMIT, waiting).await.unwrap().unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_closed_keeper_ends_its_session_at_once() {
    let (keeper, other) = (keeper_with("").await, keeper_with("").await);
    let name = unique("closed");
    let guard = keeper.mutex(&name).lock().await.unwrap();
    keeper.close().await;
    assert_eq!(guard.state(), State::Lost);
    drop(other.mutex(&name).try_lock().await.unwrap().expect("the lock is free"));
}

#[tokio::test]
async fn nobody_there_is_an_error_that_names_the_server() {
    let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let address = Address::parse(&format!("zookeeper://127.0.0.1:{port}")).unwrap();
    let refused = lockkeeper_zookeeper::connect(address, Duration::from_secs(4)).await.err().unwrap();
    assert!(refused.is_temporary());
    assert!(refused.to_string().contains("127.0.0.1"), "{refused}");
}

#[tokio::test]
async fn an_acl_keeps_strangers_out_and_lets_readers_look() {
    let url = server().url();
    let name = unique("private");
    let owner_url = url.replace("zookeeper://", "zookeeper://ann:secret@") + "?acl=creator-read";
    let owner = connect(&owner_url, Duration::from_secs(4)).await.unwrap();
    let guard = owner.mutex(&name).lock().await.unwrap();
    let stranger = keeper_with("").await;
    let refused = stranger.mutex(&name).try_lock().await.unwrap_err();
    assert!(!refused.is_temporary() && refused.to_string().contains("not authorised"), "{refused}");
    let id = stranger.inspect(&name).await.unwrap()[0].claims[0].id.clone();
    assert!(stranger.evict(&name, &id).await.is_err());
    let friend = keeper_with("?auth=digest:ann:secret&acl=creator").await;
    assert!(friend.mutex(&name).try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    friend.mutex(&name).lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_costs_no_lock() {
    let ensemble = ZooKeeper::ensemble(3);
    for query in ["", "?style=plain"] {
        let ttl = Duration::from_secs(20);
        let keeper = connect(&format!("{}{query}", ensemble.url()), ttl).await.unwrap();
        let other = connect(&format!("{}{query}", ensemble.url()), ttl).await.unwrap();
        let name = unique("survives");
        let guard = keeper.mutex(&name).lock().await.unwrap();
        let waiting = tokio::spawn({
            let mutex = other.mutex(&name);
            async move { mutex.lock().await }
        });
        let dead = ensemble.kill_leader();
        // Needs the majority, so it waits for the election.
        let fresh = timeout(LIMIT, keeper.mutex(unique("fresh")).lock()).await.unwrap().unwrap();
        assert_ne!(guard.state(), State::Lost);
        assert!(!waiting.is_finished());
        let token = guard.token().unwrap();
        guard.release().await.unwrap();
        let next = timeout(LIMIT, waiting).await.unwrap().unwrap().unwrap();
        assert!(next.token().unwrap() > token);
        fresh.release().await.unwrap();
        next.release().await.unwrap();
        ensemble.servers()[dead].restart();
        wait_until("the ensemble is whole", LIMIT, || ensemble.leader().is_some());
    }
}

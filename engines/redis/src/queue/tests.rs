//! What only the seam shows: claims that come twice, too late or not at all.

use super::*;
use crate::config::Config;
use lockkeeper_core::Holder;
use lockkeeper_core::address::Address;
use lockkeeper_testkit::Redis;

const TTL: Duration = Duration::from_secs(10);

async fn queue(redis: &Redis) -> Shared<RedisQueue> {
    let config = Config::read(Address::parse(&redis.url()).unwrap()).unwrap();
    Shared(crate::open_queue(&config, Duration::from_secs(2), "lockkeeper:test".into()).await.unwrap())
}

fn claim(demand: Demand) -> Claim {
    Claim {
        id: ClaimId::random(),
        name: LockName::new("lock").unwrap(),
        demand,
        holder: Arc::new(Holder::here("test")),
        keeper: ClaimId::random(),
        ttl: TTL,
    }
}

async fn keep(queue: &Shared<RedisQueue>, claim: &Claim, ttl: Duration) -> Vec<ClaimId> {
    queue.keep(&[Renewal { claim: Arc::new(claim.clone()), ttl }]).await.unwrap().dead
}

#[tokio::test]
async fn a_second_join_finds_its_place_and_a_second_leave_nothing() {
    let redis = Redis::start();
    let queue = queue(&redis).await;
    let (first, second) = (claim(Demand::Exclusive), claim(Demand::Exclusive));
    let joined = queue.join(&first).await.unwrap();
    assert_eq!(joined.ahead, Ahead(0));
    let waits = queue.join(&second).await.unwrap();
    assert!(waits.place > joined.place && waits.ahead > Ahead(0));
    assert_eq!(queue.join(&first).await.unwrap(), joined);
    assert_eq!(queue.join(&second).await.unwrap(), waits);
    assert_eq!(queue.leave(&first).await.unwrap(), Left::Left);
    assert_eq!(queue.leave(&first).await.unwrap(), Left::NotThere);
    assert_eq!(queue.changed(&second, waits.place, waits.ahead).await.unwrap(), Ahead(0));
}

#[tokio::test]
async fn who_has_left_before_it_arrived_is_not_let_in() {
    let redis = Redis::start();
    let queue = queue(&redis).await;
    let (late, next) = (claim(Demand::Exclusive), claim(Demand::Permits { want: 1, of: 2 }));
    assert_eq!(queue.leave(&late).await.unwrap(), Left::NotThere);
    assert!(matches!(queue.join(&late).await, Err(Error::Lost { .. })));
    assert!(queue.list("", 10).await.unwrap().is_empty());
    assert_eq!(keep(&queue, &late, TTL).await, [late.id]);
    assert_eq!(queue.join(&next).await.unwrap().ahead, Ahead(0), "its mark does not rule the shape");
}

#[tokio::test]
async fn a_dead_claim_stays_dead_and_lets_the_next_in() {
    let redis = Redis::start();
    let queue = queue(&redis).await;
    let (dead, next) = (claim(Demand::Exclusive), claim(Demand::Shared));
    queue.join(&dead).await.unwrap();
    let waits = queue.join(&next).await.unwrap();
    assert_eq!(keep(&queue, &dead, Duration::from_millis(50)).await, []);
    // Nobody leaves and nobody renews: the waiter finds out by itself.
    assert_eq!(keep(&queue, &next, TTL).await, []);
    assert_eq!(queue.changed(&next, waits.place, waits.ahead).await.unwrap(), Ahead(0));
    assert_eq!(keep(&queue, &dead, TTL).await, [dead.id]);
    assert_eq!(keep(&queue, &next, TTL).await, []);
    assert_eq!(queue.leave(&next).await.unwrap(), Left::Left);
}

#[tokio::test]
async fn a_holder_that_shrinks_lets_others_in() {
    let redis = Redis::start();
    let queue = queue(&redis).await;
    let (writer, reader) = (claim(Demand::Exclusive), claim(Demand::Shared));
    queue.join(&writer).await.unwrap();
    let waits = queue.join(&reader).await.unwrap();
    queue.shrink(&writer, Demand::Shared).await.unwrap();
    assert_eq!(queue.changed(&reader, waits.place, waits.ahead).await.unwrap(), Ahead(0));
    let locks = queue.list("", 10).await.unwrap();
    assert_eq!(locks[0].holders().map(|claim| claim.demand).collect::<Vec<_>>(), [Demand::Shared; 2]);
    for claim in [&writer, &reader] {
        assert_eq!(queue.leave(claim).await.unwrap(), Left::Left);
    }
    assert!(matches!(queue.shrink(&writer, Demand::Shared).await, Err(Error::Lost { .. })));
}

/// A lock's own key may outlive what it speaks of; it must not keep anything from expiring later.
#[tokio::test]
async fn a_queue_that_has_expired_is_no_queue() {
    let redis = Redis::start();
    let queue = queue(&redis).await;
    let client = redis::Client::open(redis.url()).unwrap();
    let mut direct = client.get_multiplexed_async_connection().await.unwrap();
    let _: () = redis::cmd("SET").arg("{lock}:lock").arg("#").query_async(&mut direct).await.unwrap();
    let (first, second) = (claim(Demand::Exclusive), claim(Demand::Exclusive));
    assert_eq!(keep(&queue, &first, TTL).await, [first.id]);
    assert_eq!(queue.join(&first).await.unwrap().ahead, Ahead(0));
    assert!(queue.join(&second).await.unwrap().ahead > Ahead(0));
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut direct).await.unwrap();
    assert_eq!(keys.len(), 4);
    for key in keys {
        let left_ms: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut direct).await.unwrap();
        assert!(left_ms > 0, "{key} must end by itself");
    }
}

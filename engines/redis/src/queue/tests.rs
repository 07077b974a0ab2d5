//! What only the seam shows: claims that come twice, too late or not at all, and the rule in the script.

use super::*;
use crate::config::Config;
use lockkeeper_core::Holder;
use lockkeeper_core::engine::Address;
use lockkeeper_core::engine::grant;
use lockkeeper_testkit::Redis;

const TTL: Duration = Duration::from_secs(10);

async fn queue(redis: &Redis) -> RedisQueue {
    let config = Config::read(Address::parse(&redis.url()).unwrap()).unwrap();
    RedisQueue::connect(&config, TTL).await.unwrap()
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

async fn keep(queue: &RedisQueue, claim: &Claim, ttl: Duration) -> Vec<ClaimId> {
    queue.keep(&[Renewal::new(Arc::new(claim.clone()), ttl)]).await.unwrap().dead
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
    assert_eq!(keys.len(), 5);
    for key in keys.iter().filter(|key| *key != "lockkeeper:token") {
        let left_ms: i64 = redis::cmd("PTTL").arg(key).query_async(&mut direct).await.unwrap();
        assert!(left_ms > 0, "{key} must end by itself");
    }
}

/// What the model knows of a claim in the queue.
#[derive(Debug)]
struct Modelled {
    claim: Claim,
    demand: Demand,
}

/// Numbers that look random and are the same in every run (splitmix64).
struct Generator(u64);

impl Generator {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) as u32 % limit
    }

    fn demand(&mut self, shape: Shape) -> Demand {
        match shape {
            Shape::ReadWrite if self.below(2) == 0 => Demand::Exclusive,
            Shape::ReadWrite => Demand::Shared,
            Shape::Permits { of } => Demand::Permits { want: 1 + self.below(of), of },
        }
    }
}

/// The script's copy of the rule grants just what the core's does: after every step, to every claim of a queue.
async fn compare(queue: &RedisQueue, shape: Shape, numbers: &mut Generator) {
    let mut model: Vec<Modelled> = Vec::new();
    for _ in 0..40 {
        match numbers.below(10) {
            0..6 => {
                let claim = claim(numbers.demand(shape));
                let ahead: u64 = model.iter().map(|ahead| ahead.demand.weight()).sum();
                let fits = grant::fits(ahead, claim.demand.weight(), claim.demand.limit());
                let joined = queue.join(&claim).await.unwrap();
                assert_eq!(joined.ahead == Ahead(0), fits, "{claim:?} behind {model:?}");
                model.push(Modelled { demand: claim.demand, claim });
            }
            6..9 if !model.is_empty() => {
                let left = model.remove(numbers.below(model.len() as u32) as usize);
                assert_eq!(queue.leave(&left.claim).await.unwrap(), Left::Left);
            }
            _ => {
                let first = model.first_mut().filter(|first| first.demand == Demand::Exclusive);
                if let Some(first) = first {
                    queue.shrink(&first.claim, Demand::Shared).await.unwrap();
                    first.demand = Demand::Shared;
                }
            }
        }
        let weights = model.iter().map(|claim| (claim.demand.weight(), claim.demand.limit()));
        let mut ahead = 0;
        let expected = weights.map(|(weight, limit)| {
            let holds = grant::fits(ahead, weight, limit);
            ahead += weight;
            holds
        });
        let expected: Vec<(String, bool)> =
            model.iter().map(|it| it.claim.id.to_string()).zip(expected).collect();
        let claims: Vec<(Claim, Duration)> = model.iter().map(|it| (it.claim.clone(), TTL)).collect();
        let mut found: Vec<(String, bool)> = Vec::new();
        if !claims.is_empty() {
            let reply = queue.0.servers.run("look", &keep_call(&[&claims])).await.unwrap();
            let states: Vec<Vec<i64>> = redis::from_redis_value(reply).unwrap();
            let holds = states[0].chunks_exact(2).map(|state| state[0] == 2);
            found = claims.iter().map(|(claim, _)| claim.id.to_string()).zip(holds).collect();
        }
        assert_eq!(found, expected, "{model:?}");
    }
    for left in model {
        queue.leave(&left.claim).await.unwrap();
    }
    assert!(queue.list("", 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_script_grants_by_the_same_rule_as_the_core() {
    let redis = Redis::start();
    let queue = queue(&redis).await;
    let mut numbers = Generator(14);
    for round in 0..60 {
        let shape = match round % 4 {
            0 => Shape::ReadWrite,
            of => Shape::Permits { of: 2 * of - 1 },
        };
        compare(&queue, shape, &mut numbers).await;
    }
}

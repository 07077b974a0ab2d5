//! The rule's copy in SQL against the one in the core, with generated queues on a real server.

use lockkeeper::views::Demand;
use lockkeeper_core::engine::grant;
use lockkeeper_testkit::Postgres;
use std::future::poll_fn;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, NoTls};

const QUEUES: u32 = 300;
const LOOK: &str = include_str!("../../src/sql/queue_look.sql");
const INSERT: &str = "INSERT INTO lockkeeper_claims SELECT $1, place, lpad(place::text, 32, '0'), demand, weight, room,
    permits, '', 'rule', now(), now() + interval '1 h'
    FROM unnest($2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[]) AS c (place, demand, weight, room, permits)";

fn random(below: usize) -> usize {
    rand::random_range(0..below)
}

/// Claims of one shape, lighter ones more often.
fn queue() -> Vec<Demand> {
    let length = 1 + random(9);
    let of = 1 + random(5) as u32;
    let read_write = random(2) == 0;
    (0..length)
        .map(|_| match read_write {
            true if random(3) == 0 => Demand::Exclusive,
            true => Demand::Shared,
            false => Demand::Permits { want: 1 + random(of as usize) as u32, of },
        })
        .collect()
}

async fn listening(server: &Postgres) -> (Client, UnboundedReceiver<String>) {
    let (client, mut connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("a connection");
    let (sender, messages) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(note) = message {
                let _ = sender.send(note.payload().to_owned());
            }
        }
    });
    client.batch_execute("LISTEN rule").await.expect("a subscription");
    (client, messages)
}

fn id(place: usize) -> String {
    format!("{place:0>32}")
}

/// The claims that hold, by place, each with the weight ahead of it.
fn holding(queue: &[(usize, u64)], limit: u64) -> Vec<(usize, u64)> {
    let weights: Vec<u64> = queue.iter().map(|(_, weight)| *weight).collect();
    let holders = queue.iter().take(grant::holders(&weights, limit)).enumerate();
    holders.map(|(index, (place, _))| (*place, weights[..index].iter().sum())).collect()
}

fn number(number: u64) -> i64 {
    i64::try_from(number).expect("a small number")
}

/// Removes these claims of a lock in one statement.
async fn leave_together(client: &Client, name: &str, places: &[usize]) {
    let names = vec![name; places.len()];
    let ids: Vec<String> = places.iter().map(|place| id(*place)).collect();
    let numbers: Vec<i64> = places.iter().map(|place| *place as i64).collect();
    let leave = "SELECT lockkeeper_leave_many($1, $2, $3)";
    let left = client.query(leave, &[&names, &numbers, &ids]).await.expect("leaves");
    assert_eq!(left.len(), places.len());
    client.query_one("SELECT 1", &[]).await.expect("a reply");
}

/// A join notes the time of the grant just where the rule grants it.
#[tokio::test(flavor = "multi_thread")]
async fn a_join_notes_the_grants_that_the_rule_makes() {
    let server = Postgres::start();
    lockkeeper::connect(server.url()).await.expect("a keeper").close().await;
    let (client, _) = listening(&server).await;
    let (mut held, mut waiting) = (0, 0);
    for number_of_queue in 0..QUEUES {
        let (name, demands) = (format!("granted/{number_of_queue}"), queue());
        let limit = demands[0].limit();
        for (place, demand) in demands.iter().enumerate() {
            let permits = if limit < 100 { number(limit) } else { 0 };
            let (text, weight) = (demand.to_string(), number(demand.weight()));
            let join = "SELECT lockkeeper_join($1, $2, $3, $4, $5, $6, '', 'rule', 3600000)";
            client
                .query_one(join, &[&name, &id(place), &text, &weight, &number(limit), &permits])
                .await
                .expect("a join");
        }
        let noted = "SELECT granted_at IS NOT NULL FROM lockkeeper_claims WHERE name = $1 ORDER BY place";
        let noted = client.query(noted, &[&name]).await.expect("a look");
        let noted: Vec<bool> = noted.iter().map(|row| row.get(0)).collect();
        let weights: Vec<u64> = demands.iter().map(|demand| demand.weight()).collect();
        let fits = |index: usize| grant::fits(weights[..index].iter().sum(), weights[index], limit);
        let expected: Vec<bool> = (0..weights.len()).map(fits).collect();
        assert_eq!(noted, expected, "{demands:?}");
        held += noted.iter().filter(|noted| **noted).count();
        waiting += noted.iter().filter(|noted| !**noted).count();
    }
    assert!(held > 100 && waiting > 100, "{held} held, {waiting} wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn leaves_and_downgrades_wake_those_that_the_rule_lets_in() {
    let server = Postgres::start();
    lockkeeper::connect(server.url()).await.expect("a keeper").close().await;
    let (client, mut messages) = listening(&server).await;
    let mut woken = 0;
    for number_of_queue in 0..QUEUES {
        let (name, demands) = (format!("rule/{number_of_queue}"), queue());
        let limit = demands[0].limit();
        let mut claims: Vec<(usize, u64)> = (1..).zip(demands.iter().map(|demand| demand.weight())).collect();
        let places: Vec<i64> = claims.iter().map(|(place, _)| *place as i64).collect();
        let texts: Vec<String> = demands.iter().map(Demand::to_string).collect();
        let weights: Vec<i64> = claims.iter().map(|(_, weight)| number(*weight)).collect();
        let rooms = vec![number(limit); claims.len()];
        let permits = vec![if limit < 100 { number(limit) } else { 0 }; claims.len()];
        client.execute(INSERT, &[&name, &places, &texts, &weights, &rooms, &permits]).await.expect("a queue");

        // What a look finds ahead of each.
        let ids: Vec<String> = claims.iter().map(|(place, _)| id(*place)).collect();
        for row in client.query(LOOK, &[&vec![name.as_str()], &ids]).await.expect("a look") {
            let index = ids.iter().position(|id| *id == row.get::<_, &str>("id")).expect("a claim of ours");
            let ahead: u64 = claims[..index].iter().map(|(_, weight)| weight).sum();
            assert_eq!(row.get::<_, i64>("ahead"), number(ahead), "{demands:?}");
        }

        // One change after the other, until nobody is left.
        while !claims.is_empty() {
            let before = holding(&claims, limit);
            if random(3) == 0 {
                let gone: Vec<usize> =
                    claims.iter().map(|(place, _)| *place).filter(|_| random(2) == 0).collect();
                claims.retain(|(place, _)| !gone.contains(place));
                leave_together(&client, &name, &gone).await;
                let after = holding(&claims, limit);
                let told: Vec<String> = std::iter::from_fn(|| messages.try_recv().ok()).collect();
                let message = |(place, ahead): &(usize, u64)| format!("{} {ahead}", id(*place));
                // One that holds already may be told so again.
                assert!(told.iter().all(|text| after.iter().any(|claim| message(claim) == *text)));
                let is_new = |(place, _): &&(usize, u64)| !before.iter().any(|(known, _)| known == place);
                let missing = after.iter().filter(is_new).find(|claim| !told.contains(&message(claim)));
                assert_eq!(missing, None, "{demands:?}, after {gone:?} of {before:?}");
                continue;
            }
            let index = random(claims.len());
            let (place, weight) = claims[index];
            let own = (&name, &(place as i64), &id(place));
            let may_shrink = weight > 1 && before.iter().any(|(holder, _)| *holder == place);
            if may_shrink && random(2) == 0 {
                claims[index].1 = 1;
                let shrink = "SELECT lockkeeper_shrink($1, $2, $3, 'shared', 1)";
                client.query_one(shrink, &[own.0, own.1, own.2]).await.expect("a downgrade");
            } else {
                claims.remove(index);
                let leave = "SELECT lockkeeper_leave($1, $2, $3)";
                client.query_one(leave, &[own.0, own.1, own.2]).await.expect("a leave");
            }
            client.query_one("SELECT 1", &[]).await.expect("a reply");
            let after = holding(&claims, limit);
            let is_new = |(place, _): &&(usize, u64)| !before.iter().any(|(known, _)| known == place);
            let mut expected: Vec<String> =
                after.iter().filter(is_new).map(|(place, ahead)| format!("{} {ahead}", id(*place))).collect();
            let mut told: Vec<String> = std::iter::from_fn(|| messages.try_recv().ok()).collect();
            expected.sort();
            told.sort();
            woken += told.len();
            assert_eq!(told, expected, "{demands:?}, after {place} of {claims:?}");
        }
    }
    println!("{woken} claims were woken");
    assert!(woken > 100);
}

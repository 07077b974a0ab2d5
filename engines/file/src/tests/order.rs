//! Order, tokens, wake-ups.

use super::*;
use lockkeeper_core::engine::{Left, Renewal};
use lockkeeper_core::{Error, Standing};

#[tokio::test]
async fn claims_stand_in_the_order_they_came_and_leave_nothing_behind() {
    let place = Place::new();
    let (one, other) = (place.engine(), place.engine());
    let (a, b, c) = (mutex("m"), mutex("m"), mutex("m"));
    let first = one.join(&a).await.unwrap();
    let second = other.join(&b).await.unwrap();
    let third = one.join(&c).await.unwrap();
    assert!(first.place < second.place && second.place < third.place);
    assert!(first.token < second.token && second.token < third.token);
    assert_eq!(first.ahead, Ahead(0));
    assert_eq!(second.ahead, Ahead(a.demand.weight()));
    assert_eq!(third.ahead, Ahead(2 * a.demand.weight()));
    assert_eq!(one.leave(&a).await.unwrap(), Left::Left);
    assert_eq!(changed(&other, &b, second).await.unwrap(), Ahead(0));
    assert_eq!(other.leave(&b).await.unwrap(), Left::Left);
    assert_eq!(one.leave(&c).await.unwrap(), Left::Left);
    assert_eq!(place.leftovers(), [""; 0]);
}

#[tokio::test]
async fn join_and_leave_are_idempotent() {
    let place = Place::new();
    let files = place.engine();
    let (a, b) = (mutex("m"), mutex("m"));
    let joined = files.join(&a).await.unwrap();
    files.join(&b).await.unwrap();
    assert_eq!(files.join(&a).await.unwrap(), joined);
    assert_eq!(place.leftovers().len(), 2);
    assert_eq!(files.leave(&a).await.unwrap(), Left::Left);
    assert_eq!(files.leave(&a).await.unwrap(), Left::NotThere);
    assert_eq!(files.leave(&b).await.unwrap(), Left::Left);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leave_wakes_a_waiter_of_another_engine() {
    let place = Place::new();
    let (one, other) = (place.engine(), place.engine());
    for _ in 0..200 {
        let (a, b) = (mutex("m"), mutex("m"));
        one.join(&a).await.unwrap();
        let joined = other.join(&b).await.unwrap();
        let waiting = tokio::spawn({
            let (other, b) = (Arc::clone(&other), b.clone());
            async move { changed(&other, &b, joined).await }
        });
        one.leave(&a).await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap(), Ahead(0));
        other.leave(&b).await.unwrap();
    }
}

#[tokio::test]
async fn a_leave_wakes_a_waiter_that_was_there_before() {
    let place = Place::new();
    let (one, other) = (place.engine(), place.engine());
    let (a, b) = (mutex("m"), mutex("m"));
    one.join(&a).await.unwrap();
    let joined = other.join(&b).await.unwrap();
    let mut waiting = Box::pin(changed(&other, &b, joined));
    begin(&mut waiting);
    one.leave(&a).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Ahead(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_are_not_forgotten_when_others_than_the_nearest_leave() {
    let place = Place::new();
    let files = place.engine();
    let permit = || claim("s", Demand::Permits { want: 1, of: 2 });
    let (a, b, c, me) = (permit(), permit(), permit(), permit());
    for claim in [&a, &b, &c] {
        files.join(claim).await.unwrap();
    }
    let joined = files.join(&me).await.unwrap();
    let waiting = tokio::spawn({
        let (files, me) = (Arc::clone(&files), me.clone());
        async move {
            let mut ahead = joined.ahead;
            while ahead > Ahead(1) {
                ahead = files.changed(&me, joined.place, ahead).await.unwrap();
            }
        }
    });
    files.leave(&a).await.unwrap();
    files.leave(&c).await.unwrap();
    tokio::time::timeout(STUCK, waiting).await.expect("the permit was forgotten").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_shrinks_lets_readers_in() {
    let place = Place::new();
    let (one, other) = (place.engine(), place.engine());
    let (writer, reader, next) = (mutex("rw"), claim("rw", Demand::Shared), mutex("rw"));
    one.join(&writer).await.unwrap();
    let joined = other.join(&reader).await.unwrap();
    let mut waiting = Box::pin(changed(&other, &reader, joined));
    begin(&mut waiting);
    one.shrink(&writer, Demand::Shared).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Ahead(1));
    // Both are readers now, so a writer waits for both.
    assert!(other.join(&next).await.unwrap().ahead >= Ahead(2));
    let locks = one.list("", 10).await.unwrap();
    let standings: Vec<_> = locks[0].claims.iter().map(|claim| (claim.demand, claim.standing)).collect();
    let expected = [
        (Demand::Shared, Standing::Holds),
        (Demand::Shared, Standing::Holds),
        (Demand::Exclusive, Standing::Waits),
    ];
    assert_eq!(standings, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_waiter_learns_of_it_at_once() {
    let place = Place::new();
    let (one, other) = (place.engine(), place.engine());
    let (holder, waiter) = (mutex("m"), mutex("m"));
    one.join(&holder).await.unwrap();
    let joined = one.join(&waiter).await.unwrap();
    let mut waiting = Box::pin(changed(&one, &waiter, joined));
    begin(&mut waiting);
    assert!(other.evict(&waiter.name, waiter.id).await.unwrap());
    assert!(!other.evict(&waiter.name, waiter.id).await.unwrap());
    assert!(waiting.await.unwrap_err().is_lost());
    assert_eq!(one.leave(&waiter).await.unwrap(), Left::NotThere);
}

#[tokio::test]
async fn an_owner_that_does_not_renew_makes_way_and_cannot_come_back() {
    let place = Place::new();
    let (one, other) = (place.engine(), place.engine());
    let hung = claim_for("m", Demand::Exclusive, Duration::from_millis(100));
    let next = mutex("m");
    one.join(&hung).await.unwrap();
    let joined = other.join(&next).await.unwrap();
    assert_eq!(changed(&other, &next, joined).await.unwrap(), Ahead(0));
    let late = Renewal::new(Arc::new(hung.clone()), hung.ttl);
    assert_eq!(one.keep(&[late]).await.unwrap().dead, [hung.id]);
    assert_eq!(one.leave(&hung).await.unwrap(), Left::NotThere);
    assert_eq!(place.leftovers().len(), 1);
}

#[tokio::test]
async fn renewals_keep_a_claim_alive_and_an_evicted_one_is_reported() {
    let place = Place::new();
    let files = place.engine();
    let (kept, evicted) = (
        Arc::new(claim_for("kept", Demand::Exclusive, Duration::from_secs(2))),
        Arc::new(claim_for("evicted", Demand::Exclusive, Duration::from_secs(60))),
    );
    files.join(&kept).await.unwrap();
    files.join(&evicted).await.unwrap();
    files.evict(&evicted.name, evicted.id).await.unwrap();
    let ttl = Duration::from_secs(60);
    let renewals = [&kept, &evicted].map(|claim| Renewal::new(Arc::clone(claim), ttl));
    assert_eq!(files.keep(&renewals).await.unwrap().dead, [evicted.id]);
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert!(place.engine().join(&mutex("kept")).await.unwrap().ahead > Ahead(0));
}

#[tokio::test]
async fn the_oldest_live_claim_rules_the_shape() {
    let place = Place::new();
    let files = place.engine();
    let semaphore = claim("m", Demand::Permits { want: 1, of: 2 });
    place.plant(1, &mutex("m"), far(), false);
    files.join(&semaphore).await.expect("a dead claim does not rule");
    let refused = files.join(&mutex("m")).await.unwrap_err();
    assert!(matches!(refused, Error::Mismatch { .. }), "{refused}");
    assert_eq!(place.leftovers().len(), 1, "a refused claim leaves nothing behind");
}

#[tokio::test]
async fn the_list_shows_names_in_order_and_only_the_living() {
    let place = Place::new();
    let files = place.engine();
    for name in ["b/2", "a/1", "b/1"] {
        files.join(&mutex(name)).await.unwrap();
    }
    files.join(&mutex("b/1")).await.unwrap();
    place.plant(1, &mutex("b/0"), far(), false);
    let unfinished = ClaimName { place: 2, hash: hash_of("b/9"), demand: Demand::Shared, id: ClaimId(9) };
    std::fs::create_dir_all(place.shard("b/9")).unwrap();
    File::create(place.shard("b/9").join(unfinished.file_name())).unwrap();
    let names = |views: Vec<lockkeeper_core::LockView>| -> Vec<(String, usize)> {
        views.into_iter().map(|view| (view.name, view.claims.len())).collect()
    };
    let listed = files.list("b/", 10).await.unwrap();
    assert_eq!(listed[0].claims[0].holder.pid, std::process::id());
    assert!(listed[0].claims[0].ttl_left.unwrap() <= Duration::from_secs(60));
    assert_eq!(names(listed), [("b/1".to_owned(), 2), ("b/2".to_owned(), 1)]);
    assert_eq!(names(files.list("", 1).await.unwrap()), [("a/1".to_owned(), 1)]);
    assert!(place.shard("b/9").join(unfinished.file_name()).exists(), "it may be in the making");
}

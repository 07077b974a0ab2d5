//! Claims that count without an owner: until their time is over, in this run of the machine, for one new owner at a time.

use super::{Place, changed, claim_for, far, mutex};
use crate::claim_file;
use lockkeeper_core::Token;
use lockkeeper_core::engine::{Ahead, Claim, Clock, Left, Moment, Queue as _, Renewal};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

fn renewal(claim: &Claim, outlives: Duration) -> Renewal {
    Renewal::new(Arc::new(claim.clone()), claim.ttl).outlives(outlives)
}

fn survival_at(claim: &Claim) -> u64 {
    claim_file::survival_at(claim.name.as_str(), &claim.holder.encode())
}

/// A claim as its owner has left it: not locked.
fn plant_detached(place: &Place, claim: &Claim, until: Moment) -> File {
    let file = place.plant(1, claim, far(), false);
    claim_file::write_survival(&file, survival_at(claim), until).unwrap();
    file
}

#[tokio::test]
async fn a_detached_claim_stands_until_its_time_is_over() {
    let place = Place::new();
    let (detached, waiting) = (mutex("a"), mutex("a"));
    let end = Clock::Boot.now().plus(Duration::from_millis(300));
    drop(plant_detached(&place, &detached, end));
    let engine = place.engine();
    let joined = engine.join(&waiting).await.unwrap();
    assert_ne!(joined.ahead, Ahead(0));
    assert_eq!(changed(&engine, &waiting, joined).await.unwrap(), Ahead(0));
    assert!(Clock::Boot.now() >= end);
    assert_eq!(place.leftovers().len(), 1);
}

#[tokio::test]
async fn a_detached_claim_of_another_run_of_the_machine_is_dead() {
    let place = Place::new();
    let detached = mutex("a");
    let file = plant_detached(&place, &detached, far());
    claim_file::write_at(&file, &[7; 16], survival_at(&detached) + 16).unwrap();
    assert_eq!(place.engine().join(&mutex("a")).await.unwrap().ahead, Ahead(0));
}

#[tokio::test]
async fn one_process_at_a_time_attaches_a_claim() {
    let place = Place::new();
    let (first, second, third) = (place.engine(), place.engine(), place.engine());
    let claim = mutex("a");
    first.join(&claim).await.unwrap();
    assert!(first.keep(&[renewal(&claim, Duration::from_secs(60))]).await.unwrap().dead.is_empty());
    let error = second.attach(&renewal(&claim, Duration::ZERO), Token(1)).await.unwrap_err();
    assert!(error.to_string().contains("another process holds"), "{error}");
    first.detached(&claim);
    assert_eq!(place.leftovers().len(), 1);
    assert!(second.attach(&renewal(&claim, Duration::ZERO), Token(1)).await.unwrap().is_some());
    assert!(third.attach(&renewal(&claim, Duration::ZERO), Token(1)).await.is_err());
    assert_eq!(second.leave(&claim).await.unwrap(), Left::Left);
    assert!(third.attach(&renewal(&claim, Duration::ZERO), Token(1)).await.unwrap().is_none());
}

#[tokio::test]
async fn a_claim_whose_time_is_over_is_not_attached() {
    let place = Place::new();
    let claim = claim_for("a", lockkeeper_core::Demand::Exclusive, Duration::from_secs(60));
    drop(plant_detached(&place, &claim, Clock::Boot.now()));
    assert!(place.engine().attach(&renewal(&claim, Duration::ZERO), Token(1)).await.unwrap().is_none());
}

//! What killed and stopped processes leave behind.

use super::*;
use crate::counter::{self, Counter};
use crate::gate::{self, Entrance};
use crate::look::{self, Verdict};

#[tokio::test]
async fn the_dead_ahead_are_passed_at_once() {
    let place = Place::new();
    for at in 1..=5 {
        place.plant(at, &mutex("m"), far(), false);
    }
    let files = place.engine();
    assert_eq!(files.join(&mutex("m")).await.unwrap().ahead, Ahead(0));
    assert_eq!(place.leftovers().len(), 1);
}

#[tokio::test]
async fn the_living_ahead_are_not_passed() {
    let place = Place::new();
    let _owner = place.plant(1, &mutex("m"), far(), true);
    assert!(place.engine().join(&mutex("m")).await.unwrap().ahead > Ahead(0));
}

#[tokio::test]
async fn the_expired_ahead_are_passed_even_if_their_owner_lives() {
    let place = Place::new();
    let _owner = place.plant(1, &mutex("m"), Moment::from_nanos(1), true);
    assert_eq!(place.engine().join(&mutex("m")).await.unwrap().ahead, Ahead(0));
}

#[tokio::test]
async fn dead_claims_of_locks_nobody_asks_for_are_cleared_away() {
    let place = Place::new();
    let files = place.engine();
    files.join(&mutex("m")).await.unwrap();
    // Of another lock in the same shard.
    let name = ClaimName { place: 1, hash: hash_of("m") ^ 0x100, demand: Demand::Shared, id: ClaimId(5) };
    place.plant_as(name, &mutex("other"), far(), false);
    assert_eq!(place.leftovers().len(), 2);
    let another = place.engine();
    another.join(&mutex("m")).await.unwrap();
    assert_eq!(place.leftovers().len(), 2, "one more of ours, one less of the dead");
}

#[tokio::test]
async fn another_name_with_the_same_hash_is_not_in_the_way() {
    let place = Place::new();
    let name = ClaimName { place: 1, hash: hash_of("m"), demand: Demand::Exclusive, id: ClaimId(5) };
    let _owner = place.plant_as(name, &mutex("not m"), far(), true);
    assert_eq!(place.engine().join(&mutex("m")).await.unwrap().ahead, Ahead(0));
}

#[tokio::test]
async fn a_claim_whose_maker_died_over_it_is_not_in_the_way() {
    let place = Place::new();
    let files = place.engine();
    let name = |at| ClaimName { place: at, hash: hash_of("m"), demand: Demand::Exclusive, id: ClaimId(5) };
    std::fs::create_dir_all(place.shard("m")).unwrap();
    File::create(place.shard("m").join(name(1).file_name())).unwrap();
    assert_eq!(files.join(&mutex("m")).await.unwrap().ahead, Ahead(0));
    // And one that appears ahead of a claim that waits: its maker was stopped inside a gate that was replaced.
    let waiter = mutex("m");
    let joined = files.join(&waiter).await.unwrap();
    let holder = files.list("m", 1).await.unwrap().remove(0).claims.remove(0);
    drop(File::create(place.shard("m").join(name(joined.place.0 - 1).file_name())).unwrap());
    files.evict(&waiter.name, holder.id.parse().unwrap()).await.unwrap();
    assert_eq!(changed(&files, &waiter, joined).await.unwrap(), Ahead(0));
}

#[tokio::test]
async fn tokens_grow_when_the_gate_is_damaged_or_deleted() {
    let place = Place::new();
    let mut last = 0;
    for round in 0..8 {
        let files = place.engine();
        let (first, second) = (mutex("m"), mutex("m"));
        for claim in [&first, &second] {
            let token = files.join(claim).await.unwrap().token.0;
            assert!(token > last, "round {round}");
            last = token;
        }
        match round % 4 {
            0 => std::fs::write(place.gate("m"), b"garbage").unwrap(),
            1 => std::fs::write(place.gate("m"), b"").unwrap(),
            2 => std::fs::remove_file(place.gate("m")).unwrap(),
            _ => std::fs::remove_dir_all(place.root()).unwrap(),
        }
    }
}

#[tokio::test]
async fn a_new_gate_starts_behind_every_claim_that_stands() {
    let place = Place::new();
    let ahead_of_time = counter::wall_microseconds() * 2;
    let _owner = place.plant(ahead_of_time, &mutex("m"), far(), true);
    assert_eq!(place.engine().join(&mutex("m")).await.unwrap().place.0, ahead_of_time + 1);
}

#[tokio::test]
async fn after_a_start_of_the_machine_numbers_go_on_behind_the_reserve() {
    let place = Place::new();
    let before = place.engine().join(&mutex("m")).await.unwrap().token.0;
    let gate = Counter::decode(&std::fs::read(place.gate("m")).unwrap()).unwrap();
    assert!(before < gate.next && gate.next <= gate.reserved);
    let on_disk = Counter { boot: gate.boot ^ 1, next: before - 1, ..gate };
    std::fs::write(place.gate("m"), on_disk.encode()).unwrap();
    assert!(place.engine().join(&mutex("m")).await.unwrap().token.0 >= gate.reserved);
}

#[tokio::test]
async fn a_process_that_stops_inside_the_gate_does_not_stop_the_others() {
    let place = Place::new();
    let files = place.engine();
    let brief = || claim_for("m", Demand::Shared, Duration::from_secs(1));
    let before = files.join(&brief()).await.unwrap().token;
    let stopped = File::options().read(true).write(true).open(place.gate("m")).unwrap();
    stopped.lock().unwrap();
    let behind = brief();
    let joined = tokio::time::timeout(STUCK, files.join(&behind)).await.expect("stuck at the gate").unwrap();
    assert!(joined.token > before);
    assert!(place.engine().join(&brief()).await.unwrap().token > joined.token);
}

#[tokio::test]
async fn a_process_inside_a_replaced_gate_notices() {
    let place = Place::new();
    let (one, other) = (place.engine(), place.engine());
    one.join(&mutex("m")).await.unwrap();
    let hash = hash_of("m");
    let shard = one.files.shards.of(hash).unwrap();
    let Entrance::Inside(mut inside) = gate::enter(&shard).unwrap() else { panic!("the gate is busy") };
    let place_before = inside.take_place(|| 0).unwrap();
    assert!(inside.is_the_gate().unwrap());
    let brief = claim_for("m", Demand::Exclusive, Duration::from_secs(1));
    let joined = other.join(&brief).await.unwrap();
    assert!(joined.place.0 > place_before, "no number is given twice");
    assert!(!inside.is_the_gate().unwrap());
    inside.abandon();
    assert!(one.join(&mutex("m")).await.unwrap().place > joined.place);
}

#[tokio::test]
async fn a_process_inside_a_replaced_gate_leaves_claims_in_the_making_alone() {
    let place = Place::new();
    let files = place.engine();
    files.join(&mutex("m")).await.unwrap();
    let shard = files.files.shards.of(hash_of("m")).unwrap();
    let Entrance::Inside(inside) = gate::enter(&shard).unwrap() else { panic!("the gate is busy") };
    let name = ClaimName { place: 1, hash: hash_of("m"), demand: Demand::Exclusive, id: ClaimId(5) };
    let making = shard.path.join(name.file_name());
    std::fs::rename(place.gate("m"), place.shard("m").join("gate.old")).unwrap();
    File::create(&making).unwrap();
    assert_eq!(look::inspect_inside(&inside, &name).unwrap(), Verdict::Unfinished);
    assert!(making.exists());
    std::fs::rename(place.shard("m").join("gate.old"), place.gate("m")).unwrap();
    assert_eq!(look::inspect_inside(&inside, &name).unwrap(), Verdict::Gone);
    assert!(!making.exists());
}

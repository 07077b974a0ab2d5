//! A directory that is removed or moved away under our hands.

use super::*;
use lockkeeper_core::engine::{Left, Renewal};

async fn is_dead(files: &FileQueue, claim: &Claim) -> bool {
    let renewal = Renewal::new(Arc::new(claim.clone()), claim.ttl);
    files.keep(&[renewal]).await.unwrap().dead == [claim.id]
}

#[tokio::test]
async fn when_the_directory_is_removed_the_holder_learns_of_it_and_a_new_one_is_made() {
    let place = Place::new();
    let files = place.engine();
    let holder = mutex("m");
    let before = files.join(&holder).await.unwrap().token;
    std::fs::remove_dir_all(place.root()).unwrap();
    assert!(is_dead(&files, &holder).await);
    let next = mutex("m");
    let joined = files.join(&next).await.unwrap();
    assert_eq!(joined.ahead, Ahead(0));
    assert!(joined.token > before);
    assert!(!is_dead(&files, &next).await);
    assert_eq!(files.leave(&holder).await.unwrap(), Left::NotThere);
    assert_eq!(files.leave(&next).await.unwrap(), Left::Left);
}

/// The files go one by one. If the holder's goes first, the waiter is granted for as long as its own is there;
/// then the renewal that follows says so.
#[tokio::test]
async fn when_the_directory_is_removed_a_waiter_learns_of_it_at_once() {
    let place = Place::new();
    let files = place.engine();
    let (holder, waiter) = (mutex("m"), mutex("m"));
    files.join(&holder).await.unwrap();
    let joined = files.join(&waiter).await.unwrap();
    let mut waiting = Box::pin(changed(&files, &waiter, joined));
    begin(&mut waiting);
    std::fs::remove_dir_all(place.root()).unwrap();
    match waiting.await {
        Ok(_) => assert!(is_dead(&files, &waiter).await),
        Err(error) => assert!(error.is_lost(), "{error}"),
    }
}

#[tokio::test]
async fn claims_in_a_directory_that_was_moved_away_are_dead() {
    let place = Place::new();
    let files = place.engine();
    let (holder, waiter) = (mutex("m"), mutex("m"));
    files.join(&holder).await.unwrap();
    let joined = files.join(&waiter).await.unwrap();
    std::fs::rename(place.root(), place.temporary.path().join("elsewhere")).unwrap();
    assert!(changed(&files, &waiter, joined).await.unwrap_err().is_lost());
    assert_eq!(files.join(&mutex("m")).await.unwrap().ahead, Ahead(0));
    assert!(is_dead(&files, &holder).await);
}

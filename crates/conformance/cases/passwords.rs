//! A password that is changed under a held lock: the hold survives, and the next lock is taken with the new one.
//! Included by the tests of each engine that has passwords.

use lockkeeper::{Connect, Keeper, State};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(6);
/// How often the application gives the old password after the change: so often the server refuses it.
const REFUSED: usize = 2;

/// Connects as the URL's user, once with a file and once with a callback. `change` gives the user a new password and cuts
/// its connections; `survives` says whether a hold outlives its connection in this style.
pub(crate) async fn a_hold_survives_a_new_password(url: &str, survives: bool, change: impl AsyncFn(&str)) {
    change("one").await;
    let file = url.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    let file = format!("{}/{file}", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&file, "wrong\n").expect("a file");
    let by_file = Connect::to(format!("{url}&password_file={file}")).ttl(TTL);
    let refused = by_file.clone().connect().await.expect_err("a wrong password");
    assert!(!refused.is_temporary(), "{refused}");
    std::fs::write(&file, "one\n").expect("a file");

    let (is_changed, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (changed, counted) = (Arc::clone(&is_changed), Arc::clone(&calls));
    let by_callback = Connect::to(url).ttl(TTL).password_from(move || {
        let is_new = changed.load(SeqCst) && counted.fetch_add(1, SeqCst) >= REFUSED;
        async move { Ok::<_, Infallible>(if is_new { "two".to_owned() } else { "one".to_owned() }) }
    });
    let mut keepers: Vec<(&str, Keeper)> = Vec::new();
    for (name, settings) in [("by-file", by_file), ("by-callback", by_callback)] {
        keepers
            .push((name, settings.connect().await.unwrap_or_else(|error| panic!("{name} {url}: {error}"))));
    }
    let mut guards = Vec::new();
    for (name, keeper) in &keepers {
        guards.push(keeper.mutex(*name).lock().await.expect("a grant"));
    }
    is_changed.store(true, SeqCst);
    change("two").await;
    std::fs::write(&file, "two\n").expect("a file");
    tokio::time::sleep(TTL * 3 / 2).await;
    for ((name, keeper), guard) in keepers.iter().zip(guards) {
        if survives {
            assert_eq!(guard.state(), State::Held, "{name} {url}");
            guard.release().await.expect("a release");
        }
        let next = tokio::time::timeout(TTL * 5, keeper.mutex(format!("next-{name}")).lock()).await;
        next.expect("a grant in time").expect("a grant").release().await.expect("a release");
    }
    assert!(calls.load(SeqCst) > REFUSED, "{url}: the old password was never refused");
    for (_, keeper) in keepers {
        keeper.close().await;
    }
}

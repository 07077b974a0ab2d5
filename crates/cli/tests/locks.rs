//! Readers share, permits count, several names are all or nothing, namespaces are apart.

mod support;

use support::Place;

fn tries(place: &Place, arguments: &[&str]) -> i32 {
    let mut all = vec!["run", "--no-wait"];
    all.extend(arguments);
    all.extend(["--", "true"]);
    place.status(all).0
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let place = Place::new();
    let reader = place.hold(&["--read", "stock"]);
    assert_eq!(tries(&place, &["--read", "stock"]), 0);
    assert_eq!(tries(&place, &["stock"]), 75);
    assert_eq!(reader.finish(), 0);
    let writer = place.hold(&["stock"]);
    assert_eq!(tries(&place, &["--read", "stock"]), 75);
    assert_eq!(writer.finish(), 0);
    assert_eq!(tries(&place, &["stock"]), 0);
    place.assert_empty();
}

#[test]
fn permits_are_never_more_than_there_are() {
    let place = Place::new();
    let two = place.hold(&["--permits", "2/3", "gpu"]);
    assert_eq!(tries(&place, &["--permits", "2/3", "gpu"]), 75);
    let one = place.hold(&["--permits", "1/3", "gpu"]);
    assert_eq!(tries(&place, &["--permits", "1/3", "gpu"]), 75);
    assert_eq!(two.finish(), 0);
    assert_eq!(tries(&place, &["--permits", "2/3", "gpu"]), 0);
    assert_eq!(one.finish(), 0);
    place.assert_empty();
}

#[test]
fn several_names_are_all_or_nothing() {
    let place = Place::new();
    let b = place.hold(&["b"]);
    assert_eq!(tries(&place, &["a", "b"]), 75);
    assert_eq!(tries(&place, &["a"]), 0, "a must have been given back");
    let (status, text) = place.status(["run", "--wait", "50ms", "a", "b", "--", "true"]);
    assert_eq!(status, 75);
    assert!(text.contains("b is held by"), "{text}");
    assert_eq!(b.finish(), 0);
    let both = place.hold(&["b", "a"]);
    assert_eq!(tries(&place, &["a"]), 75);
    assert_eq!(tries(&place, &["b"]), 75);
    assert_eq!(both.finish(), 0);
    place.assert_empty();
}

#[test]
fn opposite_orders_do_not_block_each_other() {
    let place = Place::new();
    let runs: Vec<_> = (0..10)
        .map(|turn| {
            let names = if turn % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
            place.lockkeeper(["run", names[0], names[1], "--", "true"]).spawn().unwrap()
        })
        .collect();
    for mut run in runs {
        assert!(support::wait(&mut run).success());
    }
    place.assert_empty();
}

#[test]
fn namespaces_are_apart() {
    let place = Place::new();
    let holder = place.hold(&["x"]);
    assert_eq!(tries(&place, &["--namespace", "other", "x"]), 0);
    assert_eq!(tries(&place, &["--namespace", "lockkeeper", "x"]), 75);
    assert_eq!(holder.finish(), 0);
}

#[test]
fn a_lock_is_free_after_every_way_a_command_can_end() {
    let place = Place::new();
    for line in ["exit 0", "exit 1", "kill -KILL $$", "kill -SEGV $$", "exec /no/such/command"] {
        place.status(["run", "--no-wait", "x", "--", "bash", "-c", &format!("ulimit -c 0; {line}")]);
        assert_eq!(tries(&place, &["x"]), 0, "{line}");
    }
    place.assert_empty();
}

#[test]
fn a_call_that_may_wait_for_itself_says_so() {
    let place = Place::new();
    let binary = env!("CARGO_BIN_EXE_lockkeeper");
    let inner = [binary, "run", "--wait", "1s", "x", "--", "true"];
    let (status, said) = place.status(["run", "x", "--"].into_iter().chain(inner));
    assert_eq!(status, 75);
    assert!(said.contains("already runs under 'x'"), "{said}");
    // However many runs are in between, and also without a wait.
    let inner = [binary, "run", "y", "--", binary, "run", "--no-wait", "x", "--", "true"];
    let (status, said) = place.status(["run", "x", "--"].into_iter().chain(inner));
    assert_eq!(status, 75);
    assert!(said.contains("around this command, which would wait for itself"), "{said}");
    let inner = [binary, "run", "y", "--", "true"];
    assert_eq!(place.status(["run", "x", "--"].into_iter().chain(inner)), (0, String::new()));
}

#[test]
fn a_wait_without_a_terminal_is_reported_once_with_the_holder() {
    let place = Place::new();
    let holder = place.hold(&["x", "--holder", "ann"]);
    let (status, text) = place.status(["run", "--wait", "2500ms", "x", "--", "true"]);
    assert_eq!(status, 75);
    assert_eq!(text.matches("lockkeeper: waiting for x: place 1 of 1, held by ann").count(), 1, "{text}");
    let (_, text) = place.status(["run", "--wait", "200ms", "x", "--", "true"]);
    assert!(!text.contains("waiting for"), "a short wait is not reported: {text}");
    assert_eq!(holder.finish(), 0);
}

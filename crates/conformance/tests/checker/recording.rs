//! Recorders and the files they leave.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::thread;

use lockkeeper_conformance::checker::simulation::{busy_plans, simulate};
use lockkeeper_conformance::history::{EventKind, History, Recorder, ReleaseOutcome};

#[test]
fn json_lines_bring_back_the_history() {
    let history = simulate(&busy_plans(200, 3, 4, 7), 4);
    let mut lines = Vec::new();
    history.write_json_lines(&mut lines).unwrap();
    assert_eq!(History::read_json_lines(lines.as_slice()).unwrap(), history);
}

#[test]
fn a_line_is_compact_and_keeps_all_128_bits_of_the_claim() {
    let recorder = Recorder::new();
    recorder.claim(3, 0, u128::MAX).is_granted(17, 5, u64::MAX);
    let mut lines = Vec::new();
    recorder.history().write_json_lines(&mut lines).unwrap();
    assert_eq!(
        String::from_utf8(lines).unwrap(),
        "{\"at_ns\":17,\"client\":3,\"lock\":0,\"claim\":\"ffffffffffffffffffffffffffffffff\",\
         \"kind\":{\"granted\":{\"token\":5,\"deadline_ns\":18446744073709551615}}}\n"
    );
}

#[test]
fn an_unfinished_last_line_is_left_out() {
    let recorder = Recorder::new();
    recorder.claim(1, 0, 1).invokes(1, 1, 1);
    let mut lines = Vec::new();
    recorder.history().write_json_lines(&mut lines).unwrap();
    lines.extend_from_slice(b"{\"at_ns\":2,\"cli");
    assert_eq!(History::read_json_lines(lines.as_slice()).unwrap(), recorder.history());
}

#[test]
fn a_broken_line_is_an_error() {
    assert!(History::read_json_lines(&b"{\"at_ns\":2}\n"[..]).is_err());
}

#[test]
fn many_threads_record_at_once_and_each_keeps_its_order() {
    let recorder = Recorder::new();
    thread::scope(|scope| {
        for client in 0..8 {
            let claim = recorder.claim(client, 0, client.into());
            scope.spawn(move || (0..1000).for_each(|weight| claim.invokes(weight.into(), weight, 1000)));
        }
    });
    let history = recorder.history();
    assert_eq!(history.events.len(), 8000);
    assert!(history.events.is_sorted_by_key(|event| event.at_ns));
}

#[test]
fn a_mirror_has_every_event_at_once() {
    let file = SharedFile::default();
    let recorder = Recorder::mirrored_to(file.clone());
    recorder.claim(1, 0, 1).invokes(1, 1, 1);
    recorder.claim(2, 0, 2).invokes(2, 1, 1);
    let written = file.0.lock().unwrap().clone();
    assert_eq!(History::read_json_lines(written.as_slice()).unwrap(), recorder.history());
}

#[derive(Clone, Default)]
struct SharedFile(Arc<Mutex<Vec<u8>>>);

impl Write for SharedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_killed_client_is_buried_with_what_it_held_and_waited_for() {
    let recorder = Recorder::new();
    let (held, waiting, done) = (recorder.claim(1, 0, 1), recorder.claim(1, 1, 2), recorder.claim(1, 2, 3));
    held.invokes(1, 1, 1);
    held.is_granted(2, 1, 100);
    waiting.invokes(1, 1, 1);
    done.invokes(1, 1, 1);
    done.is_granted(2, 1, 100);
    done.invokes_release(3);
    done.release_is_done(4, ReleaseOutcome::Released);
    recorder.claim(2, 0, 4).invokes(2, 1, 1);

    let mut history = recorder.history();
    let before = history.events.len();
    history.bury(1, 50);
    let ends: Vec<_> =
        history.events[before..].iter().map(|event| (event.at_ns, event.claim, event.kind)).collect();
    assert_eq!(ends, [(50, 1, EventKind::Lost), (50, 2, EventKind::Unknown)]);
}

#[test]
fn merged_histories_hold_the_events_of_all() {
    let parts = [simulate(&busy_plans(20, 1, 1, 1), 1), simulate(&busy_plans(30, 2, 1, 2), 1)];
    let total = parts.iter().map(|part| part.events.len()).sum::<usize>();
    assert_eq!(History::merge(parts).events.len(), total);
}

//! Of many replicas that start at once, one migrates.

use lockkeeper_testkit::Postgres;
use std::process::{Command, Stdio};

#[test]
fn of_six_replicas_one_migrates_and_all_go_on() {
    let server = Postgres::start();
    let replicas: Vec<_> = (0..6)
        .map(|_| {
            Command::new(env!("CARGO_BIN_EXE_migration-gate"))
                .env("DATABASE_URL", server.url())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a replica")
        })
        .collect();
    let mut said: Vec<String> = replicas
        .into_iter()
        .map(|replica| {
            let output = replica.wait_with_output().expect("an end");
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).expect("text")
        })
        .collect();
    said.sort();
    let mut expected = vec!["3 steps to 3\n".to_owned()];
    expected.extend(vec!["already at 3\n".to_owned(); 5]);
    assert_eq!(said, expected);
}

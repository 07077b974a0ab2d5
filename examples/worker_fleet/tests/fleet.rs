//! The fleet goes on when its leader is killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const JOBS: usize = 30;

fn worker(folder: &Path, name: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_worker-fleet"))
        .env("LOCKKEEPER_URL", format!("file:{}", folder.join("locks").display()))
        .args([folder.join("jobs").as_os_str(), name.as_ref(), "--jobs".as_ref(), JOBS.to_string().as_ref()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a worker")
}

#[test]
fn when_the_leader_is_killed_another_one_plans_on_and_every_job_is_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut leader = worker(folder.path(), "ann");
    let mut said = String::new();
    BufReader::new(leader.stdout.take().expect("a pipe")).read_line(&mut said).expect("a line");
    assert!(said.starts_with("ann leads with the token "), "{said}");
    let others = ["ben", "cho"].map(|name| worker(folder.path(), name));
    leader.kill().expect("a kill");
    leader.wait().expect("an end");
    for other in others {
        let output = other.wait_with_output().expect("an end");
        assert!(output.status.success(), "{output:?}");
    }
    let count =
        |part: &str| std::fs::read_dir(folder.path().join("jobs").join(part)).expect("a folder").count();
    assert_eq!((count("done"), count("todo")), (JOBS, 0));
    let planned = std::fs::read_to_string(folder.path().join("jobs/planned")).expect("the log");
    assert!(planned.contains(" ben\n") || planned.contains(" cho\n"), "{planned}");
}

//! Two replicas of the service and many clients: each order is paid once, and a late holder is refused.

use lockkeeper_testkit::Postgres;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

struct Replica {
    child: Child,
    address: String,
}

impl Replica {
    fn start(database: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_order-service"))
            .args(["--listen", "127.0.0.1:0", "--database", database])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a replica");
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut said).expect("a line");
        Self { child, address: said.trim().trim_start_matches("listening on ").to_owned() }
    }

    /// The status and the text of the answer.
    fn pay(&self, order: u32) -> (String, String) {
        let mut connection = TcpStream::connect(&self.address).expect("a connection");
        write!(connection, "POST /orders/{order}/pay HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")
            .expect("a request");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        let (head, text) = answer.split_once("\r\n\r\n").expect("a head");
        (head.split(' ').nth(1).expect("a status").into(), text.trim().into())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn psql(server: &Postgres, statements: &str) {
    let status = Command::new("psql").args(["-q", &server.url(), "-c", statements]).status().expect("psql");
    assert!(status.success());
}

#[test]
fn an_order_is_paid_once_and_a_late_holder_is_refused() {
    let server = Postgres::start();
    psql(&server, "create table orders (id bigint primary key, paid bool not null)");
    psql(&server, "insert into orders values (42, false), (43, false)");
    let replicas = [Replica::start(&server.url()), Replica::start(&server.url())];

    let mut answers: Vec<(String, String)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..16)
            .map(|client| {
                scope.spawn({
                    let replica = &replicas[client % 2];
                    || replica.pay(42)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("an answer")).collect()
    });
    answers.sort();
    assert_eq!(answers[0], ("200".into(), "paid".into()));
    assert!(
        answers[1..].iter().all(|answer| *answer == ("409".into(), "paid already".into())),
        "{answers:?}"
    );
    assert_eq!(replicas[0].pay(44).0, "404");

    // As if a later holder had been there while this one was paused.
    psql(&server, "insert into lockkeeper_fences values ('orders/43', 9223372036854775807)");
    assert_eq!(replicas[0].pay(43), ("409".into(), "a later holder was here".into()));
}

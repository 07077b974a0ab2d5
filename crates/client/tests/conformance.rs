//! The whole suite through `lockkeeper serve`, on several engines: the laws hold across the extra hop.

use lockkeeper_conformance::{Program, Subject, Suite};
use lockkeeper_core::Abilities;
use lockkeeper_serve::{Listener, Server, Settings};
use lockkeeper_testkit::{Etcd, Postgres, Redis};
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    for scheme in lockkeeper_client::SCHEMES {
        lockkeeper::register(scheme, lockkeeper_client::connect).expect("the scheme is free");
    }
    // A restart of the engine would be a restart of the server's process, and the end of its locks.
    let mut in_memory = abilities();
    in_memory.token_survives_restart = false;
    Program::new()
        .suite("memory", suite(in_memory), || served("memory:served"))
        .suite("redis", suite(abilities()), || {
            let engine = Arc::new(Redis::start_with(&["--appendonly", "yes"]));
            let again = Arc::clone(&engine);
            let restart = move || {
                again.stop();
                again.restart();
            };
            served(&engine.url()).restart(restart).keep(engine)
        })
        .suite("postgres", suite(abilities()), || {
            let engine = Arc::new(Postgres::start());
            let again = Arc::clone(&engine);
            served(&engine.url()).restart(move || again.restart()).keep(engine)
        })
        .suite("etcd", suite(abilities()), || {
            let engine = Arc::new(Etcd::start());
            let again = Arc::clone(&engine);
            served(&engine.url()).restart(move || again.servers()[0].restart()).keep(engine)
        })
        .run()
}

/// What the surface offers on an engine with a queue: all but holds that outlive their session.
fn abilities() -> Abilities {
    Abilities::new("http", "session", "http://localhost:7670").queue().push()
}

fn suite(abilities: Abilities) -> Suite {
    let own_id = "the claim at the engine is the server's, and has another id than the client's";
    Suite::new(abilities)
        .cannot("loss::a_late_renewal_does_not_revive", own_id)
        .cannot("loss::a_wait_that_joins_again_says_so", "the server's wait joins again, and says so there")
        .cannot("looking::a_holder_is_shown_with_its_token", own_id)
        .cannot("looking::a_hold_is_shown_since_its_grant_and_a_wait_since_its_join", own_id)
        .cannot(
            "names::names_that_look_alike_are_different_locks",
            "the client's namespace is a part of the name to the server",
        )
}

/// A server in this process, with a runtime of its own, on the engine of this URL.
fn served(url: &str) -> Subject {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let url = url.to_owned();
    let address = runtime.block_on(async move {
        let keeper = lockkeeper::Connect::to(url).namespace("served").connect().await.expect("the engine");
        let listener = Listener::bind("127.0.0.1:0", None).await.expect("a port");
        let address = listener.to_string();
        let server = Server::new(keeper, Settings::default());
        tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
        address
    });
    Subject::at(address).keep(runtime)
}

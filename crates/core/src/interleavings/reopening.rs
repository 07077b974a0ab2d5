//! Connections of runtimes that end, and those that are opened anew.

use super::{Handle, in_any_order};
use crate::connections::{Connection, Connections};
use shuttle::future::{block_on, spawn, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

struct Plain {
    is_closed: AtomicBool,
    alive: Arc<AtomicUsize>,
}

impl Connection for Plain {
    fn is_closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

/// Connections that take a moment to open, and how many there are.
fn connections() -> (Arc<Connections<Plain>>, Arc<AtomicUsize>) {
    let alive: Arc<AtomicUsize> = Arc::default();
    let counted = Arc::clone(&alive);
    let open = move || {
        let alive = Arc::clone(&counted);
        async move {
            yield_now().await;
            alive.fetch_add(1, SeqCst);
            Ok(Plain { is_closed: false.into(), alive })
        }
    };
    (Arc::new(Connections::new(open)), alive)
}

#[test]
fn callers_of_a_runtime_share_one_connection() {
    in_any_order(|| {
        let (connections, alive) = connections();
        let runtime = Handle::new();
        let asking: Vec<_> = (0..3)
            .map(|_| {
                let (connections, runtime) = (Arc::clone(&connections), runtime.clone());
                spawn(async move { connections.on(&runtime).await.expect("a connection") })
            })
            .collect();
        block_on(async {
            let mut found = Vec::new();
            for asked in asking {
                found.push(asked.await.unwrap());
            }
            assert!(found.windows(2).all(|pair| Arc::ptr_eq(&pair[0], &pair[1])));
        });
        assert_eq!(alive.load(SeqCst), 1);
        runtime.end();
        runtime.settle();
    });
}

#[test]
fn a_runtime_that_ends_leaves_nobody_waiting_and_no_connection_behind() {
    in_any_order(|| {
        let (connections, alive) = connections();
        let (ending, staying) = (Handle::new(), Handle::new());
        let asking: Vec<_> = (0..2)
            .map(|_| {
                let (connections, runtime) = (Arc::clone(&connections), ending.clone());
                // A connection, or an error: never a wait without end.
                spawn(async move { connections.on(&runtime).await.map(drop) })
            })
            .collect();
        let other = {
            let (connections, runtime) = (Arc::clone(&connections), staying.clone());
            spawn(async move { connections.on(&runtime).await.map(drop) })
        };
        ending.end();
        block_on(async {
            for asked in asking {
                let _ = asked.await.unwrap();
            }
            other.await.unwrap().expect("the other runtime goes on");
            // What ran there is dropped when its turn comes.
            while alive.load(SeqCst) > 1 {
                yield_now().await;
            }
            assert!(connections.on(&ending).await.is_err(), "it has ended");
        });
        ending.settle();
        assert_eq!(format!("{connections:?}"), "Connections { runtimes: 1 }");
        staying.end();
        staying.settle();
    });
}

#[test]
fn a_connection_that_was_closed_is_replaced_by_one() {
    in_any_order(|| {
        let (connections, alive) = connections();
        let runtime = Handle::new();
        block_on(async {
            let first = connections.on(&runtime).await.expect("a connection");
            first.is_closed.store(true, SeqCst);
            drop(first);
            let asking: Vec<_> = (0..2)
                .map(|_| {
                    let (connections, runtime) = (Arc::clone(&connections), runtime.clone());
                    spawn(async move { connections.on(&runtime).await.expect("a connection") })
                })
                .collect();
            for asked in asking {
                assert!(!asked.await.unwrap().is_closed(), "it is the closed one");
            }
            while alive.load(SeqCst) > 1 {
                yield_now().await;
            }
        });
        assert_eq!(alive.load(SeqCst), 1, "the closed one is dropped");
        runtime.end();
        runtime.settle();
    });
}

//! A web service that pays each order once: a lock per order, and a fence in PostgreSQL.
//!
//! ```sh
//! DATABASE_URL=postgres://shop@db/shop order-service --listen 127.0.0.1:8080
//! curl -X POST http://127.0.0.1:8080/orders/42/pay
//! ```
//!
//! The lock keeps two replicas from calling the payment provider for one order. The fence keeps a replica that was paused
//! for too long from writing what it found out before.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use clap::Parser;
use lockkeeper::{Keeper, Token};
use lockkeeper_fencing::sql::{FENCES, RAISE};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Answer = (StatusCode, &'static str);

/// Longer than a payment takes; shorter than the client's patience.
const WAIT: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
#[command(about = "Pays each order once: POST /orders/ID/pay")]
struct Arguments {
    /// The database with the orders, which is also the engine to lock on
    #[arg(long, env = "DATABASE_URL")]
    database: String,
    /// Where to listen; port 0 chooses a free one
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: String,
}

struct Shop {
    keeper: Keeper,
    database: Mutex<Client>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { database, listen } = Arguments::parse();
    let keeper = lockkeeper::Connect::to(&database).holder("order service").connect().await?;
    let (client, connection) = tokio_postgres::connect(&database, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(FENCES).await?;
    let shop = Arc::new(Shop { keeper, database: Mutex::new(client) });
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, axum::Router::new().route("/orders/{id}/pay", post(pay)).with_state(shop)).await?;
    Ok(())
}

/// A client that hangs up drops this future, and with it the claim.
async fn pay(State(shop): State<Arc<Shop>>, Path(order): Path<i64>) -> Answer {
    match pay_once(&shop, order).await {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("order {order}: {error}");
            (StatusCode::SERVICE_UNAVAILABLE, "try again\n")
        }
    }
}

async fn pay_once(shop: &Shop, order: i64) -> Result<Answer> {
    let Some(guard) = shop.keeper.mutex(format!("orders/{order}")).lock_within(WAIT).await? else {
        return Ok((StatusCode::CONFLICT, "somebody else is paying it\n"));
    };
    // An order that is half paid when the lock is lost is rolled back.
    let answer = guard.protect(charge(shop, order, guard.token()?)).await??;
    guard.release().await?;
    Ok(answer)
}

/// The fence first, in the same transaction as the reads and writes.
async fn charge(shop: &Shop, order: i64, token: Token) -> Result<Answer> {
    let mut database = shop.database.lock().await;
    let transaction = database.transaction().await?;
    let resource = format!("orders/{order}");
    if transaction.execute(RAISE, &[&resource, &i64::try_from(token.0)?]).await? == 0 {
        return Ok((StatusCode::CONFLICT, "a later holder was here\n"));
    }
    let Some(row) = transaction.query_opt("select paid from orders where id = $1", &[&order]).await? else {
        return Ok((StatusCode::NOT_FOUND, "no such order\n"));
    };
    if row.get(0) {
        return Ok((StatusCode::CONFLICT, "paid already\n"));
    }
    // Here the payment provider would be called, with the token as the key that makes a repeated call harmless.
    transaction.execute("update orders set paid = true where id = $1", &[&order]).await?;
    transaction.commit().await?;
    Ok((StatusCode::OK, "paid\n"))
}

//! Every replica starts it before the server: one migrates the database, the others wait and find it done.
//!
//! ```sh
//! DATABASE_URL=postgres://shop@db/shop migration-gate && exec shop-server
//! ```

use clap::Parser;
use std::time::Duration;
use tokio_postgres::NoTls;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A database that is still starting is waited for; a migration that hangs stops the deployment, and is seen there.
const LIMIT: Duration = Duration::from_secs(600);

const MIGRATIONS: [&str; 3] = [
    "create table orders (id bigint primary key)",
    "alter table orders add column paid bool not null default false",
    "insert into orders select generate_series(1, 100)",
];

#[derive(Debug, Parser)]
#[command(about = "Migrates the database, unless that is done or another replica does it")]
struct Arguments {
    /// The database, which is also the engine to lock on
    #[arg(long, env = "DATABASE_URL")]
    database: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { database } = Arguments::parse();
    let keeper =
        lockkeeper::Connect::to(&database).holder("migration gate").retry_for(LIMIT).connect().await?;
    let Some(guard) = keeper.mutex("deploy/migrate").lock_within(LIMIT).await? else {
        return Err(
            "another replica has been migrating for ten minutes: see 'lockkeeper show deploy/migrate'".into(),
        );
    };
    let steps = guard.protect(migrate(&database)).await??;
    guard.release().await?;
    match steps {
        0 => println!("already at {}", MIGRATIONS.len()),
        steps => println!("{steps} steps to {}", MIGRATIONS.len()),
    }
    Ok(())
}

/// Does the steps that are missing, each in a transaction with its number; how many that were.
async fn migrate(database: &str) -> Result<usize> {
    let (mut client, connection) = tokio_postgres::connect(database, NoTls).await?;
    let connection = tokio::spawn(connection);
    client.batch_execute("create table if not exists migrations (step int primary key)").await?;
    let done: i64 = client.query_one("select count(*) from migrations", &[]).await?.get(0);
    for (step, statement) in (1..).zip(MIGRATIONS).skip(usize::try_from(done)?) {
        let transaction = client.transaction().await?;
        transaction.batch_execute(statement).await?;
        transaction.execute("insert into migrations values ($1)", &[&step]).await?;
        transaction.commit().await?;
    }
    drop(client);
    connection.await??;
    Ok(MIGRATIONS.len() - usize::try_from(done)?)
}

//! The SQL statements on PostgreSQL and MariaDB: a later token at a read refuses the earlier one's write.

use lockkeeper_fencing::sql;
use lockkeeper_testkit::{MariaDb, Postgres};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, TxOpts};
use tokio_postgres::NoTls;

const STOCK: &str = "CREATE TABLE stock (id BIGINT PRIMARY KEY, amount BIGINT, fence BIGINT, version BIGINT)";
const FIVE: &str = "INSERT INTO stock VALUES (1, 5, 0, 0)";

#[tokio::test(flavor = "multi_thread")]
async fn postgres_keeps_a_stale_token_out() {
    let server = Postgres::start();
    let (mut client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("{STOCK}; {FIVE}; {}", sql::FENCES)).await.unwrap();

    for (token, accepted) in [(7i64, 1), (8, 1), (8, 1), (7, 0)] {
        let transaction = client.transaction().await.unwrap();
        assert_eq!(transaction.execute(sql::RAISE, &[&"stock", &token]).await.unwrap(), accepted, "{token}");
        transaction.commit().await.unwrap();
    }
    let highest: i64 = client.query_one(sql::HIGHEST, &[&"stock"]).await.unwrap().get(0);
    assert_eq!(highest, 8);

    let (first, second, id) = (1i64, 2i64, 1i64);
    for token in [first, second] {
        let row = client.query_one(sql::ROW_READ, &[&token, &id]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), 5);
    }
    assert_eq!(client.execute(sql::ROW_WRITE, &[&4i64, &first, &id]).await.unwrap(), 0);
    assert_eq!(client.query(sql::ROW_READ, &[&first, &id]).await.unwrap().len(), 0);
    assert_eq!(client.execute(sql::ROW_WRITE, &[&4i64, &second, &id]).await.unwrap(), 1);
    for (version, written) in [(0i64, 1), (0, 0), (1, 1)] {
        assert_eq!(client.execute(sql::VERSIONED_WRITE, &[&3i64, &id, &version]).await.unwrap(), written);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_keeps_a_stale_token_out() {
    let server = MariaDb::start();
    let mut conn = Conn::new(Opts::from_url(&server.url()).unwrap()).await.unwrap();
    for statement in [STOCK, FIVE, sql::FENCES] {
        conn.query_drop(statement).await.unwrap();
    }
    for (token, accepted) in [(7u64, true), (8, true), (8, true), (7, false)] {
        let mut transaction = conn.start_transaction(TxOpts::default()).await.unwrap();
        transaction.exec_drop(sql::MYSQL_RAISE, ("stock", token)).await.unwrap();
        let highest: Option<u64> = transaction.exec_first(sql::MYSQL_HIGHEST, ("stock",)).await.unwrap();
        assert_eq!(highest == Some(token), accepted, "{token}: {highest:?}");
        transaction.rollback().await.unwrap();
        if accepted {
            conn.exec_drop(sql::MYSQL_RAISE, ("stock", token)).await.unwrap();
        }
    }
}

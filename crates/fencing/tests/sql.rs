//! The SQL statements, on SQLite: the table of fences, the fence column, and the versioned write.

use lockkeeper_core::Token;
use lockkeeper_fencing::optimistic::{Optimistic, Try};
use lockkeeper_fencing::{Refused, sql};
use rusqlite::Connection;

fn stock() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    let table = "CREATE TABLE stock (id INTEGER PRIMARY KEY, amount INTEGER, fence INTEGER, version INTEGER);
                 INSERT INTO stock VALUES (1, 5, 0, 0)";
    connection.execute_batch(table).unwrap();
    connection
}

fn amount(connection: &Connection) -> i64 {
    connection.query_row("SELECT amount FROM stock", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_refused_access_changes_nothing() {
    let mut connection = stock();
    let sell = |t: &rusqlite::Transaction<'_>| t.execute("UPDATE stock SET amount = amount - 1", []);
    sql::access(&mut connection, "stock", Token(7), sell).unwrap();
    sql::access(&mut connection, "stock", Token(8), |_| Ok(())).unwrap();
    let error = sql::access(&mut connection, "stock", Token(7), sell).unwrap_err();
    assert!(matches!(error, Refused::Stale(stale) if stale.highest == Token(8)), "{error}");
    sql::access(&mut connection, "another", Token(1), sell).unwrap();
    assert_eq!(amount(&connection), 3);
}

#[test]
fn a_failed_access_leaves_the_fence_where_it_was() {
    let mut connection = stock();
    let error =
        sql::access(&mut connection, "stock", Token(9), |t| t.execute("no statement", [])).unwrap_err();
    assert!(!error.is_stale());
    sql::access(&mut connection, "stock", Token(8), |_| Ok(())).unwrap();
}

#[test]
fn a_fence_column_is_raised_by_the_read() {
    let connection = stock();
    let read = |token: i64| connection.query_row(sql::ROW_READ, (token, 1), |row| row.get::<_, i64>(0));
    let write = |token: i64, amount: i64| connection.execute(sql::ROW_WRITE, (amount, token, 1)).unwrap();
    assert_eq!(read(1).unwrap(), 5);
    assert_eq!(read(2).unwrap(), 5);
    assert_eq!(write(1, 4), 0);
    assert!(read(1).is_err());
    assert_eq!(write(2, 4), 1);
    assert_eq!(amount(&connection), 4);
}

#[tokio::test]
async fn an_optimistic_write_reads_again_when_somebody_was_quicker() {
    let connection = stock();
    let mut tries = 0;
    let sold = Optimistic::new().run(async || {
        tries += 1;
        let read = "SELECT amount, version FROM stock WHERE id = 1";
        let (amount, version): (i64, i64) =
            connection.query_row(read, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if tries == 1 {
            connection.execute("UPDATE stock SET amount = 3, version = version + 1", [])?;
        }
        let written = connection.execute(sql::VERSIONED_WRITE, (amount - 1, 1, version))?;
        Ok::<_, rusqlite::Error>(if written == 1 { Try::Done(amount - 1) } else { Try::Changed })
    });
    assert_eq!(sold.await.unwrap(), Some(2));
    assert_eq!((tries, amount(&connection)), (2, 2));
}

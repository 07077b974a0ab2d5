//! The scripts on a real Redis.

use lockkeeper_core::Token;
use lockkeeper_fencing::{Refused, redis as fenced};
use lockkeeper_testkit::Redis;

#[test]
fn a_late_holder_can_neither_read_nor_write() {
    let server = Redis::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    assert_eq!(fenced::get::<String>(&mut connection, "stock", Token(9)).unwrap(), None);
    fenced::set(&mut connection, "stock", Token(9), "5").unwrap();
    // Ten is larger than nine, as a number and not as a text; and neighbours beyond 2^53 differ.
    let large = Token((1 << 53) + 1);
    assert_eq!(fenced::get::<u64>(&mut connection, "stock", Token(10)).unwrap(), Some(5));
    assert_eq!(fenced::get::<u64>(&mut connection, "stock", large).unwrap(), Some(5));
    for late in [Token(9), Token(10), Token(1 << 53)] {
        let error = fenced::set(&mut connection, "stock", late, "6").unwrap_err();
        assert!(matches!(error, Refused::Stale(stale) if stale.highest == large), "{error}");
        assert!(fenced::get::<u64>(&mut connection, "stock", late).unwrap_err().is_stale());
    }
    fenced::set(&mut connection, "stock", large, "4").unwrap();
    assert_eq!(fenced::get::<u64>(&mut connection, "stock", large).unwrap(), Some(4));
}

//! The tables' statements are the ones that are printed for people who make them by hand.

mod common;

use common::File;
use std::time::Duration;

#[tokio::test]
async fn tables_made_by_hand_are_used() {
    for style in lockkeeper_sqlite::STYLES {
        let file = File::new(style.style);
        file.sql().execute_batch(lockkeeper_sqlite::schema(style.style).unwrap()).unwrap();
        let keeper = file.keeper(Duration::from_secs(2)).await;
        keeper.mutex("job").lock().await.unwrap().release().await.unwrap();
    }
}

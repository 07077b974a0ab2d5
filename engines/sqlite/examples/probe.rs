//! probe
use lockkeeper_core::{Keeper,address::Address};
use std::time::*;
#[tokio::main(flavor="current_thread")]
async fn main(){ let d=tempfile::tempdir().unwrap(); let url=format!("sqlite:{}/x.db?style={}",d.path().display(), std::env::args().nth(1).unwrap_or("queue".into()));
 let k=Keeper::builder().build(lockkeeper_sqlite::connect(Address::parse(&url).unwrap(),Duration::from_secs(10)).await.unwrap()).unwrap();
 let s=Instant::now(); for _ in 0..20000 { let g=k.mutex("a").lock().await.unwrap(); g.release().await.unwrap(); } println!("{:?} a pair", s.elapsed()/20000); }

//! x
#[tokio::main]
async fn main() {
    let server = lockkeeper_testkit::Etcd::start();
    let t = std::time::Instant::now();
    let keeper = lockkeeper::connect(server.url()).await;
    println!("{:?} {:?}", keeper, t.elapsed());
}

//! From a URL to a keeper, and what is said when the URL is wrong.

use lockkeeper::{Connect, Error, Keeper, State};
use lockkeeper_core::engine::Memory;
use std::time::Duration;

async fn refused(url: &str) -> String {
    match lockkeeper::connect(url).await {
        Err(Error::Invalid(text)) => text,
        other => panic!("{url}: {other:?}"),
    }
}

#[tokio::test]
async fn an_unknown_scheme_lists_the_known_ones() {
    let text = refused("mongo://h").await;
    assert!(text.contains("'mongo:'") && text.contains("memory") && text.contains("file"), "{text}");
}

#[tokio::test]
async fn what_is_wrong_with_a_url_is_said() {
    assert!(refused("nothing").await.contains("SCHEME"));
    assert!(refused("memory:?ttl=5").await.contains("bad duration"));
    assert!(refused("memory:?ttl=1ms").await.contains("too short"));
    assert!(refused("memory:?ttl=9d").await.contains("too long"));
    assert!(refused("memory:?namespace=a//b").await.contains("bad namespace"));
    assert!(refused("memory:?colour=red").await.contains("no parameter 'colour'"));
}

#[tokio::test]
async fn settings_in_code_win_over_the_url() {
    let keeper = Connect::to("memory:?ttl=3s").ttl(Duration::from_secs(4)).connect().await.unwrap();
    assert_eq!(keeper.ttl(), Duration::from_secs(4));
    assert_eq!(lockkeeper::connect("memory:?ttl=3s").await.unwrap().ttl(), Duration::from_secs(3));
}

#[tokio::test]
async fn namespaces_keep_applications_apart() {
    let shop = lockkeeper::connect("memory:apart?namespace=shop").await.unwrap();
    let bank = lockkeeper::connect("memory:apart?namespace=bank").await.unwrap();
    let bare = lockkeeper::connect("memory:apart?namespace=").await.unwrap();
    let guard = shop.mutex("m").lock().await.unwrap();
    assert!(bank.mutex("m").try_lock().await.unwrap().is_some());
    assert!(bare.mutex("shop/m").try_lock().await.unwrap().is_none(), "the bare name is the full one");
    assert_eq!(bare.inspect("shop/").await.unwrap()[0].name, "shop/m");
    assert_eq!(shop.inspect("").await.unwrap()[0].name, "m");
    drop(guard);
}

/// A user's own test of what happens on loss, on tokio's paused clock: no real time passes.
#[tokio::test(start_paused = true)]
async fn loss_can_be_tested_on_a_paused_clock() {
    let locks = Memory::on_tokio_clock();
    let keeper = Keeper::builder().build(locks.connect()).unwrap();
    let guard = keeper.mutex("job").lock().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(guard.state(), State::Held, "renewed for an hour");
    locks.cut(true);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(guard.state(), State::Uncertain);
    let work = guard.protect(tokio::time::sleep(Duration::from_secs(3600))).await;
    assert!(matches!(work, Err(Error::Lost { .. })));
}

fn sends<T: Send>(_: T) {}

#[test]
fn handles_and_futures_can_be_sent_to_other_threads() {
    fn both<T: Send + Sync + 'static>() {}
    both::<Keeper>();
    both::<lockkeeper::Guard>();
    both::<lockkeeper::Mutex>();
    both::<lockkeeper::RwLock>();
    both::<lockkeeper::Semaphore>();
    both::<lockkeeper::MultiLock>();
    both::<lockkeeper::Owner>();
    both::<lockkeeper::Error>();
    both::<lockkeeper::blocking::Keeper>();
    #[allow(unreachable_code, clippy::diverging_sub_expression)]
    fn futures(keeper: Keeper, guard: lockkeeper::Guard) {
        sends(keeper.mutex("m").lock());
        sends(keeper.all(["m"]).lock());
        sends(guard.lost());
        sends(guard.release());
    }
    let _ = futures;
}

#[tokio::test]
async fn a_scheme_is_registered_once_and_listed_among_the_known_ones() {
    let open = |address: lockkeeper_core::engine::Address, _| async move {
        address.finish()?;
        Ok(lockkeeper_core::engine::Memory::engine())
    };
    lockkeeper::register("mine", open).unwrap();
    let keeper = lockkeeper::connect("mine:").await.unwrap();
    keeper.mutex("a").lock().await.unwrap().release().await.unwrap();
    assert!(lockkeeper::connect("mine:?colour=red").await.is_err());
    for taken in ["mine", "redis", "memory"] {
        assert!(lockkeeper::register(taken, open).unwrap_err().to_string().contains("is taken"), "{taken}");
    }
    for bad in ["", "Mine", "a b", "1st"] {
        assert!(lockkeeper::register(bad, open).unwrap_err().to_string().contains("bad scheme"), "{bad}");
    }
    let unknown = lockkeeper::connect("yours:").await.unwrap_err().to_string();
    assert!(unknown.contains("mine"), "{unknown}");
}

//! What a style does not offer: refused with what to do instead, and nothing is left behind.

use crate::bench::{Bench, is_free, soon_held};
use lockkeeper::{Error, Keeper};

pub(super) async fn what_a_style_lacks_is_refused_with_a_way_out(bench: Bench) {
    let (keeper, abilities) = (bench.keeper().await, bench.abilities());
    if !abilities.shared {
        refused(&keeper, keeper.rwlock("lacking").read().await.err()).await;
    }
    if !abilities.permits {
        refused(&keeper, keeper.semaphore("lacking", 2).acquire(1).await.err()).await;
    }
    if !abilities.ask {
        let guard = soon_held(keeper.mutex("lacking").lock()).await;
        let error = keeper.ask("lacking", &guard.claim(), std::time::Duration::ZERO).await.err();
        guard.release().await.expect("a release");
        refused(&keeper, error).await;
    }
    if abilities.shared && !abilities.downgrade {
        let writer = soon_held(keeper.rwlock("lacking").write()).await;
        let error = writer.downgrade().await.err();
        assert!(writer.token().is_ok(), "a refusal does not cost the hold");
        writer.release().await.expect("a release");
        refused(&keeper, error).await;
    }
}

async fn refused(keeper: &Keeper, error: Option<Error>) {
    let error = error.expect("the style says it cannot");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let (told, style) = (error.to_string(), keeper.abilities());
    assert!(told.contains(style.engine) && told.contains(style.style), "it names the style: {told}");
    is_free(keeper, "lacking").await;
}

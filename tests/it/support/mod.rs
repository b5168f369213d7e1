//! The world around the binary under test: a store, senders, targets, and eyes on all of them. Nothing here uses
//! Cerca's own code, so that a test cannot share a mistake with it.

mod api;
mod client;
mod load;
mod process;
mod server;
mod sign;
mod sink;
mod store;

use std::{future::Future, panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt as _;

pub use api::{Api, Asked, Said};
pub use client::{Reply, raw_exchange, stripe_body};
pub use load::Load;
pub use process::{Signal, is_stopped, resident_kib};
pub use server::{Server, Setup, cerca, clean};
pub use sign::{GITHUB_SECRET, STRIPE_SECRET, github, hmac_hex, now, stripe, stripe_at, stripe_signature};
pub use sink::{Answer, Asleep, Received, Sink};
pub use store::{Engine, TestStore};

/// Turns tests that take a store into one test for each engine: `on_both_stores!(a, b)` makes `a::sqlite`,
/// `a::postgres`, `b::sqlite`, `b::postgres`.
macro_rules! on_both_stores {
    ($($test:ident),+ $(,)?) => {$(
        mod $test {
            #[test]
            fn sqlite() {
                crate::support::run(crate::support::Engine::Sqlite, super::$test);
            }

            #[test]
            fn postgres() {
                crate::support::run(crate::support::Engine::Postgres, super::$test);
            }
        }
    )+};
}
pub(crate) use on_both_stores;

/// Runs one test on a store of its own, and removes the store however the test ends.
pub fn run<F, T>(engine: Engine, test: T)
where
    F: Future<Output = ()>,
    T: FnOnce(TestStore) -> F,
{
    let runtime = runtime();
    runtime.block_on(async {
        let Some(store) = TestStore::create(engine).await else {
            eprintln!("skipped: CERCA_TEST_POSTGRES is not set (tests/run sets it)");
            return;
        };
        let outcome = AssertUnwindSafe(test(store.clone())).catch_unwind().await;
        store.remove().await;
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

/// How long a test waits for what must come; no healthy machine needs so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(25);

/// Polls until the condition holds. Panics when that takes too long.
pub async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    // reqwest is built without a provider of its own; the first test of a process chooses one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

//! Workers that crash, stall or are slow.

use std::{path::PathBuf, time::Duration};

use crate::support::{Engine, Setup, Signal, TestStore, on_both_stores, run, wait_until};

on_both_stores!(
    another_process_takes_over_from_a_killed_one_when_the_lease_ends,
    a_handler_slower_than_its_lease_keeps_it,
);

/// L4, W7
async fn another_process_takes_over_from_a_killed_one_when_the_lease_ends(store: TestStore) {
    // The first try hangs longer than any test; the second, which finds the mark of the first, is quick.
    let setup = Setup::new(&store).exec(
        "slow",
        "echo try >>tries; [ $(wc -l <tries) -gt 1 ] || exec sleep 60",
        "",
    );
    let server = setup.start().await;
    server.stripe("evt_1").await;
    wait_until("the handler runs", async || tries(&store) == 1).await;
    server.kill();

    let server = setup.start().await;
    let event = server.wait_for("stripe", "evt_1", "done").await;
    assert_eq!(tries(&store), 2);
    assert_eq!(outcomes(&event), ["lost", "done"], "{event}");
}

/// D10
async fn a_handler_slower_than_its_lease_keeps_it(store: TestStore) {
    let server = Setup::new(&store)
        .lease("1s")
        .exec("slow", "echo try >>tries; sleep 4", "")
        .start()
        .await;
    server.stripe("evt_1").await;
    let event = server.wait_for("stripe", "evt_1", "done").await;
    assert_eq!(outcomes(&event), ["done"], "{event}");
    assert_eq!(tries(&store), 1);
}

/// G6, W4: the worker that slept through its lease comes back with an outcome that counts no more.
#[test]
fn a_worker_that_wakes_after_its_lease_cannot_settle() {
    run(Engine::Postgres, async |store: TestStore| {
        // The first try fails late, after the second has succeeded.
        let script = "echo try >>tries; [ $(wc -l <tries) -gt 1 ] && exit 0; \
                      while [ ! -e release ]; do sleep 0.05; done; exit 65";
        let setup = Setup::new(&store).exec("slow", script, "");
        let stalled = setup.start().await;
        stalled.stripe("evt_1").await;
        wait_until("the first worker is at it", async || tries(&store) == 1).await;
        stalled.signal(Signal::Stop);

        let other = setup.start().await;
        let event = other.wait_for("stripe", "evt_1", "done").await;
        assert_eq!(outcomes(&event), ["lost", "done"], "{event}");

        std::fs::write(store.folder().join("release"), "").unwrap();
        stalled.signal(Signal::Continue);
        // Its own API answers, so it is awake; then it stops, which writes what it has to say.
        wait_until("the late worker is awake", async || {
            stalled.get("/api/v1/events").await.status == 200
        })
        .await;
        // Its outcome, or its lost claim, is counted.
        wait_until("the late outcome is counted", async || {
            stale(&stalled.get("/metrics").await.text()) > 0.0
        })
        .await;
        tokio::time::timeout(Duration::from_secs(30), stalled.stop())
            .await
            .unwrap();
        let event = other.event("stripe", "evt_1").await;
        assert_eq!(event["status"], "done", "{event}");
        assert_eq!(outcomes(&event), ["lost", "done"], "{event}");
        assert_eq!(tries(&store), 2);
    });
}

/// Work that one replica has stored is done by another: roles may be apart.
#[test]
fn a_worker_does_what_an_ingest_only_process_has_stored() {
    run(Engine::Postgres, async |store: TestStore| {
        let setup = Setup::new(&store).exec("mark", "echo try >>tries", "");
        let ingest = setup.clone().role("ingest").start().await;
        // Where webhooks come in is the other's address: a worker takes none, and must not hold the port.
        let taken: &'static str = ingest.public().to_string().leak();
        let worker = setup
            .clone()
            .environment("CERCA_SERVER__LISTEN", taken)
            .admin_token("a token")
            .role("worker");
        let worker = worker.start().await;
        assert!(worker.log().contains("\"public\":\"\""), "{}", worker.log());
        let stranger = reqwest::Client::builder().no_proxy().build().unwrap();
        let status = async |path: &str| {
            let url = format!("http://{}{path}", worker.admin());
            stranger.get(url).send().await.unwrap().status().as_u16()
        };
        assert_eq!((status("/healthz").await, status("/readyz").await), (200, 200));
        assert_eq!((status("/metrics").await, status("/webhooks/stripe").await), (401, 401));
        ingest.stripe("evt_1").await;
        ingest.wait_for("stripe", "evt_1", "done").await;
        assert_eq!(tries(&store), 1);
    });
}

/// Settles and claims that came too late, as the metrics count them.
fn stale(metrics: &str) -> f64 {
    metrics
        .lines()
        .filter(|line| line.starts_with("cerca_stale_settles_total") || line.starts_with("cerca_claims_stale_total"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// How often the handler of this test has begun.
fn tries(store: &TestStore) -> usize {
    let path: PathBuf = store.folder().join("tries");
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

fn outcomes(event: &serde_json::Value) -> Vec<&str> {
    let attempts = event["attempts"].as_array().unwrap();
    attempts
        .iter()
        .map(|attempt| attempt["outcome"].as_str().unwrap())
        .collect()
}

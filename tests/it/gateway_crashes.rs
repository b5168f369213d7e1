//! The gateway when its process is killed, at every point between the reservation of a key and the record of the answer.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::sync::Notify;

use crate::{
    gateway::{Reply, gateway, keyed, orders, try_call},
    support::{Answer, Engine, Server, Signal, Sink, TestStore, is_stopped, on_both_stores, wait_until},
};

on_both_stores!(
    killed_while_it_waits_a_request_is_never_sent_again,
    killed_before_it_was_sent_a_request_runs_again,
    killed_before_the_record_the_upstream_is_asked,
    killed_at_any_moment_no_effect_happens_twice,
);

/// The reply of a request whose key nobody holds for a moment: the completer takes keys too.
async fn settled(server: &Server, key: &str) -> Reply {
    let mut last = None;
    wait_until("nobody holds the key", async || {
        let reply = keyed(server, key, "{}").await;
        let is_held = reply.status == 409 && reply.code() == "request_in_progress";
        last = Some(reply);
        !is_held
    })
    .await;
    last.unwrap()
}

/// Ends every lease, as time would.
async fn end_leases(store: &TestStore) {
    store
        .execute("update api_idempotency_keys set locked_until = created_at")
        .await;
}

/// Starts a request, and kills the server once the upstream has it.
async fn kill_while_waiting(server: Server, upstream: &Sink, key: &str) {
    let before = upstream.count();
    let headers = [("idempotency-key", key)];
    let (cut, ()) = tokio::join!(try_call(&server, &headers, "{}"), async {
        wait_until("the upstream has the request", async || upstream.count() > before).await;
        server.signal(Signal::Kill);
    });
    assert!(cut.is_err());
}

async fn killed_while_it_waits_a_request_is_never_sent_again(store: TestStore) {
    let upstream = Sink::with(|_, _| Answer::status(201).after(Duration::from_secs(60))).await;
    let setup = gateway(&store, &upstream.url(), "");
    kill_while_waiting(setup.start().await, &upstream, "k").await;

    let server = setup.start().await;
    let reply = keyed(&server, "k", "{}").await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (409, "request_in_progress"),
        "its lease holds"
    );
    end_leases(&store).await;
    let reply = settled(&server, "k").await;
    assert_eq!((reply.status, reply.code().as_str()), (409, "outcome_unknown"));
    assert_eq!(keyed(&server, "k", "{\"a\":1}").await.status, 422);
    // Nobody can be asked, and the completer writes that down.
    wait_until("the key is given up", async || {
        store
            .number("select count(*) from api_idempotency_keys where status = 'failed'")
            .await
            == 1
    })
    .await;
    assert_eq!(keyed(&server, "k", "{}").await.code(), "outcome_unknown");
    assert_eq!(upstream.count(), 1);
}

async fn killed_before_it_was_sent_a_request_runs_again(store: TestStore) {
    let upstream = orders().await;
    let setup = gateway(&store, &upstream.url(), "");
    let server = setup.start().await;
    // The step after the reservation, without which nothing is sent, does not end.
    let is_step = "new.recovery_point = 'sent' and old.recovery_point = 'reserved'";
    let (stick, free) = match store.engine {
        Engine::Postgres => (
            format!(
                "create function stick() returns trigger language plpgsql as
                 $$ begin perform pg_sleep(600); return new; end $$;
                 create trigger stick before update on api_idempotency_keys
                 for each row when ({is_step}) execute function stick()"
            ),
            "drop trigger stick on api_idempotency_keys",
        ),
        Engine::Sqlite => (
            format!(
                "create trigger stick before update on api_idempotency_keys when {is_step} begin
                 select count(*) from sqlite_schema a, sqlite_schema b, sqlite_schema c, sqlite_schema d,
                                      sqlite_schema e, sqlite_schema f, sqlite_schema g, sqlite_schema h; end"
            ),
            "drop trigger stick",
        ),
    };
    store.execute(&stick).await;
    let headers = [("idempotency-key", "k")];
    let (cut, ()) = tokio::join!(try_call(&server, &headers, "{}"), async {
        let reserved = "select count(*) from api_idempotency_keys where recovery_point = 'reserved'";
        wait_until("the key is reserved", async || store.number(reserved).await == 1).await;
        server.signal(Signal::Kill);
    });
    assert!(cut.is_err());
    assert_eq!(upstream.count(), 0, "it was not sent");
    if store.engine == Engine::Postgres {
        // Its session still sleeps, and would hold the trigger.
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                   where datname = current_database() and wait_event = 'PgSleep'";
        store.number(end).await;
    }
    store.execute(free).await;

    let server = setup.start().await;
    assert_eq!(keyed(&server, "k", "{}").await.code(), "request_in_progress");
    end_leases(&store).await;
    let reply = keyed(&server, "k", "{}").await;
    assert_eq!((reply.status, reply.is_replay()), (201, false));
    assert!(keyed(&server, "k", "{}").await.is_replay());
    assert_eq!(upstream.count(), 1);
}

async fn killed_before_the_record_the_upstream_is_asked(store: TestStore) {
    let stopped = Arc::new(Notify::new());
    let when = Arc::clone(&stopped);
    let upstream = Sink::with(move |_, n| {
        if n < 2 {
            Answer::status(201).when(&when)
        } else {
            Answer::status(201)
        }
    })
    .await;
    // It knows the first key, and has never heard of the second.
    let probe = Sink::with(|request, _| match request.header("idempotency-key") {
        "known" => Answer::status(200).header("Location", "/orders/9"),
        _ => Answer::status(404),
    })
    .await;
    let more = format!(
        "probe = \"{}/{{key}}\"\nprobe_authorization = \"Bearer probe\"",
        probe.url()
    );
    let setup = gateway(&store, &upstream.url(), &more);
    for key in ["known", "lost"] {
        let server = setup.start().await;
        let before = upstream.count();
        let headers = [("idempotency-key", key)];
        let (cut, ()) = tokio::join!(try_call(&server, &headers, "{}"), async {
            wait_until("the upstream has the request", async || upstream.count() > before).await;
            // It stands still while the answer comes, and dies before it can write it down.
            let answered = upstream.answered();
            server.signal(Signal::Stop);
            wait_until("it stands still", async || is_stopped(server.pid())).await;
            stopped.notify_one();
            wait_until("the upstream has answered", async || upstream.answered() > answered).await;
            server.signal(Signal::Kill);
        });
        assert!(cut.is_err());
    }
    end_leases(&store).await;
    let server = setup.start().await;
    let known = settled(&server, "known").await;
    assert_eq!(
        (known.status, known.is_replay(), known.header("location")),
        (200, true, "/orders/9")
    );
    assert_eq!(upstream.count(), 2, "what happened is not done again");
    let mut lost = settled(&server, "lost").await;
    wait_until("what never happened runs", async || {
        if lost.status != 201 {
            lost = settled(&server, "lost").await;
        }
        lost.status == 201
    })
    .await;
    assert_eq!(upstream.count(), 3);
    assert!(
        probe
            .received()
            .iter()
            .all(|asked| asked.header("authorization") == "Bearer probe")
    );
}

async fn killed_at_any_moment_no_effect_happens_twice(store: TestStore) {
    let upstream = Sink::with(|_, n| Answer::status(201).after(Duration::from_millis(n as u64 * 7 % 40))).await;
    let setup = gateway(&store, &upstream.url(), "");
    let mut acknowledged = HashMap::new();
    for round in 0..3 {
        let server = setup.start().await;
        let before = upstream.count();
        let keys: Vec<String> = (0..60).map(|n| format!("{round}-{n}")).collect();
        let (replies, ()) = tokio::join!(
            join_all(keys.iter().map(|key| async {
                let headers = [("idempotency-key", key.as_str())];
                (key.clone(), try_call(&server, &headers, "{}").await)
            })),
            async {
                wait_until("some are under way", async || {
                    upstream.count() >= before + 5 + round * 15
                })
                .await;
                server.signal(Signal::Kill);
            }
        );
        for (key, reply) in replies {
            if let Ok(reply) = reply {
                acknowledged.insert(key, reply.status);
            }
        }
    }
    end_leases(&store).await;
    let server = setup.start().await;
    for round in 0..3 {
        for n in 0..60 {
            let key = format!("{round}-{n}");
            let reply = settled(&server, &key).await;
            match (reply.status, acknowledged.get(&key)) {
                (201, Some(201)) => assert!(reply.is_replay(), "{key} was answered before"),
                (201, None) => {}
                (409, None) => assert_eq!(reply.code(), "outcome_unknown"),
                other => panic!("{key}: {other:?}"),
            }
        }
    }
    let mut calls: HashMap<String, usize> = HashMap::new();
    for received in upstream.received() {
        *calls.entry(received.header("idempotency-key").to_owned()).or_default() += 1;
    }
    let twice: Vec<_> = calls.iter().filter(|(_, calls)| **calls > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

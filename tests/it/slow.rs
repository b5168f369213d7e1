//! Statements that are slow, endless or wrong.

use crate::support::{Engine, Setup, Sink, TestStore, cerca, on_both_stores, run, stripe, stripe_body, wait_until};

on_both_stores!(
    a_slow_statement_holds_up_neither_others_nor_the_end,
    a_statement_that_cannot_work_does_not_start,
);

fn endless(engine: Engine) -> &'static str {
    match engine {
        Engine::Postgres => "select pg_sleep(60)",
        Engine::Sqlite => "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n",
    }
}

async fn a_slow_statement_holds_up_neither_others_nor_the_end(store: TestStore) {
    let sink = Sink::start().await;
    let stuck = format!(
        "[[handler]]\nname = \"stuck\"\nevents = [\"*\"]\nkind = \"sql\"\ntimeout = \"60s\"\nstatement = \"{}\"\n",
        endless(store.engine)
    );
    let mut setup = Setup::new(&store).server("shutdown_timeout = \"8s\"").with(&stuck);
    if store.engine == Engine::Postgres {
        setup = setup.sql("effects");
    }
    let server = setup.http("forward", &sink.url()).start().await;
    server.create_effects().await;
    let mut late = 0;
    for n in 0..6 {
        let body = stripe_body(&format!("evt_{n}"));
        let reply = server.send("stripe", stripe(&body), body).await;
        // Where each connection is its own, nobody notices anything; SQLite's only writer may be held for as long as a
        // webhook waits for its commit.
        let busy = store.engine == Engine::Sqlite && reply.status == 503;
        assert!(reply.status == 200 || busy, "{}", reply.text());
        late += i64::from(busy);
    }
    if store.engine == Engine::Postgres {
        wait_until("the others have all", async || {
            sink.count() == 6 && store.number("select count(*) from effects").await == 6
        })
        .await;
    }
    // A shutdown that its deadline cut off is no success.
    assert!(server.stop().await.success());
    // Cut off, and due again; but what was stored after its sender had been told to come again may have met a worker that
    // had gone, and is due when its lease ends.
    let left = "select count(*) from deliveries where handler = 'stuck' and state = 'claimed'";
    let left = store.number(left).await;
    assert_eq!(left, 0, "{left} are claimed, {late} came late");
}

async fn a_statement_that_cannot_work_does_not_start(store: TestStore) {
    let setup = |statement: &str| {
        Setup::new(&store).with(&format!(
            "[[handler]]\nname = \"pay\"\nevents = [\"*\"]\nkind = \"sql\"\nstatement = \"{statement}\"\n\
             params = [\"body:/id\"]\n"
        ))
    };
    // A missing table is a warning: the store does not hold up the events for it.
    let server = setup("insert into nowhere values ($1)").start().await;
    assert!(server.log().contains("nowhere"), "{}", server.log());
    assert!(server.stop().await.success());
    for (statement, named) in [
        ("insert into nowhere values ($1", "statement"),
        ("select $1; select 2", "statement"),
        ("select $1, $2", "2 parameters"),
        ("commit", "control"),
    ] {
        let setup = setup(statement);
        let mut server = setup.spawn();
        assert!(!server.wait_for_exit().await.success(), "{statement}");
        let log = server.log();
        assert!(
            log.contains("pay") && log.contains("statement") && log.contains(named),
            "{statement}: {log}"
        );

        let config = setup.write_config();
        let output = cerca()
            .args(["check", "--config", config.to_str().unwrap()])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{told}");
        assert!(told.contains("pay") && told.contains(named), "{statement}: {told}");
    }
}

/// What a target says may hold the body of the event: it is for the history, not for the log.
#[test]
fn the_log_of_a_dead_delivery_does_not_hold_what_the_target_said() {
    run(Engine::Sqlite, async |store: TestStore| {
        let setup = Setup::new(&store).exec("say", "echo a-card-number >&2; exit 1", "retry = { attempts = 1 }");
        let server = setup.start().await;
        server.stripe("evt_1").await;
        let event = server.wait_for("stripe", "evt_1", "failed").await;
        assert!(event.to_string().contains("a-card-number"), "{event}");
        wait_until("the log has it", async || server.log().contains("a delivery is dead")).await;
        assert!(!server.log().contains("a-card-number"), "{}", server.log());
    });
}

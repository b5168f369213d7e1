//! Effects in the store's own database: exactly once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use cerca::{
    domain::{Claim, Outcome},
    store::{Applied, Effect, Lease, Prepared, SqlValue, Work},
};
use futures_util::future::join_all;
use jiff::Timestamp;

use crate::support::{Db, event};

on_both!(
    an_effect_and_its_settle_are_one,
    a_stale_claim_has_no_effect,
    a_failing_statement_changes_nothing_and_spares_the_others,
    a_released_or_settled_delivery_is_not_applied,
    values_arrive_as_the_column_wants_them,
    a_runaway_statement_is_stopped_at_its_limit,
    slow_effects_let_the_rest_of_the_store_go_on,
    the_claim_of_a_running_effect_is_renewed,
    an_effect_that_nobody_waits_for_is_ended,
    a_closed_store_does_not_wait_for_a_slow_effect,
    statements_are_looked_at_before_they_run,
    errors_say_what_the_database_says,
    control_of_the_transaction_is_refused,
);

const INSERT: &str = "INSERT INTO payments (id, cents) VALUES ($1, $2)";

pub(crate) async fn prepared(mut ids: Vec<String>, db: &Db) -> Vec<Claim> {
    db.sql("CREATE TABLE payments (id text NOT NULL, cents bigint CHECK (cents >= 0))")
        .await;
    ids.dedup();
    db.store
        .accept(ids.iter().map(|id| event(id, "sql")).collect())
        .await
        .unwrap();
    db.claim("sql", 1000).await
}

pub(crate) fn effect(claim: &Claim, statement: &str, params: Vec<SqlValue>) -> Effect {
    Effect {
        claim: claim.clone(),
        work: Work::Statement {
            sql: Arc::from(statement),
            params,
        },
        started_at: Timestamp::now(),
        limit: Duration::from_secs(10),
    }
}

fn within(effect: Effect, millis: u64) -> Effect {
    Effect {
        limit: Duration::from_millis(millis),
        ..effect
    }
}

fn pay(claim: &Claim, cents: i64) -> Effect {
    let id = claim.event.provider_event_id.clone();
    effect(claim, INSERT, vec![SqlValue::Text(id), SqlValue::Int(cents)])
}

async fn an_effect_and_its_settle_are_one(db: Db) {
    let claims = prepared((0..100).map(|n| format!("e{n}")).collect(), &db).await;
    // Each is sent twice at once; one of the two must win.
    let twice = claims.iter().chain(&claims).map(|c| db.store.apply(pay(c, 5)));
    let applied: Vec<_> = join_all(twice).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(applied.iter().filter(|a| **a == Applied::Done).count(), 100);
    assert_eq!(applied.iter().filter(|a| **a == Applied::Stale).count(), 100);
    assert_eq!(db.number("SELECT count(*) FROM payments").await, 100);
    assert_eq!(db.number("SELECT count(DISTINCT id) FROM payments").await, 100);
    assert_eq!(
        db.number("SELECT count(*) FROM attempts WHERE outcome = 'done'").await,
        100
    );
    assert_eq!(db.number("SELECT count(*) FROM deliveries").await, 0);
}

async fn a_stale_claim_has_no_effect(db: Db) {
    let slow = prepared(vec!["e1".to_owned()], &db).await.remove(0);
    db.expire().await;
    db.store.sweep(Vec::new()).await.unwrap();
    let fast = db.claim("sql", 1).await.remove(0);
    assert_eq!(db.store.apply(pay(&slow, 1)).await.unwrap(), Applied::Stale);
    assert_eq!(db.store.apply(pay(&fast, 2)).await.unwrap(), Applied::Done);
    assert_eq!(db.store.apply(pay(&slow, 1)).await.unwrap(), Applied::Stale);
    assert_eq!(db.number("SELECT cents FROM payments").await, 2);
}

async fn a_failing_statement_changes_nothing_and_spares_the_others(db: Db) {
    let claims = prepared((0..80).map(|n| format!("e{n}")).collect(), &db).await;
    // After rounds in which all went well, and after others.
    for (round, claims) in claims.chunks(20).enumerate() {
        let fails = |n: usize| round % 2 == 1 && n.is_multiple_of(4);
        let cents = |n: usize| if fails(n) { -1 } else { 1 };
        let all = claims.iter().enumerate().map(|(n, c)| db.store.apply(pay(c, cents(n))));
        for (n, applied) in join_all(all).await.into_iter().enumerate() {
            match applied.unwrap() {
                Applied::Failed(why) => assert!(fails(n) && !why.is_empty(), "{n}: {why}"),
                other => assert!(!fails(n) && other == Applied::Done, "{n}: {other:?}"),
            }
        }
    }
    assert_eq!(db.number("SELECT count(*) FROM payments").await, 70);
    assert_eq!(db.number("SELECT count(DISTINCT id) FROM payments").await, 70);
    assert_eq!(
        db.number("SELECT count(*) FROM deliveries WHERE state = 'claimed'")
            .await,
        10
    );
    // The claim still holds, so the worker can settle it.
    let failed = &claims[20];
    db.settle(
        failed,
        Outcome::Dead {
            error: "refused".to_owned(),
        },
    )
    .await;
    assert_eq!(db.row(&failed.event.provider_event_id).await.status.as_str(), "failed");
}

async fn a_released_or_settled_delivery_is_not_applied(db: Db) {
    let claims = prepared(vec!["e1".to_owned(), "e2".to_owned()], &db).await;
    db.settle(&claims[0], Outcome::Released).await;
    db.settle(&claims[1], Outcome::Done).await;
    for claim in &claims {
        assert_eq!(db.store.apply(pay(claim, 1)).await.unwrap(), Applied::Stale);
    }
    assert_eq!(db.number("SELECT count(*) FROM payments").await, 0);
}

async fn values_arrive_as_the_column_wants_them(db: Db) {
    let claims = prepared((0..4).map(|n| format!("e{n}")).collect(), &db).await;
    db.sql("CREATE TABLE kinds (a bigint, b text, c double precision, d integer)")
        .await;
    let statement = "INSERT INTO kinds (a, b, c, d) VALUES ($1, $2, $3, $4)";
    let text = |t: &str| SqlValue::Text(t.to_owned());
    let rows = [
        vec![
            SqlValue::Int(1),
            text("x"),
            SqlValue::Number("1.5".into()),
            SqlValue::Int(2),
        ],
        vec![text("42"), SqlValue::Int(7), SqlValue::Int(3), text("9")],
        vec![SqlValue::Null, SqlValue::Null, SqlValue::Null, SqlValue::Null],
    ];
    for (claim, params) in claims.iter().zip(rows) {
        assert_eq!(
            db.store.apply(effect(claim, statement, params)).await.unwrap(),
            Applied::Done
        );
    }
    assert_eq!(db.number("SELECT a FROM kinds WHERE b = '7'").await, 42);
    assert_eq!(
        db.number("SELECT count(*) FROM kinds WHERE a IS NULL AND b IS NULL")
            .await,
        1
    );
    if db.is_postgres() {
        db.sql("CREATE TABLE odd (a bytea, b jsonb, c boolean, d numeric, e timestamptz)")
            .await;
        let statement = "INSERT INTO odd VALUES ($1, $2, $3, $4, $5)";
        let params = vec![
            SqlValue::Bytes(Bytes::from_static(b"\0\xff")),
            text(r#"{"a":1}"#),
            SqlValue::Bool(true),
            text("12.34"),
            text("2026-01-02T03:04:05Z"),
        ];
        assert_eq!(
            db.store.apply(effect(&claims[3], statement, params)).await.unwrap(),
            Applied::Done
        );
        assert_eq!(
            db.number("SELECT count(*) FROM odd WHERE d = 12.34 AND b->>'a' = '1' AND c")
                .await,
            1
        );
    }
}

async fn control_of_the_transaction_is_refused(db: Db) {
    let claims = prepared(vec!["e1".to_owned(), "e2".to_owned()], &db).await;
    for statement in [
        "COMMIT",
        "/* x */ rollback",
        "SELECT 1; COMMIT",
        "",
        "INSERT INTO payments VALUES ('a', 1); COMMIT",
    ] {
        let applied = db.store.apply(effect(&claims[0], statement, Vec::new())).await.unwrap();
        assert!(matches!(applied, Applied::Failed(_)), "{statement}: {applied:?}");
    }
    assert!(matches!(
        db.store
            .apply(effect(&claims[0], "INSERT INTO nowhere VALUES (1)", Vec::new()))
            .await
            .unwrap(),
        Applied::Failed(_)
    ));
    assert_eq!(db.number("SELECT count(*) FROM payments").await, 0);
    assert_eq!(db.store.apply(pay(&claims[0], 1)).await.unwrap(), Applied::Done);
}

const ENDLESS: &str = "INSERT INTO payments (id, cents)
                       WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                       SELECT 'x', count(*) FROM n";

/// What would wait for a statement of a minute waits longer than this.
const HANG: Duration = Duration::from_secs(30);

fn endless(claim: &Claim, millis: u64) -> Effect {
    within(effect(claim, ENDLESS, Vec::new()), millis)
}

async fn a_runaway_statement_is_stopped_at_its_limit(db: Db) {
    let claims = prepared((0..3).map(|n| format!("e{n}")).collect(), &db).await;
    let (a, b, c, d) = futures_util::join!(
        db.store.apply(pay(&claims[0], 1)),
        db.store.apply(endless(&claims[1], 700)),
        db.store.apply(pay(&claims[2], 1)),
        db.store.accept(vec![event("beside", "")]),
    );
    assert_eq!(a.unwrap(), Applied::Done);
    let late = Applied::Failed("the statement took longer than 700ms".to_owned());
    assert_eq!(b.unwrap(), late);
    assert_eq!(c.unwrap(), Applied::Done);
    d.unwrap();
    assert_eq!(db.number("SELECT count(*) FROM payments").await, 2);
    let claimed = "SELECT count(*) FROM deliveries WHERE state = 'claimed'";
    assert_eq!(db.number(claimed).await, 1);
}

async fn slow_effects_let_the_rest_of_the_store_go_on(db: Db) {
    prepared(Vec::new(), &db).await;
    let events = (0..6).map(|n| event(&format!("e{n}"), "slow,quick")).collect();
    db.store.accept(events).await.unwrap();
    let (slow, quick) = (db.claim("slow", 10).await, db.claim("quick", 10).await);
    let ended = AtomicUsize::new(0);
    let stuck = join_all(slow.iter().map(async |claim| {
        let applied = db.store.apply(endless(claim, 600)).await;
        ended.fetch_add(1, Relaxed);
        applied
    }));
    // Polled after the effects, so these wait behind them.
    let others = async {
        db.store.accept(vec![event("new", "")]).await.unwrap();
        if db.is_postgres() {
            for claim in &quick {
                assert_eq!(db.store.apply(pay(claim, 1)).await.unwrap(), Applied::Done);
            }
        }
        ended.load(Relaxed)
    };
    let (stuck, ended_before) = futures_util::join!(stuck, others);
    for applied in stuck {
        assert!(matches!(applied.unwrap(), Applied::Failed(_)));
    }
    // Statements hold SQLite's writer, but what waits has its turn between them.
    assert!(ended_before < slow.len(), "{ended_before} of {}", slow.len());
}

async fn the_claim_of_a_running_effect_is_renewed(db: Db) {
    let claims = prepared(vec!["e1".to_owned(), "e2".to_owned()], &db).await;
    let leases: Vec<Lease> = claims
        .iter()
        .map(|claim| Lease {
            event_id: claim.event.id,
            handler: Arc::clone(&claim.handler),
            token: claim.token,
        })
        .collect();
    let mut lost = leases[1].clone();
    lost.token ^= 1;
    let has_ended = AtomicUsize::new(0);
    let effect = async {
        let applied = db.store.apply(endless(&claims[0], 1_500)).await;
        has_ended.store(1, Relaxed);
        applied
    };
    let renewals = async {
        if db.is_postgres() {
            let running = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                           AND state = 'active' AND query LIKE '%RECURSIVE%' AND pid <> pg_backend_pid()";
            while db.number(running).await == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        let all = [leases, vec![lost]].concat();
        let holds = db.store.renew(all, Duration::from_secs(30)).await.unwrap();
        (holds, has_ended.load(Relaxed))
    };
    let (_, (holds, had_ended)) = futures_util::join!(effect, renewals);
    assert_eq!(holds, [true, true, false]);
    if db.is_postgres() {
        assert_eq!(had_ended, 0, "the renewal waited for the effect");
    }
}

/// What a shutdown does to an attempt that it cuts off: its settle gets through, and those beside it at once.
async fn an_effect_that_nobody_waits_for_is_ended(db: Db) {
    let claims = prepared(vec!["e1".to_owned(), "e2".to_owned()], &db).await;
    let dropped = tokio::time::timeout(Duration::from_millis(300), db.store.apply(endless(&claims[0], 60_000)));
    assert!(dropped.await.is_err());
    let again = || Outcome::Retry {
        after: Duration::ZERO,
        error: "cut off".to_owned(),
    };
    let settled = async {
        db.store.settle(crate::support::settle(&claims[0], again())).await;
        db.settle(&claims[1], again()).await;
    };
    tokio::time::timeout(HANG, settled).await.unwrap();
    let ready = "SELECT count(*) FROM deliveries WHERE state = 'ready'";
    assert_eq!(db.number(ready).await, 2);
    assert_eq!(db.number("SELECT count(*) FROM payments").await, 0);
}

async fn a_closed_store_does_not_wait_for_a_slow_effect(db: Db) {
    let claims = prepared((0..4).map(|n| format!("e{n}")).collect(), &db).await;
    let dropped = tokio::time::timeout(
        Duration::from_millis(300),
        join_all(claims.iter().map(|claim| db.store.apply(endless(claim, 60_000)))),
    );
    assert!(dropped.await.is_err());
    tokio::time::timeout(HANG, db.store.close()).await.unwrap();
}

async fn statements_are_looked_at_before_they_run(db: Db) {
    prepared(Vec::new(), &db).await;
    let look = async |statement: &str, params| db.store.prepare(statement, params).await.unwrap();
    assert_eq!(look(INSERT, 2).await, Prepared::Fine);
    let wrong = [
        (INSERT, 1, "the statement has 2 parameters and the handler gives 1"),
        ("INSERT INTO payments (id) VALUES ($1", 1, ""),
        ("SELECT 1; SELECT 2", 0, ""),
        ("COMMIT", 0, "control"),
        (" -- nothing", 0, "empty"),
        ("insrt into payments values ($1)", 1, "syntax error"),
        ("insert into payments (id) values (, $1)", 1, "syntax error"),
        ("insert into nowhere values ('open)", 0, ""),
    ];
    for (statement, params, expected) in wrong {
        match look(statement, params).await {
            Prepared::Wrong(why) => assert!(why.contains(expected) && !why.contains("at line"), "{statement}: {why}"),
            other => panic!("{statement}: {other:?}"),
        }
    }
    for doubtful in [
        "INSERT INTO nowhere VALUES (1)",
        "INSERT INTO payments (absent) VALUES (1)",
        "INSERT INTO payments (id) VALUES (no_function(1))",
    ] {
        let looked = look(doubtful, 0).await;
        assert!(matches!(looked, Prepared::Doubtful(_)), "{doubtful}: {looked:?}");
    }
    assert_eq!(db.number("SELECT count(*) FROM payments").await, 0);
}

async fn errors_say_what_the_database_says(db: Db) {
    let claim = prepared(vec!["e1".to_owned()], &db).await.remove(0);
    let Applied::Failed(why) = db.store.apply(pay(&claim, -1)).await.unwrap() else {
        panic!("the check was passed");
    };
    assert!(!why.contains("at line"), "{why}");
    if db.is_postgres() {
        assert!(why.contains("23514") && why.contains("payments_cents_check"), "{why}");
        // Judged at the end of the transaction, and still the statement's own failure.
        db.sql("CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
            .await;
        let twice = effect(&claim, "INSERT INTO late VALUES (1), (1)", Vec::new());
        let applied = db.store.apply(twice).await.unwrap();
        assert!(
            matches!(&applied, Applied::Failed(why) if why.contains("23505")),
            "{applied:?}"
        );
    }
    assert_eq!(db.store.apply(pay(&claim, 1)).await.unwrap(), Applied::Done);
}

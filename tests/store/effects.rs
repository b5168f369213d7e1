//! Effects in the store's own database: exactly once.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use cerca::{
    domain::{Claim, Outcome},
    store::{Applied, Effect, Options, SqlValue},
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
    control_of_the_transaction_is_refused,
);

const INSERT: &str = "INSERT INTO payments (id, cents) VALUES ($1, $2)";

async fn prepared(mut ids: Vec<String>, db: &Db) -> Vec<Claim> {
    db.sql("CREATE TABLE payments (id text NOT NULL, cents bigint CHECK (cents >= 0))")
        .await;
    ids.dedup();
    db.store
        .accept(ids.iter().map(|id| event(id, "sql")).collect())
        .await
        .unwrap();
    db.claim("sql", 1000).await
}

fn effect(claim: &Claim, statement: &str, params: Vec<SqlValue>) -> Effect {
    Effect {
        claim: claim.clone(),
        statement: Arc::from(statement),
        params,
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
    let claims = prepared((0..20).map(|n| format!("e{n}")).collect(), &db).await;
    let all = claims
        .iter()
        .enumerate()
        .map(|(n, c)| db.store.apply(pay(c, if n % 4 == 0 { -1 } else { 1 })));
    for (n, applied) in join_all(all).await.into_iter().enumerate() {
        match applied.unwrap() {
            Applied::Failed(why) => assert!(n % 4 == 0 && !why.is_empty(), "{n}: {why}"),
            other => assert!(n % 4 != 0 && other == Applied::Done, "{n}: {other:?}"),
        }
    }
    assert_eq!(db.number("SELECT count(*) FROM payments").await, 15);
    assert_eq!(
        db.number("SELECT count(*) FROM deliveries WHERE state = 'claimed'")
            .await,
        5
    );
    // The claim still holds, so the worker can settle it.
    db.settle(
        &claims[0],
        Outcome::Dead {
            error: "refused".to_owned(),
        },
    )
    .await;
    assert_eq!(db.row("e0").await.status.as_str(), "failed");
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
        vec![SqlValue::Int(1), text("x"), SqlValue::Number("1.5".into()), SqlValue::Int(2)],
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

async fn a_runaway_statement_is_stopped(db: Db) {
    let claims = prepared((0..3).map(|n| format!("e{n}")).collect(), &db).await;
    let endless = "INSERT INTO payments (id, cents)
                   WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                   SELECT 'x', count(*) FROM n";
    let (a, b, c, d) = futures_util::join!(
        db.store.apply(pay(&claims[0], 1)),
        db.store.apply(effect(&claims[1], endless, Vec::new())),
        db.store.apply(pay(&claims[2], 1)),
        db.store.accept(vec![event("beside", "")]),
    );
    assert_eq!(a.unwrap(), Applied::Done);
    assert!(matches!(b.unwrap(), Applied::Failed(_)));
    assert_eq!(c.unwrap(), Applied::Done);
    d.unwrap();
    assert_eq!(db.number("SELECT count(*) FROM payments").await, 2);
    assert_eq!(
        db.number("SELECT count(*) FROM deliveries WHERE state = 'claimed'")
            .await,
        1
    );
}

mod a_runaway_statement_is_stopped {
    use super::*;

    fn short() -> Options {
        Options {
            statement_timeout: Duration::from_millis(700),
            ..Options::default()
        }
    }

    #[tokio::test]
    async fn sqlite() {
        a_runaway_statement_is_stopped(Db::sqlite_with(short()).await).await;
    }

    #[tokio::test]
    async fn postgres() {
        if let Some(db) = Db::postgres_with(short()).await {
            a_runaway_statement_is_stopped(db).await;
        }
    }
}

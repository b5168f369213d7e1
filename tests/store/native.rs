//! Code of native handlers in the store's transactions, and their steps.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

use cerca::{
    SqlValue, Transaction,
    domain::{Claim, Outcome},
    store::{
        Applied, Effect, InTransaction, Lease, NewStep, PurgePolicy, Reprocess, ReprocessScope, StoreError, Who, Work,
    },
};
use futures_util::future::join_all;
use jiff::Timestamp;

use crate::{effects::prepared, support::Db};

on_both!(
    code_and_its_settle_are_one,
    a_stale_claim_runs_no_code,
    code_that_fails_or_panics_changes_nothing,
    a_failed_statement_cannot_be_passed_over,
    values_come_back_as_they_were_written,
    code_that_hangs_is_left_behind_and_the_store_goes_on,
    code_that_nobody_waits_for_is_ended,
    code_may_not_control_the_transaction,
    code_without_a_delivery_is_one_transaction,
    a_step_is_kept_once_and_only_under_its_claim,
    steps_go_with_the_history,
    a_new_life_keeps_the_steps_unless_told,
);

fn code(claim: &Claim, code: impl Fn(&mut Transaction) -> Result<(), String> + Send + Sync + 'static) -> Effect {
    Effect {
        claim: claim.clone(),
        work: Work::Code(Arc::new(code)),
        started_at: Timestamp::now(),
        limit: Duration::from_secs(10),
    }
}

fn pay(claim: &Claim, cents: i64) -> Effect {
    let id = claim.event.provider_event_id.clone();
    code(claim, move |tx| insert(tx, &id, cents))
}

fn insert(tx: &mut Transaction, id: &str, cents: i64) -> Result<(), String> {
    let sql = "INSERT INTO payments (id, cents) VALUES ($1, $2)";
    match tx.execute(sql, &[id.into(), cents.into()]) {
        Ok(1) => Ok(()),
        Ok(count) => Err(format!("{count} rows")),
        Err(error) => Err(error.to_string()),
    }
}

async fn code_and_its_settle_are_one(db: Db) {
    let claims = prepared((0..40).map(|n| format!("e{n}")).collect(), &db).await;
    let twice = claims.iter().chain(&claims).map(|c| db.store.apply(pay(c, 5)));
    let applied: Vec<_> = join_all(twice).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(applied.iter().filter(|a| **a == Applied::Done).count(), 40);
    assert_eq!(applied.iter().filter(|a| **a == Applied::Stale).count(), 40);
    assert_eq!(db.number("SELECT count(*) FROM payments").await, 40);
    assert_eq!(db.number("SELECT count(DISTINCT id) FROM payments").await, 40);
    assert_eq!(
        db.number("SELECT count(*) FROM attempts WHERE outcome = 'done'").await,
        40
    );
    assert_eq!(db.number("SELECT count(*) FROM deliveries").await, 0);
}

async fn a_stale_claim_runs_no_code(db: Db) {
    let slow = prepared(vec!["e1".to_owned()], &db).await.remove(0);
    db.expire().await;
    db.store.sweep(Vec::new()).await.unwrap();
    let fast = db.claim("sql", 1).await.remove(0);
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = |claim: &Claim| {
        let runs = Arc::clone(&runs);
        code(claim, move |tx| {
            runs.fetch_add(1, Relaxed);
            insert(tx, "x", 1)
        })
    };
    assert_eq!(db.store.apply(counted(&slow)).await.unwrap(), Applied::Stale);
    assert_eq!(runs.load(Relaxed), 0);
    assert_eq!(db.store.apply(counted(&fast)).await.unwrap(), Applied::Done);
    assert_eq!(db.store.apply(counted(&slow)).await.unwrap(), Applied::Stale);
    assert_eq!(db.number("SELECT count(*) FROM payments").await, 1);
}

async fn code_that_fails_or_panics_changes_nothing(db: Db) {
    let claims = prepared((0..3).map(|n| format!("e{n}")).collect(), &db).await;
    let fails = code(&claims[0], |tx| {
        insert(tx, "e0", 1).and_then(|_| Err("not today".into()))
    });
    let panics = code(&claims[1], |tx| {
        insert(tx, "e1", 1).unwrap();
        panic!("no luck")
    });
    let all = join_all([fails, panics, pay(&claims[2], 1)].map(|effect| db.store.apply(effect))).await;
    let [fails, panics, fine] = &all[..] else {
        unreachable!()
    };
    assert_eq!(*fails.as_ref().unwrap(), Applied::Failed("not today".into()));
    assert!(matches!(panics.as_ref().unwrap(), Applied::Failed(why) if why.contains("no luck")));
    assert_eq!(*fine.as_ref().unwrap(), Applied::Done);
    assert_eq!(db.texts("SELECT id FROM payments").await, ["e2"]);
    // The claims still hold, so the worker can settle them.
    for claim in &claims[..2] {
        db.settle(claim, Outcome::Dead { error: "x".into() }).await;
    }
    assert_eq!(
        db.number("SELECT count(*) FROM deliveries WHERE state = 'dead'").await,
        2
    );
}

async fn a_failed_statement_cannot_be_passed_over(db: Db) {
    let claims = prepared(vec!["e0".into(), "e1".into()], &db).await;
    let goes_on = code(&claims[0], |tx| {
        insert(tx, "e0", 1)?;
        insert(tx, "e0", -1).expect_err("the check refuses it");
        tx.query("SELECT 1 AS one", &[]).expect_err("nothing runs any more");
        Ok(())
    });
    let applied = join_all([db.store.apply(goes_on), db.store.apply(pay(&claims[1], 1))]).await;
    let Applied::Failed(why) = applied[0].as_ref().unwrap() else {
        panic!("{applied:?}")
    };
    assert!(why.to_lowercase().contains("check constraint"), "{why}");
    assert_eq!(*applied[1].as_ref().unwrap(), Applied::Done);
    assert_eq!(db.texts("SELECT id FROM payments").await, ["e1"]);
}

async fn values_come_back_as_they_were_written(db: Db) {
    let claim = prepared(vec!["e0".to_owned()], &db).await.remove(0);
    let types = if db.is_postgres() {
        "(b boolean, i bigint, f double precision, n numeric, t text, x bytea, z text, j jsonb, at timestamptz, u uuid)"
    } else {
        "(b integer, i integer, f real, n text, t text, x blob, z text, j text, at text, u text)"
    };
    db.sql(&format!("CREATE TABLE kinds {types}")).await;
    let uuid = "0f0e0d0c-0b0a-0908-0706-050403020100";
    let (sender, seen) = mpsc::channel();
    let effect = code(&claim, move |tx| {
        let run = |tx: &mut Transaction| -> Result<(), cerca::SqlError> {
            let values: [SqlValue; 10] = [
                true.into(),
                i64::MIN.into(),
                0.5.into(),
                SqlValue::Number("12345678901234567890.1234500".into()),
                "a'b\u{e9}".into(),
                vec![0_u8, 255].into(),
                None::<String>.into(),
                r#"{"a": 1}"#.into(),
                "2026-01-02T03:04:05Z".into(),
                uuid.into(),
            ];
            let insert = "INSERT INTO kinds VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
            assert_eq!(tx.execute(insert, &values)?, 1);
            // Numbers of parameters count, not the places where they stand.
            let rows = tx.query(
                "SELECT b, i, f, n, t, x, z, j, at, u FROM kinds WHERE t = $2 AND i = $1",
                &[i64::MIN.into(), "a'b\u{e9}".into()],
            )?;
            assert_eq!(rows.len(), 1);
            let row = &rows[0];
            assert!(row.get::<bool>("b")?);
            assert_eq!(row.get::<i64>("i")?, i64::MIN);
            assert!((row.get::<f64>("f")? - 0.5).abs() < f64::EPSILON);
            assert_eq!(row.get::<String>("t")?, "a'b\u{e9}");
            assert_eq!(row.get::<Vec<u8>>("x")?, [0, 255]);
            assert_eq!(row.get::<Option<String>>("z")?, None);
            assert_eq!(row.get::<String>("j")?.replace(' ', ""), r#"{"a":1}"#);
            assert_eq!(row.get::<String>("at")?, "2026-01-02T03:04:05Z");
            assert_eq!(row.get::<String>("u")?, uuid);
            let _ = sender.send(row.get::<String>("n")?);
            assert_eq!(tx.execute("UPDATE kinds SET z = 'x'", &[])?, 1);
            assert_eq!(tx.execute("DELETE FROM kinds WHERE i = 5", &[])?, 0);
            let added = tx.query(
                "INSERT INTO payments (id, cents) VALUES ('r', 7) RETURNING cents AS c",
                &[],
            )?;
            assert_eq!(added[0].get::<i64>("c")?, 7);
            let mixed = tx.query("SELECT $2 AS two, $1 AS one", &["1".into(), "2".into()]);
            assert_eq!(mixed?[0].values(), ["2".into(), "1".into()]);
            Ok(())
        };
        run(tx).map_err(|error| error.to_string())
    });
    assert_eq!(db.store.apply(effect).await.unwrap(), Applied::Done);
    // What no double can hold to its last digit is SQLite's affair.
    let number = seen.recv().unwrap();
    assert!(
        !db.is_postgres() || number == "12345678901234567890.1234500",
        "{number}"
    );
}

async fn code_that_hangs_is_left_behind_and_the_store_goes_on(db: Db) {
    let claims = prepared(vec!["e0".into(), "e1".into()], &db).await;
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let (sender, after) = mpsc::channel();
    let hangs = Effect {
        limit: Duration::from_millis(300),
        ..code(&claims[0], move |tx| {
            insert(tx, "e0", 1)?;
            let _ = wait.lock().unwrap().recv();
            let _ = sender.send(insert(tx, "e0", 2));
            Ok(())
        })
    };
    let Applied::Failed(why) = db.store.apply(hangs).await.unwrap() else {
        panic!("it cannot have ended")
    };
    assert!(why.contains("took longer"), "{why}");
    // While the code still hangs.
    assert_eq!(db.store.apply(pay(&claims[1], 1)).await.unwrap(), Applied::Done);
    drop(go);
    let late = after.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(late.unwrap_err().contains("has ended"));
    assert_eq!(db.texts("SELECT id FROM payments").await, ["e1"]);
}

async fn code_that_nobody_waits_for_is_ended(db: Db) {
    let claims = prepared(vec!["e0".into(), "e1".into()], &db).await;
    let (began, begun) = tokio::sync::oneshot::channel();
    let began = std::sync::Mutex::new(Some(began));
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let waits = db.store.apply(code(&claims[0], move |tx| {
        insert(tx, "e0", 1)?;
        if let Some(began) = began.lock().unwrap().take() {
            let _ = began.send(());
        }
        let _ = wait.lock().unwrap().recv();
        Ok(())
    }));
    tokio::select! {
        applied = waits => panic!("{applied:?}"),
        begun = begun => begun.unwrap(),
    }
    // The future is dropped: the transaction is undone before the code ends.
    assert_eq!(db.store.apply(pay(&claims[1], 1)).await.unwrap(), Applied::Done);
    drop(go);
    assert_eq!(db.texts("SELECT id FROM payments").await, ["e1"]);
    assert_eq!(
        db.number("SELECT count(*) FROM deliveries WHERE state = 'claimed'")
            .await,
        1
    );
}

async fn code_may_not_control_the_transaction(db: Db) {
    let claims = prepared((0..4).map(|n| format!("e{n}")).collect(), &db).await;
    for (claim, bad) in claims
        .iter()
        .zip(["COMMIT", "/* x */ rollback", "SELECT 1; SELECT 2", ""])
    {
        let effect = code(claim, move |tx| {
            insert(tx, "x", 1)?;
            tx.execute(bad, &[]).map(drop).map_err(|error| error.to_string())
        });
        let applied = db.store.apply(effect).await.unwrap();
        assert!(matches!(applied, Applied::Failed(_)), "{bad}: {applied:?}");
    }
    assert_eq!(db.number("SELECT count(*) FROM payments").await, 0);
    assert_eq!(
        db.number("SELECT count(*) FROM deliveries WHERE state = 'claimed'")
            .await,
        4
    );
}

async fn code_without_a_delivery_is_one_transaction(db: Db) {
    let limit = Duration::from_secs(10);
    let run = |sql: &'static [&'static str]| {
        let work: InTransaction = Arc::new(move |tx| {
            for sql in sql {
                tx.execute(sql, &[]).map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        db.store.transact(work, limit)
    };
    run(&["CREATE TABLE a (n bigint)", "INSERT INTO a VALUES (1)"])
        .await
        .unwrap();
    let error = run(&["INSERT INTO a VALUES (2)", "INSERT INTO nowhere VALUES (1)"]).await;
    assert!(
        matches!(&error, Err(StoreError::Refused(why)) if why.contains("nowhere")),
        "{error:?}"
    );
    assert_eq!(db.number("SELECT count(*) FROM a").await, 1);
}

fn lease(claim: &Claim) -> Lease {
    Lease {
        event_id: claim.event.id,
        handler: Arc::clone(&claim.handler),
        token: claim.token,
    }
}

fn step(claim: &Claim, name: &str, result: &str) -> NewStep {
    NewStep {
        claim: lease(claim),
        name: name.to_owned(),
        attempt: claim.attempt,
        result: result.to_owned(),
    }
}

async fn results(db: &Db, claim: &Claim) -> Option<Vec<(String, String)>> {
    let steps = db.store.steps(lease(claim)).await.unwrap()?;
    Some(steps.into_iter().map(|step| (step.name, step.result)).collect())
}

async fn a_step_is_kept_once_and_only_under_its_claim(db: Db) {
    let slow = prepared(vec!["e1".to_owned()], &db).await.remove(0);
    assert_eq!(results(&db, &slow).await, Some(Vec::new()));
    assert!(db.store.record(step(&slow, "a", "1.50")).await.unwrap());
    // The answer to the first try was lost, and it is tried again.
    assert!(db.store.record(step(&slow, "a", "2")).await.unwrap());
    db.expire().await;
    db.store.sweep(Vec::new()).await.unwrap();
    let fast = db.claim("sql", 1).await.remove(0);
    assert!(!db.store.record(step(&slow, "b", "0")).await.unwrap());
    assert_eq!(results(&db, &slow).await, None);
    let many = (0..300).map(|n| db.store.record(step(&fast, &format!("s{n:03}"), "\"\\u0000\"")));
    assert!(join_all(many).await.into_iter().all(Result::unwrap));
    let steps = results(&db, &fast).await.unwrap();
    assert_eq!(steps.len(), 301);
    assert_eq!(steps[0], ("a".to_owned(), "1.50".to_owned()));
    assert!(steps.iter().all(|(name, _)| name != "b"));
    // Those of another handler or event are not seen.
    assert_eq!(db.store.event("p", "e1").await.unwrap().unwrap().steps.len(), 301);
}

async fn steps_go_with_the_history(db: Db) {
    let claim = prepared(vec!["e1".to_owned()], &db).await.remove(0);
    assert!(db.store.record(step(&claim, "a", "1")).await.unwrap());
    assert_eq!(db.store.apply(pay(&claim, 1)).await.unwrap(), Applied::Done);
    assert_eq!(db.store.event("p", "e1").await.unwrap().unwrap().steps.len(), 1);
    db.age(48).await;
    let hours = |n: u64| Duration::from_secs(n * 3600);
    let policy = PurgePolicy {
        done: hours(24),
        failed: hours(24),
        dedupe: hours(1000),
    };
    while db.store.purge(policy, false).await.unwrap().more {}
    assert_eq!(db.number("SELECT count(*) FROM steps").await, 0);
    assert_eq!(db.number("SELECT count(*) FROM webhook_events").await, 1);
}

async fn a_new_life_keeps_the_steps_unless_told(db: Db) {
    let claim = prepared(vec!["e1".to_owned()], &db).await.remove(0);
    assert!(db.store.record(step(&claim, "a", "1")).await.unwrap());
    let again = |forget_steps, dry_run| {
        let what = Reprocess {
            filter: ReprocessScope::Event {
                provider: "p".into(),
                provider_event_id: "e1".into(),
            },
            handlers: None,
            dry_run,
            forget_steps,
        };
        let who = Who {
            actor: "test".into(),
            reason: None,
        };
        db.store.reprocess(what, who)
    };
    // In flight: left alone, with its steps.
    assert_eq!(again(true, false).await.unwrap().deliveries, 0);
    assert_eq!(db.number("SELECT count(*) FROM steps").await, 1);

    let dead = || Outcome::Dead { error: "x".into() };
    db.settle(&claim, dead()).await;
    assert_eq!(again(true, true).await.unwrap().deliveries, 1);
    assert_eq!(again(false, false).await.unwrap().deliveries, 1);
    let claim = db.claim("sql", 1).await.remove(0);
    assert_eq!(results(&db, &claim).await.unwrap().len(), 1);

    db.settle(&claim, dead()).await;
    assert_eq!(again(true, false).await.unwrap().deliveries, 1);
    let claim = db.claim("sql", 1).await.remove(0);
    assert_eq!(results(&db, &claim).await.unwrap().len(), 0);
}

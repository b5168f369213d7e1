//! The transaction of a handler of an API: its effect, its key and its answer, or nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use cerca::{
    SqlValue, Transaction,
    store::{Answering, HeldKey, KeptAnswer, KeyState, TransactionError},
};

use crate::{
    keys::{answer, held, minute, state},
    support::Db,
};

on_both!(
    key_effect_and_answer_commit_together,
    a_failed_transaction_leaves_nothing,
    many_transactions_each_complete_their_own_key,
    code_that_takes_too_long_is_undone_and_holds_nobody_up,
    a_statement_that_takes_too_long_undoes_nobody_elses_work,
);

const INSERT: &str = "INSERT INTO orders VALUES ($1)";

fn code(work: impl Fn(&mut Transaction) -> Result<KeptAnswer, String> + Send + Sync + 'static) -> Answering {
    Arc::new(work)
}

fn run(tx: &mut Transaction, sql: &str, params: &[SqlValue]) -> Result<u64, String> {
    tx.execute(sql, params).map_err(|error| error.to_string())
}

async fn key_effect_and_answer_commit_together(db: Db) {
    db.sql("CREATE TABLE orders (id BIGINT NOT NULL, name TEXT, paid BOOLEAN)")
        .await;
    let ours = held(&*db.store, minute("k", 1)).await;
    let work = code(|tx| {
        let changed = run(
            tx,
            "INSERT INTO orders VALUES ($1, $2, $3)",
            &[7.into(), "grüße".into(), SqlValue::Null],
        )?;
        let rows = tx
            .query("SELECT id, name, paid FROM orders WHERE id = $1", &[7.into()])
            .map_err(|error| error.to_string())?;
        assert_eq!(rows[0].values(), [7.into(), "grüße".into(), SqlValue::Null]);
        assert_eq!(rows[0].get::<String>("name"), Ok("grüße".to_owned()));
        Ok(KeptAnswer {
            body: Some(Bytes::from(changed.to_string())),
            ..answer(201)
        })
    });
    let kept = db.store.answer(ours, work).await.unwrap();
    assert_eq!(kept.body.as_deref(), Some(&b"1"[..]));
    assert_eq!(db.number("SELECT count(*) FROM orders").await, 1);
    assert!(matches!(state(&*db.store, minute("k", 1)).await, KeyState::Answered { answer, .. } if answer == kept));
}

async fn a_failed_transaction_leaves_nothing(db: Db) {
    db.sql("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY)").await;
    let ours = held(&*db.store, minute("k", 1)).await;
    for last in [
        "INSERT INTO orders VALUES (1)",
        "nonsense",
        "COMMIT",
        "SELECT 1; SELECT 2",
    ] {
        // Whether the code minds or not.
        for minds in [true, false] {
            let work = code(move |tx| {
                run(tx, INSERT, &[1.into()])?;
                let failed = run(tx, last, &[]);
                if minds {
                    failed?;
                }
                Ok(answer(201))
            });
            let done = db.store.answer(ours, work).await;
            assert!(matches!(done, Err(TransactionError::Failed(_))), "{last}: {done:?}");
        }
    }
    let undone = code(|tx| {
        run(tx, INSERT, &[1.into()])?;
        Err("sold out".to_owned())
    });
    let undone = db.store.answer(ours, undone).await;
    assert!(matches!(undone, Err(TransactionError::Failed(why)) if why == "sold out"));
    let panics = code(|tx| {
        run(tx, INSERT, &[1.into()])?;
        panic!("no luck")
    });
    let panicked = db.store.answer(ours, panics).await;
    assert!(matches!(panicked, Err(TransactionError::Failed(why)) if why.contains("no luck")));
    let stale = HeldKey {
        token: ours.token ^ 1,
        ..ours
    };
    let insert = code(|tx| {
        run(tx, INSERT, &[1.into()])?;
        Ok(answer(201))
    });
    let late = db.store.answer(stale, Arc::clone(&insert)).await;
    assert!(matches!(late, Err(TransactionError::Stale)), "{late:?}");
    assert_eq!(db.number("SELECT count(*) FROM orders").await, 0);
    assert!(matches!(
        state(&*db.store, minute("k", 1)).await,
        KeyState::Processing { .. }
    ));
    // It is still ours.
    db.store.answer(ours, insert).await.unwrap();
    assert_eq!(db.number("SELECT count(*) FROM orders").await, 1);
}

async fn many_transactions_each_complete_their_own_key(db: Db) {
    db.sql("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY)").await;
    let mut waiting = Vec::new();
    for n in 0..40_i64 {
        let ours = held(&*db.store, minute(&n.to_string(), 1)).await;
        let work = code(move |tx| {
            run(tx, INSERT, &[n.into()])?;
            // Every fourth fails; the others, which may share its transaction, do not.
            if n % 4 == 0 {
                run(tx, INSERT, &[n.into()])?;
            }
            Ok(KeptAnswer {
                body: Some(Bytes::from(n.to_string())),
                ..answer(201)
            })
        });
        waiting.push(tokio::spawn(db.store.answer(ours, work)));
    }
    for (n, done) in waiting.into_iter().enumerate() {
        let done = done.await.unwrap();
        if n % 4 == 0 {
            assert!(matches!(done, Err(TransactionError::Failed(_))), "{n}: {done:?}");
        } else {
            assert_eq!(done.unwrap().body.as_deref(), Some(n.to_string().as_bytes()), "{n}");
        }
    }
    assert_eq!(db.number("SELECT count(*) FROM orders").await, 30);
    let completed = "SELECT count(*) FROM api_idempotency_keys WHERE status = 'completed'";
    assert_eq!(db.number(completed).await, 30);
}

async fn code_that_takes_too_long_is_undone_and_holds_nobody_up(db: Db) {
    db.sql("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY)").await;
    let ours = held(&*db.store, minute("slow", 1)).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let slow = code(move |tx| {
        run(tx, INSERT, &[1.into()])?;
        counted.fetch_add(1, SeqCst);
        std::thread::sleep(Duration::from_secs(7));
        Ok(answer(201))
    });
    let slow = db.store.answer(ours, slow).await;
    assert!(
        matches!(&slow, Err(TransactionError::Failed(why)) if why.contains("took longer")),
        "{slow:?}"
    );
    assert_eq!(runs.load(SeqCst), 1);
    let next = held(&*db.store, minute("next", 1)).await;
    let insert = code(|tx| {
        run(tx, INSERT, &[2.into()])?;
        Ok(answer(201))
    });
    db.store.answer(next, insert).await.unwrap();
    assert_eq!(db.number("SELECT count(*) FROM orders WHERE id = 2").await, 1);
    assert_eq!(db.number("SELECT count(*) FROM orders").await, 1);
}

async fn a_statement_that_takes_too_long_undoes_nobody_elses_work(db: Db) {
    db.sql("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY)").await;
    // On SQLite its end is the end of the whole transaction, which others may share.
    let endless = "INSERT INTO orders
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT count(*) FROM n";
    let mut quick = Vec::new();
    let mut slow = None;
    for n in 0..20_i64 {
        let ours = held(&*db.store, minute(&n.to_string(), 1)).await;
        let work = code(move |tx| {
            run(tx, INSERT, &[n.into()])?;
            if n == 10 {
                run(tx, endless, &[])?;
            }
            Ok(answer(201))
        });
        let done = tokio::spawn(db.store.answer(ours, work));
        match n {
            10 => slow = Some(done),
            _ => quick.push(done),
        }
    }
    for done in quick {
        done.await.unwrap().unwrap();
    }
    let slow = slow.unwrap().await.unwrap();
    assert!(
        matches!(&slow, Err(TransactionError::Failed(why)) if why.contains("took longer")),
        "{slow:?}"
    );
    assert_eq!(db.number("SELECT count(*) FROM orders").await, 19);
    let completed = "SELECT count(*) FROM api_idempotency_keys WHERE status = 'completed'";
    assert_eq!(db.number(completed).await, 19);
}

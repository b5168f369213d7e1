//! The transaction of a handler of an API: its effect, its key and its answer, or nothing.

use bytes::Bytes;
use cerca::store::{HeldKey, KeptAnswer, KeyState, SqlValue, WorkError};

use crate::{
    keys::{answer, held, minute, state},
    support::Db,
};

on_both!(
    key_effect_and_answer_commit_together,
    a_failed_transaction_leaves_nothing,
);

async fn key_effect_and_answer_commit_together(db: Db) {
    db.sql("CREATE TABLE orders (id BIGINT NOT NULL, name TEXT, paid BOOLEAN)")
        .await;
    let ours = held(&*db.store, minute("k", 1)).await;
    let kept = db
        .store
        .answer(
            Some(ours),
            Box::new(|tx| {
                Box::pin(async move {
                    let params = vec![SqlValue::Int(7), SqlValue::Text("grüße".into()), SqlValue::Null];
                    let changed = tx.execute("INSERT INTO orders VALUES ($1, $2, $3)", params).await?;
                    let rows = tx
                        .query(
                            "SELECT id, name, paid FROM orders WHERE id = $1",
                            vec![SqlValue::Int(7)],
                        )
                        .await?;
                    assert_eq!(
                        rows,
                        [vec![SqlValue::Int(7), SqlValue::Text("grüße".into()), SqlValue::Null]]
                    );
                    Ok(KeptAnswer {
                        body: Some(Bytes::from(changed.to_string())),
                        ..answer(201)
                    })
                })
            }),
        )
        .await
        .unwrap();
    assert_eq!(kept.body.as_deref(), Some(&b"1"[..]));
    assert_eq!(db.number("SELECT count(*) FROM orders").await, 1);
    assert!(matches!(state(&*db.store, minute("k", 1)).await, KeyState::Answered { answer, .. } if answer == kept));
}

async fn a_failed_transaction_leaves_nothing(db: Db) {
    db.sql("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY)").await;
    let ours = held(&*db.store, minute("k", 1)).await;
    let insert = "INSERT INTO orders VALUES ($1)";
    for last in [
        "INSERT INTO orders VALUES (1)",
        "nonsense",
        "COMMIT",
        "SELECT 1; SELECT 2",
    ] {
        let done = db.store.answer(
            Some(ours),
            Box::new(move |tx| {
                Box::pin(async move {
                    tx.execute(insert, vec![SqlValue::Int(1)]).await?;
                    tx.execute(last, Vec::new()).await?;
                    Ok(answer(201))
                })
            }),
        );
        assert!(matches!(done.await, Err(WorkError::Statement(_))), "{last}");
    }
    let undone = db.store.answer(
        Some(ours),
        Box::new(move |tx| {
            Box::pin(async move {
                tx.execute(insert, vec![SqlValue::Int(1)]).await?;
                Err(WorkError::Undo)
            })
        }),
    );
    assert!(matches!(undone.await, Err(WorkError::Undo)));
    let stale = HeldKey {
        token: ours.token ^ 1,
        ..ours
    };
    let late = db.store.answer(
        Some(stale),
        Box::new(move |tx| {
            Box::pin(async move {
                tx.execute(insert, vec![SqlValue::Int(1)]).await?;
                Ok(answer(201))
            })
        }),
    );
    assert!(late.await.is_err());
    assert_eq!(db.number("SELECT count(*) FROM orders").await, 0);
    assert!(matches!(
        state(&*db.store, minute("k", 1)).await,
        KeyState::Processing { .. }
    ));
    // And without a key it is a transaction like any other.
    let free = db.store.answer(
        None,
        Box::new(move |tx| {
            Box::pin(async move {
                tx.execute(insert, vec![SqlValue::Int(1)]).await?;
                Ok(answer(201))
            })
        }),
    );
    free.await.unwrap();
    assert_eq!(db.number("SELECT count(*) FROM orders").await, 1);
}

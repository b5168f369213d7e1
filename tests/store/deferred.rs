//! Constraints that are judged at the commit.

use std::{sync::Arc, time::Duration};

use cerca::store::{Applied, InTransaction, SqlValue, StoreError};
use futures_util::future::join_all;

use crate::{
    effects::{effect, prepared},
    support::{Db, event, settle},
};

on_both!(
    a_deferred_constraint_fails_the_one_who_broke_it,
    code_that_makes_such_a_table_harms_others_once_at_most,
);

const PAY: &str = "INSERT INTO entries (id, account) VALUES ($1, $2)";

/// Effects of all kinds at once with what others ask of the store; nobody but the guilty notices.
async fn a_deferred_constraint_fails_the_one_who_broke_it(db: Db) {
    let claims = prepared((0..48).map(|n| format!("e{n}")).collect(), &db).await;
    db.sql(
        "CREATE TABLE accounts (id bigint PRIMARY KEY);
         CREATE TABLE entries (
             id text NOT NULL,
             account bigint NOT NULL REFERENCES accounts (id) DEFERRABLE INITIALLY DEFERRED
         );
         INSERT INTO accounts VALUES (1)",
    )
    .await;
    db.store.accept(vec![event("settled", "other")]).await.unwrap();
    let other = db.claim("other", 1).await.remove(0);

    // Every seventh books to an account that is not there.
    let account = |n: usize| if n % 7 == 3 { 2 } else { 1 };
    let pay = |n: usize| {
        let id = claims[n].event.provider_event_id.clone();
        let params = vec![SqlValue::Text(id), SqlValue::Int(account(n))];
        db.store.apply(effect(&claims[n], PAY, params))
    };
    let (applied, accepted, ()) = futures_util::join!(
        join_all((0..claims.len()).map(pay)),
        join_all((0..20).map(|n| db.store.accept(vec![event(&format!("beside{n}"), "")]))),
        db.store.settle(settle(&other, cerca::domain::Outcome::Done)),
    );
    for accepted in accepted {
        accepted.expect("a webhook has nothing to do with it");
    }
    for (n, applied) in applied.into_iter().enumerate() {
        match applied.unwrap() {
            Applied::Done => assert_eq!(account(n), 1, "{n}"),
            Applied::Failed(why) => {
                assert_eq!(account(n), 2, "{n}: {why}");
                assert!(why.to_lowercase().contains("foreign key constraint"), "{n}: {why}");
            }
            Applied::Stale => panic!("{n} is stale"),
        }
    }
    db.store.flush().await.unwrap();
    let good = (0..claims.len()).filter(|n| account(*n) == 1).count() as i64;
    assert_eq!(db.number("SELECT count(*) FROM entries").await, good);
    assert_eq!(db.number("SELECT count(DISTINCT id) FROM entries").await, good);
    let left = "SELECT count(*) FROM deliveries WHERE state = 'claimed'";
    assert_eq!(db.number(left).await, claims.len() as i64 - good);

    // The account comes, and with it the rest.
    db.sql("INSERT INTO accounts VALUES (2)").await;
    let late = (0..claims.len()).filter(|n| account(*n) == 2);
    for applied in join_all(late.map(pay)).await {
        assert_eq!(applied.unwrap(), Applied::Done);
    }
    assert_eq!(db.number("SELECT count(*) FROM entries").await, claims.len() as i64);
    assert_eq!(db.number(left).await, 0);
}

/// Such a constraint cannot be seen before the code runs.
async fn code_that_makes_such_a_table_harms_others_once_at_most(db: Db) {
    let work: InTransaction = Arc::new(|tx| {
        for sql in [
            "CREATE TABLE parent (id bigint PRIMARY KEY)",
            "CREATE TABLE child (parent bigint REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
            "INSERT INTO child VALUES (1)",
        ] {
            tx.execute(sql, &[]).map_err(|error| error.to_string())?;
        }
        Ok(())
    });
    let limit = Duration::from_secs(10);
    assert!(db.store.transact(Arc::clone(&work), limit).await.is_err());
    for n in 0..5 {
        let beside = vec![event(&format!("e{n}"), "")];
        let (again, accepted) =
            futures_util::join!(db.store.transact(Arc::clone(&work), limit), db.store.accept(beside));
        assert!(matches!(again, Err(StoreError::Refused(_))), "{again:?}");
        accepted.unwrap();
    }
}

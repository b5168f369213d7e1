//! The middleware in an app, whose handlers commit, undo, fail, or answer without a transaction.

use std::sync::Arc;

use actix_web::{
    App, HttpResponse,
    body::to_bytes,
    http::StatusCode,
    test::{TestRequest, call_service, init_service},
    web,
};
use cerca::{
    idempotency::{Answer, Idempotent, KeyTransaction, Layer, Undo},
    store::TransactionError,
};
use serde_json::json;
use tokio::task::LocalSet;

use crate::support::Db;

on_both!(
    what_is_undone_is_answered_as_the_handler_says_and_its_key_follows_the_status,
    without_a_key_a_transaction_is_one_all_the_same,
    a_program_reads_and_writes_in_transactions_of_its_own,
);

/// `buy {item}`: takes one of the stock and writes a sale down.
async fn buy(item: String, transaction: KeyTransaction) -> Result<HttpResponse, TransactionError> {
    transaction
        .commit(move |store| {
            if item == "bomb" {
                panic!("the handler's own fault");
            }
            store.execute("insert into sales (item) values ($1)", &[(&item).into()])?;
            let rows = store.query("select remaining from stock where item = $1", &[(&item).into()])?;
            let left = match rows.first() {
                Some(row) => row.get::<i64>("remaining")?,
                // 404 is kept, 409 is not.
                None => return Err(Answer::new(404).json(&json!({"detail": "no such item"})).into()),
            };
            if left == 0 {
                return Err(Undo::Answer(Answer::new(409).header("x-why", "sold out")));
            }
            store.execute(
                "update stock set remaining = remaining - 1 where item = $1",
                &[(&item).into()],
            )?;
            Ok(Answer::new(201).json(&json!({"left": left - 1})))
        })
        .await
}

struct Said {
    status: u16,
    is_replay: bool,
    body: String,
}

/// Sends one request for each, in turn: key, item.
async fn buys(db: &Db, all: &[(Option<&str>, &str)]) -> Vec<Said> {
    let layer = Layer::new(Arc::clone(&db.store));
    let idempotent = Idempotent::new(layer, "header:authorization".parse().unwrap()).transactional();
    LocalSet::new()
        .run_until(async {
            let app = init_service(App::new().wrap(idempotent).route("/sales", web::post().to(buy))).await;
            let mut said = Vec::new();
            for (key, item) in all {
                let mut request = TestRequest::post()
                    .uri("/sales")
                    .insert_header(("authorization", "Bearer ana"))
                    .set_payload(item.to_string());
                if let Some(key) = key {
                    request = request.insert_header(("idempotency-key", *key));
                }
                let response = call_service(&app, request.to_request()).await;
                let is_replay = response.headers().contains_key("idempotent-replayed");
                let status = response.status();
                if status == StatusCode::CONFLICT {
                    assert_eq!(response.headers().get("x-why").unwrap(), "sold out");
                }
                let body = to_bytes(response.into_body()).await.unwrap();
                said.push(Said {
                    status: status.as_u16(),
                    is_replay,
                    body: String::from_utf8_lossy(&body).into_owned(),
                });
            }
            said
        })
        .await
}

async fn shop(db: &Db) {
    db.sql("CREATE TABLE sales (item TEXT NOT NULL)").await;
    db.sql("CREATE TABLE stock (item TEXT PRIMARY KEY, remaining BIGINT NOT NULL)")
        .await;
    db.sql("INSERT INTO stock VALUES ('book', 1)").await;
}

async fn what_is_undone_is_answered_as_the_handler_says_and_its_key_follows_the_status(db: Db) {
    shop(&db).await;
    let said = buys(
        &db,
        &[
            (Some("1"), "book"),
            (Some("1"), "book"),
            (Some("2"), "book"),
            (Some("2"), "book"),
            (Some("3"), "moon"),
            (Some("3"), "moon"),
            (Some("4"), "bomb"),
        ],
    )
    .await;
    let told: Vec<(u16, bool)> = said.iter().map(|said| (said.status, said.is_replay)).collect();
    assert_eq!(
        told,
        [
            (201, false),
            (201, true),
            (409, false),
            (409, false),
            (404, false),
            (404, true),
            (500, false)
        ]
    );
    assert_eq!((said[1].body.as_str(), &said[4].body), (r#"{"left":0}"#, &said[5].body));
    assert!(!said[6].body.contains("own fault"), "{}", said[6].body);
    assert_eq!(db.number("SELECT count(*) FROM sales").await, 1);
    // 409 and 500 freed theirs; more came to the shop meanwhile.
    assert_eq!(db.number("SELECT count(*) FROM api_idempotency_keys").await, 2);
    db.sql("UPDATE stock SET remaining = 5").await;
    let said = buys(&db, &[(Some("2"), "book"), (Some("2"), "book")]).await;
    assert_eq!(
        (said[0].status, said[0].is_replay, said[1].is_replay),
        (201, false, true)
    );
    assert_eq!(db.number("SELECT count(*) FROM sales").await, 2);
}

async fn without_a_key_a_transaction_is_one_all_the_same(db: Db) {
    shop(&db).await;
    let said = buys(&db, &[(None, "book"), (None, "book"), (None, "moon"), (None, "bomb")]).await;
    let told: Vec<(u16, bool)> = said.iter().map(|said| (said.status, said.is_replay)).collect();
    assert_eq!(told, [(201, false), (409, false), (404, false), (500, false)]);
    assert_eq!(db.number("SELECT count(*) FROM sales").await, 1);
    assert_eq!(db.number("SELECT count(*) FROM api_idempotency_keys").await, 0);
}

async fn a_program_reads_and_writes_in_transactions_of_its_own(db: Db) {
    shop(&db).await;
    let layer = Layer::new(Arc::clone(&db.store));
    let left = layer
        .transact(|store| {
            store.execute("update stock set remaining = remaining + $1", &[6.into()])?;
            let rows = store.query("select remaining from stock", &[])?;
            rows[0].get::<i64>("remaining")
        })
        .await;
    assert_eq!(left.unwrap(), 7);
    let failed = layer
        .transact(|store| {
            store.execute("update stock set remaining = 0", &[])?;
            let _ = store.execute("nonsense", &[]);
            Ok(())
        })
        .await;
    assert!(matches!(failed, Err(TransactionError::Failed(_))), "{failed:?}");
    assert_eq!(db.number("SELECT remaining FROM stock").await, 7);
}

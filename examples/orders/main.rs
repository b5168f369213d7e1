//! An API of one's own whose writes happen once: `POST /orders` with an `Idempotency-Key`, on the store of Cerca.
//!
//! The handler's row, the key and the answer commit in one transaction, so a crash at any moment leaves all or nothing. So
//! does the row of the outbox, which tells the world: run `cerca serve` on the same store, with a handler for
//! `outbox:order.created`.
//!
//! ```text
//! cargo run --example orders                     # sqlite:orders.db, http://127.0.0.1:3000
//! curl -i http://127.0.0.1:3000/orders -H 'Authorization: Bearer ana' -H 'Idempotency-Key: 1' \
//!      -H 'Content-Type: application/json' -d '{"item":"book","quantity":2}'
//! ```
//!
//! `ORDERS_STORE` names another store (`postgres://…` too), `ORDERS_LISTEN` another address.

use std::{env, sync::Arc, time::Duration};

use actix_web::{
    App, HttpResponse, HttpServer,
    http::{StatusCode, header},
    web::{self, Bytes},
};
use cerca::{
    idempotency::{Answer, Idempotent, KeyTransaction, Layer},
    store::{self, Options, TransactionError},
};
use serde_json::{Value, json};

const OPENAPI: &str = include_str!("openapi.json");

#[tokio::main]
#[allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a small program")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = env::var("ORDERS_STORE").unwrap_or_else(|_| "sqlite:orders.db".to_owned());
    let listen = env::var("ORDERS_LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let store = store::open(&url, Options::default()).await?;
    let layer = Layer::new(Arc::clone(&store));
    let table = "create table if not exists orders (
        id text primary key, item text not null, quantity bigint not null)";
    layer.transact(move |store| store.execute(table, &[])).await?;
    let reaper = tokio::spawn(reap(Arc::clone(&store)));
    let shared = web::Data::from(Arc::clone(&layer));
    let server = HttpServer::new(move || {
        let principal = "header:authorization"
            .parse()
            .unwrap_or(cerca::idempotency::Principal::None);
        let idempotent = Idempotent::new(Arc::clone(&layer), principal)
            .methods(&["POST"])
            .required(true)
            .transactional()
            .max_body(64 << 10, Duration::from_secs(10));
        App::new()
            .app_data(shared.clone())
            .app_data(web::PayloadConfig::new(64 << 10))
            .service(
                web::resource("/orders")
                    .wrap(idempotent)
                    .route(web::post().to(create))
                    .default_service(web::to(|| method("POST"))),
            )
            .service(
                web::resource("/orders/{id}")
                    .route(web::get().to(show))
                    .default_service(web::to(|| method("GET"))),
            )
            .route("/openapi.json", web::get().to(openapi))
            .default_service(web::to(|| async {
                problem(StatusCode::NOT_FOUND, "there is nothing here")
            }))
    })
    .bind(&listen)?;
    println!("listening on http://{}", server.addrs()[0]);
    server.run().await?;
    reaper.abort();
    store.close().await;
    Ok(())
}

/// `POST /orders`. What is checked before the transaction keeps nothing, so the client may correct it under the same key.
async fn create(body: Bytes, transaction: KeyTransaction) -> Result<HttpResponse, TransactionError> {
    let order: Value = match serde_json::from_slice(&body) {
        Ok(order) => order,
        Err(error) => {
            return Ok(problem(
                StatusCode::BAD_REQUEST,
                &format!("the body is not JSON: {error}"),
            ));
        }
    };
    let item = order["item"]
        .as_str()
        .filter(|item| (1..=200).contains(&item.chars().count()));
    let quantity = order["quantity"]
        .as_i64()
        .filter(|quantity| (1..=1000).contains(quantity));
    let is_known = |name: &String| name == "item" || name == "quantity";
    let has_others = order.as_object().is_none_or(|fields| !fields.keys().all(is_known));
    let (Some(item), Some(quantity), false) = (item, quantity, has_others) else {
        return Ok(problem(
            StatusCode::BAD_REQUEST,
            "expected {\"item\": text of 1 to 200 characters, \"quantity\": 1 to 1000}",
        ));
    };
    if item.contains('\0') {
        return Ok(problem(StatusCode::BAD_REQUEST, "`item` holds a NUL character"));
    }
    let item = item.to_owned();
    let id = format!("{:016x}", rand::random::<u64>());
    transaction
        .commit(move |store| {
            let order = json!({"id": id, "item": item, "quantity": quantity});
            store.execute(
                "insert into orders (id, item, quantity) values ($1, $2, $3)",
                &[(&id).into(), (&item).into(), quantity.into()],
            )?;
            // `cerca serve` on the same store makes it an event, and brings it to whoever wants to know.
            store.execute(
                "insert into outbox (idempotency_key, topic, payload) values ($1, 'order.created', $2)",
                &[(&id).into(), order.to_string().into()],
            )?;
            Ok(Answer::new(201)
                .header("location", format!("/orders/{id}"))
                .json(&order))
        })
        .await
}

/// `GET /orders/{id}`
async fn show(path: web::Path<String>, layer: web::Data<Layer>) -> Result<HttpResponse, TransactionError> {
    let id = path.into_inner();
    let unknown = || problem(StatusCode::NOT_FOUND, "there is no such order");
    if id.contains('\0') {
        return Ok(unknown());
    }
    let order = layer
        .transact(move |store| {
            let rows = store.query("select item, quantity from orders where id = $1", &[(&id).into()])?;
            let Some(row) = rows.first() else { return Ok(None) };
            let (item, quantity): (String, i64) = (row.get("item")?, row.get("quantity")?);
            Ok(Some(json!({"id": id, "item": item, "quantity": quantity})))
        })
        .await?;
    Ok(order.map_or_else(unknown, |order| HttpResponse::Ok().json(order)))
}

async fn openapi() -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(OPENAPI)
}

async fn method(allow: &'static str) -> HttpResponse {
    let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "this resource has no such method");
    response
        .headers_mut()
        .insert(header::ALLOW, header::HeaderValue::from_static(allow));
    response
}

fn problem(status: StatusCode, detail: &str) -> HttpResponse {
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or("Error"),
        "status": status.as_u16(),
        "detail": detail,
    });
    HttpResponse::build(status)
        .content_type("application/problem+json")
        .body(body.to_string())
}

/// Forgets keys three days old.
async fn reap(store: Arc<dyn store::Store>) {
    let mut every = tokio::time::interval(Duration::from_secs(600));
    loop {
        every.tick().await;
        while store
            .reap(Duration::from_secs(3 * 86_400), 1000)
            .await
            .is_ok_and(|gone| gone == 1000)
        {}
    }
}

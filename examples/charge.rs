//! Charges a card once for each order, whenever the process dies: a webhook says that an order was placed, the card is
//! charged at a payment gateway, a receipt is sent, and the ledger gets its row.
//!
//! - The gateway is called under an idempotency key that is the same in every attempt: if the process dies after the
//!   charge and before its record, the gateway recognises the second call.
//! - Each call is a step: once its result is recorded, no later attempt makes it again.
//! - The ledger's row is written in the transaction that settles the delivery, and so is a row of the outbox, which
//!   becomes an event of its own: all or nothing.
//!
//! It is the whole `cerca` command with a handler in it. To try it with the gateway that it brings along:
//!
//! ```sh
//! cargo run --example charge -- gateway 127.0.0.1:9090 &
//! cat >shop.toml <<'END'
//! [store]
//! url = "sqlite:shop.db"
//!
//! [[provider]]
//! name = "shop"
//! adapter = "generic_hmac"
//! secrets = ["a key that the shop and we share"]
//!
//! [[handler]]
//! name = "charge"
//! kind = "native"
//! events = ["shop:order.placed"]
//! timeout = "20s"
//! END
//! GATEWAY=http://127.0.0.1:9090 cargo run --example charge -- serve --config shop.toml &
//!
//! body='{"id":"order_1","type":"order.placed","cents":1200}'
//! sig=$(printf %s "$body" | openssl dgst -sha256 -hmac 'a key that the shop and we share' -r | cut -d' ' -f1)
//! curl http://127.0.0.1:8080/webhooks/shop -H "X-Signature: $sig" -d "$body"
//! cargo run --example charge -- events show shop order_1 --config shop.toml
//! ```

use std::{
    collections::HashMap,
    env,
    process::ExitCode,
    sync::{Mutex, OnceLock},
};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use cerca::{Call, Done, Failure, Native, NativeHandler};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    if let [_, command, address] = &arguments[..]
        && command == "gateway"
    {
        return gateway(address);
    }
    let charge = Charge {
        gateway: env::var("GATEWAY").unwrap_or_else(|_| "http://127.0.0.1:9090".to_owned()),
        client: OnceLock::new(),
    };
    let ledger = "create table if not exists ledger (order_id text primary key, cents bigint not null, charge text)";
    cerca::command_line(vec![Native::new("charge", charge).setup(move |store| {
        store.execute(ledger, &[])?;
        Ok(())
    })])
}

struct Charge {
    gateway: String,
    /// Made when it is first needed: the command line chooses the process's cryptography.
    client: OnceLock<reqwest::Client>,
}

/// What the shop says.
#[derive(Deserialize)]
struct Order {
    id: String,
    cents: i64,
}

/// What the gateway answers.
#[derive(Serialize, Deserialize)]
struct Charged {
    id: String,
}

impl NativeHandler for Charge {
    async fn handle(&self, call: Call) -> Result<Done, Failure> {
        let order: Order = call.json()?;
        let charged: Charged = call
            .step("charge", async || {
                self.post(&call, "charges", json!({ "order": order.id, "cents": order.cents }))
                    .await
            })
            .await?;
        let _: Charged = call
            .step("receipt", async || {
                self.post(&call, "receipts", json!({ "charge": charged.id })).await
            })
            .await?;
        Ok(Done::within(move |store| {
            store.execute(
                "insert into ledger (order_id, cents, charge) values ($1, $2, $3)",
                &[(&order.id).into(), order.cents.into(), (&charged.id).into()],
            )?;
            // Becomes the event `order.charged` of the provider `outbox`, for the handlers that want to know.
            store.execute(
                "insert into outbox (idempotency_key, topic, payload) values ($1, 'order.charged', $2)",
                &[
                    format!("{}:charged", order.id).into(),
                    json!({ "order": order.id, "cents": order.cents }).to_string().into(),
                ],
            )?;
            Ok(())
        }))
    }
}

impl Charge {
    async fn post(&self, call: &Call, what: &str, body: Value) -> Result<Charged, Failure> {
        let client = self.client.get_or_init(reqwest::Client::new);
        let answer = client
            .post(format!("{}/{what}", self.gateway))
            // The same in every attempt; each step has one of its own.
            .header("Idempotency-Key", format!("{}:{what}", call.idempotency_key()))
            .json(&body)
            .send()
            .await
            .map_err(Failure::retry)?;
        match answer.status().as_u16() {
            200 => answer.json().await.map_err(Failure::retry),
            402 => Err(Failure::GiveUp("the card was declined".to_owned())),
            status => Err(Failure::Retry(format!("the gateway answered {status}"))),
        }
    }
}

/// A gateway that does what good gateways do: a key that it has seen gets the first answer again.
fn gateway(address: &str) -> ExitCode {
    let seen: web::Data<Mutex<HashMap<String, String>>> = web::Data::default();
    let served = actix_web::rt::System::new().block_on(async {
        let app = move || App::new().app_data(seen.clone()).default_service(web::to(charge));
        HttpServer::new(app).bind(address)?.run().await
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

async fn charge(request: HttpRequest, seen: web::Data<Mutex<HashMap<String, String>>>) -> HttpResponse {
    let key = request
        .headers()
        .get("Idempotency-Key")
        .and_then(|key| key.to_str().ok());
    let (Some(key), Ok(mut seen)) = (key, seen.lock()) else {
        return HttpResponse::BadRequest().finish();
    };
    let next = format!("ch_{}", seen.len() + 1);
    let id = seen.entry(key.to_owned()).or_insert(next);
    HttpResponse::Ok().json(json!({ "id": id }))
}

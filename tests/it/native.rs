//! A program with a handler of its own (`examples/charge.rs`), killed at every point between a charge and its end.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{Answer, Server, Setup, Sink, TestStore, hmac_hex, on_both_stores, wait_until};

on_both_stores!(
    a_charge_is_made_once_when_the_process_dies_before_it,
    a_charge_is_made_once_when_the_process_dies_between_charge_and_record,
    a_charge_is_made_once_when_the_process_dies_after_its_record,
    steps_are_kept_when_a_dead_delivery_is_given_a_new_life,
    the_command_refuses_a_native_handler_that_it_does_not_have,
);

const SECRET: &str = "a key that the shop and we share";

/// A gateway that remembers keys, and can leave one request of a kind without an answer for ever.
#[derive(Clone)]
struct Gateway {
    sink: Sink,
    /// Keys under which something was done.
    done: Arc<Mutex<HashSet<String>>>,
    calls: Arc<AtomicUsize>,
    /// How often a charge was really made.
    charges: Arc<AtomicUsize>,
    receipts: Arc<AtomicUsize>,
}

/// Where the first call of a kind gets stuck.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stuck {
    Nowhere,
    /// Nothing is done and nothing is answered.
    BeforeCharge,
    /// The charge is made, and nothing is answered.
    AfterCharge,
    /// The charge was answered; the receipt is not.
    AtReceipt,
}

impl Gateway {
    async fn start(stuck: Stuck, refused_receipts: usize) -> Self {
        let (done, calls) = (Arc::<Mutex<HashSet<String>>>::default(), Arc::<AtomicUsize>::default());
        let (charges, receipts) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let script = {
            let (done, calls, charges, receipts) = (done.clone(), calls.clone(), charges.clone(), receipts.clone());
            move |request: &crate::support::Received, _: usize| {
                let first = calls.fetch_add(1, SeqCst) == 0;
                let key = request.header("idempotency-key").to_owned();
                let is_receipt = key.ends_with(":receipts");
                let never = Answer::status(200).after(Duration::from_secs(3600));
                if is_receipt {
                    let count = receipts.fetch_add(1, SeqCst);
                    return match stuck {
                        Stuck::AtReceipt if count == 0 => never,
                        _ if count < refused_receipts => Answer::status(500),
                        _ => Answer::json(200, r#"{"id":"re_1"}"#),
                    };
                }
                if first && stuck == Stuck::BeforeCharge {
                    return never;
                }
                if done.lock().unwrap().insert(key) {
                    charges.fetch_add(1, SeqCst);
                }
                if first && stuck == Stuck::AfterCharge {
                    return never;
                }
                Answer::json(200, r#"{"id":"ch_1"}"#)
            }
        };
        Self {
            sink: Sink::with(script).await,
            done,
            calls,
            charges,
            receipts,
        }
    }

    fn url(&self) -> String {
        self.sink.url().trim_end_matches("/hook").to_owned()
    }
}

/// `examples/charge.rs`, which `cargo test` and `tests/run` build with the tests.
fn program() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let program = deps.parent().and_then(Path::parent).unwrap().join("examples/charge");
    assert!(
        program.exists(),
        "{} is not there: run `cargo build --example charge`",
        program.display()
    );
    program
}

fn setup(store: &TestStore, gateway: &Gateway) -> Setup {
    Setup::new(store)
        .program(program(), &[("GATEWAY", gateway.url())])
        .with(&format!(
            "[[provider]]\nname = \"shop\"\nadapter = \"generic_hmac\"\nsecrets = [\"{SECRET}\"]\n"
        ))
        .with(
            "[[handler]]\nname = \"charge\"\nkind = \"native\"\nevents = [\"shop:order.placed\"]\n\
             retry = { attempts = 5, base = \"50ms\", cap = \"200ms\" }\n",
        )
}

async fn place_order(server: &Server) {
    let body = br#"{"id":"order_1","type":"order.placed","cents":1200}"#;
    let headers = vec![("X-Signature".to_owned(), hmac_hex(SECRET, body))];
    let reply = server.send("shop", headers, &body[..]).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Kills the process when the gateway has been called so often and does not answer; another one goes on.
async fn dies(store: TestStore, stuck: Stuck, calls: usize) -> (Gateway, Value) {
    let gateway = Gateway::start(stuck, 0).await;
    let setup = setup(&store, &gateway);
    let server = setup.start().await;
    place_order(&server).await;
    wait_until("the gateway is called", async || gateway.calls.load(SeqCst) == calls).await;
    assert_eq!(store.number("select count(*) from ledger").await, 0);
    server.kill();

    let server = setup.start().await;
    let event = server.wait_for("shop", "order_1", "done").await;
    assert_eq!(gateway.charges.load(SeqCst), 1);
    assert_eq!(gateway.done.lock().unwrap().len(), 1);
    assert_eq!(store.number("select count(*) from ledger").await, 1);
    assert_eq!(
        store
            .number("select count(*) from ledger where order_id = 'order_1' and cents = 1200 and charge = 'ch_1'")
            .await,
        1
    );
    one_event_came_of_it(&store, &server).await;
    assert_eq!(server.stop().await.code(), Some(0));
    (gateway, event)
}

/// What the handler wrote to the outbox in the transaction that settled its delivery. No handler wants it here.
async fn one_event_came_of_it(store: &TestStore, server: &Server) {
    let told = server.wait_for("outbox", "order_1:charged", "unrouted").await;
    assert_eq!(told["event_type"], "order.charged", "{told}");
    assert_eq!(store.number("select count(*) from outbox").await, 0);
    let events = "select count(*) from webhook_events where provider = 'outbox'";
    assert_eq!(store.number(events).await, 1);
    assert_eq!(store.number("select count(*) from conflicts").await, 0);
}

/// G4, G5, G6
async fn a_charge_is_made_once_when_the_process_dies_before_it(store: TestStore) {
    let (gateway, event) = dies(store, Stuck::BeforeCharge, 1).await;
    assert_eq!(gateway.calls.load(SeqCst), 3);
    assert_eq!(steps(&event), [("charge", 2), ("receipt", 2)], "{event}");
}

async fn a_charge_is_made_once_when_the_process_dies_between_charge_and_record(store: TestStore) {
    let (gateway, event) = dies(store, Stuck::AfterCharge, 1).await;
    // The gateway was asked again, under the same key.
    assert_eq!(gateway.calls.load(SeqCst), 3);
    assert_eq!(steps(&event), [("charge", 2), ("receipt", 2)], "{event}");
}

async fn a_charge_is_made_once_when_the_process_dies_after_its_record(store: TestStore) {
    let (gateway, event) = dies(store, Stuck::AtReceipt, 2).await;
    // The gateway was not asked again for the charge.
    assert_eq!(gateway.calls.load(SeqCst), 3);
    assert_eq!(gateway.receipts.load(SeqCst), 2);
    assert_eq!(steps(&event), [("charge", 1), ("receipt", 2)], "{event}");
    assert_eq!(event["steps"][0]["result"], json!({ "id": "ch_1" }));
}

async fn steps_are_kept_when_a_dead_delivery_is_given_a_new_life(store: TestStore) {
    let gateway = Gateway::start(Stuck::Nowhere, 5).await;
    let server = setup(&store, &gateway).start().await;
    place_order(&server).await;
    let event = server.wait_for("shop", "order_1", "failed").await;
    assert_eq!(steps(&event), [("charge", 1)], "{event}");

    let shown = server.cli(&["events", "show", "shop", "order_1"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("ch_1"), "{shown:?}");

    let again = server.cli(&["events", "reprocess", "shop", "order_1"]);
    assert!(again.status.success(), "{again:?}");
    let event = server.wait_for("shop", "order_1", "done").await;
    assert_eq!(steps(&event), [("charge", 1), ("receipt", 1)], "{event}");
    assert_eq!(gateway.charges.load(SeqCst), 1);
    let calls = gateway.calls.load(SeqCst);

    // A clean slate is what has to be asked for. The gateway knows the key; the ledger refuses a second row.
    let path = "/api/v1/events/shop/order_1/reprocess";
    let reply = server
        .post(path, &json!({ "handlers": ["charge"], "forget_steps": true }))
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let event = server.wait_for("shop", "order_1", "failed").await;
    assert_eq!(gateway.calls.load(SeqCst), calls + 2, "{event}");
    assert_eq!(gateway.charges.load(SeqCst), 1);
    assert_eq!(store.number("select count(*) from ledger").await, 1);
    // Its tries were undone whole: had they left a row in the outbox, it would be a duplicate.
    one_event_came_of_it(&store, &server).await;
    let metrics = server.get("/metrics").await.text();
    assert!(
        metrics.contains("cerca_outbox_relayed_total{outcome=\"stored\"} 1"),
        "{metrics}"
    );
    assert!(
        !metrics.contains("cerca_outbox_relayed_total{outcome=\"duplicate\"}"),
        "{metrics}"
    );
}

async fn the_command_refuses_a_native_handler_that_it_does_not_have(store: TestStore) {
    let mut server = Setup::new(&store)
        .with("[[handler]]\nname = \"charge\"\nkind = \"native\"\nevents = [\"*\"]\n")
        .spawn();
    assert_eq!(server.wait_for_exit().await.code(), Some(1));
    let log = server.log();
    assert!(
        log.contains("handler[0].kind") && log.contains("no native handler"),
        "{log}"
    );
}

/// Name and attempt of each recorded step.
fn steps(event: &Value) -> Vec<(&str, u64)> {
    let steps = event["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    steps
        .iter()
        .map(|step| (step["step"].as_str().unwrap(), step["attempt"].as_u64().unwrap()))
        .collect()
}

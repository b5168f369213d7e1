//! Handlers that publish to brokers, against the real ones: each test starts a server of its own, and some kill it.
//! `tests/run` sees to it that they are there; without it, a test of a missing one is skipped with a word.
//!
//! The store does not matter here, so these tests run on SQLite only.

mod amqp;
#[cfg(feature = "kafka")]
mod kafka;
mod nats;
mod program;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqs")]
mod sqs;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::{Engine, Server, Setup, TestStore, run};

/// Runs a test on a store of its own.
fn on_sqlite<F: Future<Output = ()>>(test: impl FnOnce(TestStore) -> F) {
    run(Engine::Sqlite, test);
}

/// A message as a consumer gets it.
#[derive(Debug, Clone)]
struct Received {
    /// Names in small letters.
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Bodies that a careless path would change.
const BODIES: [(&str, &[u8]); 7] = [
    ("json", br#"{"n":9007199254740993,"b":1.0,"a":"\u0000"}"#),
    ("lone-surrogate", br#"{"a":"\ud800"}"#),
    ("raw-nul", b"{\"a\":\"\0\"}"),
    ("not-utf8", b"\xff\xfe"),
    ("crlf", b"{\r\n\t\"a\" : 1\r\n}\r\n"),
    ("emoji", "{\"a\":\"😀 é \u{feff}\"}".as_bytes()),
    ("empty", b""),
];

/// A server with one handler for everything, named `forward`, that tries for as long as it takes.
fn setup(store: &TestStore, kind: &str) -> Setup {
    // A lease that a busy machine loses would make suspects, which run one after the other.
    Setup::new(store).lease("60s").with(&format!(
        "[[handler]]\nname = \"forward\"\nevents = [\"*\"]\n{kind}\ntimeout = \"5s\"\n\
         retry = {{ attempts = 100000, base = \"100ms\", cap = \"500ms\" }}\n"
    ))
}

/// Sends [`BODIES`] and waits until all are done.
async fn send_bodies(server: &Server) {
    for (name, body) in BODIES {
        server.github(name, body).await;
    }
    for (name, _) in BODIES {
        server.wait_for("github", name, "done").await;
    }
}

/// Each of [`BODIES`] came once, byte for byte, with its key.
fn assert_bodies(received: &[Received]) {
    assert_eq!(received.len(), BODIES.len(), "{received:?}");
    for (name, body) in BODIES {
        let key = format!("github:{name}:forward");
        let of_key: Vec<_> = received.iter().filter(|m| m.header("idempotency-key") == key).collect();
        assert_eq!(of_key.len(), 1, "{key}: {received:?}");
        assert_eq!(of_key[0].body, body, "{name}");
        assert_eq!(of_key[0].header("cerca-event-id"), name);
        assert_eq!(of_key[0].header("cerca-provider"), "github");
        assert_eq!(of_key[0].header("cerca-event-type"), "push");
        assert_eq!(of_key[0].header("cerca-attempt"), "1");
        assert_eq!(of_key[0].header("content-type"), "application/json");
    }
}

/// Sends events numbered in this range; each is answered 200 whatever the broker does.
async fn send_numbered(server: &Server, numbers: std::ops::Range<usize>) {
    for n in numbers {
        server.github(&n.to_string(), body(n).as_bytes()).await;
    }
}

/// Waits until the numbered events are done. None may have died on the way.
async fn all_done(server: &Server, numbers: std::ops::Range<usize>) {
    for n in numbers {
        server.wait_for("github", &n.to_string(), "done").await;
    }
}

/// Every number up to `count` came at least once, with its own body.
fn assert_numbered(received: &[Received], count: usize) {
    let came: BTreeSet<_> = received
        .iter()
        .map(|message| (message.header("idempotency-key").to_owned(), message.body.clone()))
        .collect();
    let sent: BTreeSet<_> = (0..count)
        .map(|n| (format!("github:{n}:forward"), body(n).into_bytes()))
        .collect();
    assert_eq!(came, sent);
}

/// Waits until one event is dead, after one attempt, and gives what was said of it.
async fn dead_at_once(server: &Server, id: &str) -> String {
    let event = server.wait_for("github", id, "failed").await;
    let attempts = event["attempts"].as_array().map_or(&[][..], Vec::as_slice);
    assert_eq!(attempts.len(), 1, "{event}");
    assert_eq!(attempts[0]["outcome"], "dead", "{event}");
    text(&attempts[0]["detail"])
}

/// Waits until an attempt was to be repeated, and gives what was said of it.
async fn retried(server: &Server, id: &str) -> String {
    let mut said = String::new();
    crate::support::wait_until(&format!("github {id} was tried in vain"), async || {
        let event = server.event("github", id).await;
        let found = event["attempts"].as_array().and_then(|a| {
            a.iter()
                .find(|a| a["outcome"] == "retry" || a["outcome"] == "unknown")
                .cloned()
        });
        said = found
            .as_ref()
            .map(|attempt| text(&attempt["detail"]))
            .unwrap_or_default();
        found.is_some()
    })
    .await;
    said
}

fn body(n: usize) -> String {
    format!("{{\"n\":{n}}}")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

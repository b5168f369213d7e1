//! SQS, as moto stands in for it: over its own protocol, in a process of its own.

use std::{net::SocketAddr, process::Command};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    Received, all_done, assert_bodies, assert_numbered, on_sqlite, program, program::Program, retried, send_bodies,
    send_numbered, setup,
};
use crate::support::{Setup, TestStore, wait_until};

/// Makes the queues before it listens, so that no request finds them missing. It keeps them in memory.
const SERVER: &str = "
import sys
from moto.sqs.models import sqs_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
backend = sqs_backends['123456789012']['eu-west-1']
backend.create_queue('hooks', {})
backend.create_queue('hooks.fifo', {}, FifoQueue='true')
app = DomainDispatcherApplication(create_backend_app)
run_simple('127.0.0.1', int(sys.argv[1]), app, threaded=True)
";

struct Sqs {
    program: Program,
    address: SocketAddr,
}

impl Sqs {
    async fn start(store: &TestStore) -> Option<Self> {
        let python = program::python()?;
        let address = program::free_address();
        let port = address.port().to_string();
        let make = move || {
            let mut command = Command::new(&python);
            command.args(["-c", SERVER, &port]);
            command
        };
        Some(Self {
            program: Program::start("moto", store, address, make).await,
            address,
        })
    }

    fn setup(&self, store: &TestStore, queue: &str) -> Setup {
        let kind = format!(
            "kind = \"sqs\"\nregion = \"eu-west-1\"\nendpoint = \"http://{0}\"\nqueue = \"{1}\"",
            self.address,
            self.url(queue)
        );
        setup(store, &kind)
            .environment("AWS_ACCESS_KEY_ID", "test")
            .environment("AWS_SECRET_ACCESS_KEY", "hunter2")
    }

    fn url(&self, queue: &str) -> String {
        format!("http://{}/123456789012/{queue}", self.address)
    }

    async fn call(&self, action: &str, body: &Value) -> Value {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let credential = "Credential=test/20260101/eu-west-1/sqs/aws4_request, SignedHeaders=host, Signature=0";
        let request = client
            .post(format!("http://{}/", self.address))
            .header("X-Amz-Target", format!("AmazonSQS.{action}"))
            .header("Content-Type", "application/x-amz-json-1.0")
            .header("Authorization", format!("AWS4-HMAC-SHA256 {credential}"))
            .body(body.to_string());
        let text = request.send().await.unwrap().text().await.unwrap();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{action}: {text}"))
    }

    /// Takes everything out of a queue, with the group of each message.
    async fn drain(&self, queue: &str) -> Vec<(String, Received)> {
        let mut received = Vec::new();
        loop {
            let answer = self
                .call(
                    "ReceiveMessage",
                    &json!({"QueueUrl": self.url(queue), "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"],
                            "AttributeNames": ["All"]}),
                )
                .await;
            let Some(messages) = answer["Messages"].as_array().filter(|m| !m.is_empty()) else {
                return received;
            };
            for message in messages {
                received.push(read(message));
                let handle = &message["ReceiptHandle"];
                self.call(
                    "DeleteMessage",
                    &json!({"QueueUrl": self.url(queue), "ReceiptHandle": handle}),
                )
                .await;
            }
        }
    }
}

fn read(message: &Value) -> (String, Received) {
    let attributes = message["MessageAttributes"].as_object().unwrap();
    let headers = attributes.iter().map(|(name, value)| {
        (
            name.to_ascii_lowercase(),
            value["StringValue"].as_str().unwrap().to_owned(),
        )
    });
    let headers: std::collections::BTreeMap<_, _> = headers.collect();
    let text = message["Body"].as_str().unwrap();
    let body = match headers.get("cerca-encoding").map(String::as_str) {
        None => text.as_bytes().to_vec(),
        Some("base64") => BASE64_STANDARD.decode(text).unwrap(),
        Some("empty") => Vec::new(),
        Some(other) => panic!("{other}"),
    };
    let group = message["Attributes"]["MessageGroupId"].as_str().unwrap_or_default();
    (group.to_owned(), Received { headers, body })
}

fn messages(all: Vec<(String, Received)>) -> Vec<Received> {
    all.into_iter().map(|(_, message)| message).collect()
}

#[test]
fn every_event_is_in_the_queue_once() {
    on_sqlite(async |store: TestStore| {
        let Some(sqs) = Sqs::start(&store).await else { return };
        let server = sqs.setup(&store, "hooks").start().await;
        send_bodies(&server).await;
        assert_bodies(&messages(sqs.drain("hooks").await));
        assert!(!server.log().contains("hunter2"));
    });
}

#[test]
fn a_fifo_queue_gets_groups_and_drops_repetitions() {
    on_sqlite(async |store: TestStore| {
        let Some(sqs) = Sqs::start(&store).await else { return };
        let server = sqs.setup(&store, "hooks.fifo").start().await;
        send_bodies(&server).await;
        assert_bodies(&messages(sqs.drain("hooks.fifo").await));
        server.stripe("evt_1").await;
        server.wait_for("stripe", "evt_1", "done").await;
        let output = server.cli(&["events", "reprocess", "stripe", "evt_1", "--handler", "forward"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        wait_until("the second try is done", async || {
            let event = server.event("stripe", "evt_1").await;
            event["status"] == "done" && event["attempts"].as_array().is_some_and(|attempts| attempts.len() == 2)
        })
        .await;
        let received = sqs.drain("hooks.fifo").await;
        assert_eq!(received.len(), 1, "the second try is dropped by its key: {received:?}");
        assert_eq!(received[0].0, "cus_1", "the group is the ordering key");
    });
}

/// What is in the queue when moto is killed dies with it, so it is taken out before.
#[test]
fn a_killed_server_loses_nothing() {
    on_sqlite(async |store: TestStore| {
        let Some(mut sqs) = Sqs::start(&store).await else {
            return;
        };
        let server = sqs.setup(&store, "hooks").start().await;
        send_numbered(&server, 0..20).await;
        all_done(&server, 0..20).await;
        let mut received = messages(sqs.drain("hooks").await);
        sqs.program.kill();
        send_numbered(&server, 20..40).await;
        retried(&server, "39").await;
        sqs.program.restart().await;
        all_done(&server, 20..40).await;
        received.extend(messages(sqs.drain("hooks").await));
        assert_numbered(&received, 40);
    });
}

#[test]
fn a_queue_that_is_not_there_is_looked_for_again() {
    on_sqlite(async |store: TestStore| {
        let Some(sqs) = Sqs::start(&store).await else { return };
        let server = sqs.setup(&store, "nowhere").start().await;
        server.github("1", b"{}").await;
        let said = retried(&server, "1").await;
        assert!(
            said.contains("refused: ") && said.contains("queue does not exist"),
            "{said}"
        );
    });
}

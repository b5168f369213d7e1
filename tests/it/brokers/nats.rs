//! JetStream of a real nats-server.

use std::{net::SocketAddr, path::Path, process::Command, time::Duration};

use async_nats::jetstream::{self, consumer::PullConsumer, stream};
use futures_util::StreamExt as _;

use super::{
    Received, all_done, assert_bodies, assert_numbered, dead_at_once, on_sqlite, program, program::Program, retried,
    send_bodies, send_numbered, setup,
};
use crate::support::TestStore;

struct Nats {
    program: Program,
    address: SocketAddr,
}

impl Nats {
    async fn start(store: &TestStore, more: &str) -> Option<Self> {
        let binary = program::find(&["nats-server"])?;
        let address = program::free_address();
        let config = store.folder().join("nats.conf");
        let data = store.folder().join("jetstream");
        let text = format!(
            "listen: \"{address}\"\njetstream {{ store_dir: \"{}\" }}\n{more}\n",
            data.display()
        );
        std::fs::write(&config, text).unwrap();
        let make = move || command(&binary, &config);
        Some(Self {
            program: Program::start("nats", store, address, make).await,
            address,
        })
    }

    fn handler(&self, more: &str) -> String {
        format!("kind = \"nats\"\nurl = \"nats://{}\"\n{more}", self.address)
    }

    async fn jetstream(&self) -> jetstream::Context {
        let client = async_nats::connect(self.address.to_string()).await.unwrap();
        jetstream::new(client)
    }

    async fn create(&self, stream: stream::Config) {
        self.jetstream().await.create_stream(stream).await.unwrap();
    }

    /// Everything in the stream, from its beginning.
    async fn all(&self) -> Vec<(String, Received)> {
        let mut stream = self.jetstream().await.get_stream("hooks").await.unwrap();
        let count = stream.info().await.unwrap().state.messages;
        let config = jetstream::consumer::pull::Config::default();
        let consumer: PullConsumer = stream.create_consumer(config).await.unwrap();
        let mut batch = consumer
            .fetch()
            .max_messages(usize::try_from(count).unwrap() + 1)
            .expires(Duration::from_secs(2))
            .messages()
            .await
            .unwrap();
        let mut received = Vec::new();
        while let Some(message) = batch.next().await {
            let message = message.unwrap();
            let headers = message.headers.clone().unwrap_or_default();
            let headers = headers.iter().map(|(name, values)| {
                let name: &str = name.as_ref();
                (name.to_ascii_lowercase(), values[0].as_str().to_owned())
            });
            received.push((
                message.subject.to_string(),
                Received {
                    headers: headers.collect(),
                    body: message.payload.to_vec(),
                },
            ));
        }
        assert_eq!(received.len() as u64, count);
        received
    }
}

fn command(binary: &Path, config: &Path) -> Command {
    let mut command = Command::new(binary);
    command.arg("-c").arg(config);
    command
}

fn hooks() -> stream::Config {
    stream::Config {
        name: "hooks".into(),
        subjects: vec!["in.>".into()],
        ..stream::Config::default()
    }
}

fn messages(all: Vec<(String, Received)>) -> Vec<Received> {
    all.into_iter().map(|(_, message)| message).collect()
}

#[test]
fn every_event_is_in_the_stream_once() {
    on_sqlite(async |store: TestStore| {
        let Some(nats) = Nats::start(&store, "").await else {
            return;
        };
        nats.create(hooks()).await;
        let server = setup(&store, &nats.handler("subject = \"in.{provider}.{type}\""))
            .start()
            .await;
        send_bodies(&server).await;
        let all = nats.all().await;
        assert!(all.iter().all(|(subject, _)| subject == "in.github.push"), "{all:?}");
        for (_, message) in &all {
            assert_eq!(message.header("nats-msg-id"), message.header("idempotency-key"));
        }
        assert_bodies(&messages(all));
    });
}

#[test]
fn what_is_made_of_a_payload_is_what_is_sent() {
    on_sqlite(async |store: TestStore| {
        let Some(nats) = Nats::start(&store, "").await else {
            return;
        };
        nats.create(hooks()).await;
        let more = "subject = \"in.x\"\ntransform = '{made: .n}'\nwhen = '.n != 2'";
        let server = setup(&store, &nats.handler(more)).start().await;
        server.github("1", b"{\"n\": 1, \"other\": 1}").await;
        server.github("2", b"{\"n\": 2}").await;
        server.wait_for("github", "1", "done").await;
        server.wait_for("github", "2", "done").await;
        let bodies: Vec<_> = messages(nats.all().await).into_iter().map(|m| m.body).collect();
        assert_eq!(bodies, [b"{\"made\":1}"]);
    });
}

#[test]
fn a_killed_server_loses_nothing_and_gets_nothing_twice() {
    on_sqlite(async |store: TestStore| {
        let Some(mut nats) = Nats::start(&store, "").await else {
            return;
        };
        nats.create(hooks()).await;
        let server = setup(&store, &nats.handler("subject = \"in.x\"")).start().await;
        send_numbered(&server, 0..20).await;
        nats.program.kill();
        send_numbered(&server, 20..40).await;
        retried(&server, "39").await;
        nats.program.restart().await;
        all_done(&server, 0..40).await;
        let all = messages(nats.all().await);
        assert_numbered(&all, 40);
        assert_eq!(all.len(), 40, "the stream knows repetitions by their key");
    });
}

#[test]
fn what_no_stream_takes_is_tried_until_one_does() {
    on_sqlite(async |store: TestStore| {
        let Some(nats) = Nats::start(&store, "max_payload: 4096").await else {
            return;
        };
        let server = setup(&store, &nats.handler("subject = \"in.x\"")).start().await;
        server.github("early", b"{}").await;
        let said = retried(&server, "early").await;
        assert!(said.contains("no stream takes the subject in.x"), "{said}");

        let config = stream::Config {
            max_message_size: 1024,
            ..hooks()
        };
        nats.create(config).await;
        server.wait_for("github", "early", "done").await;

        server.github("large", &[b'x'; 2000]).await;
        let said = dead_at_once(&server, "large").await;
        assert!(said.contains("the stream refused it"), "{said}");
        server.github("huge", &[b'x'; 5000]).await;
        let said = dead_at_once(&server, "huge").await;
        assert!(said.contains("larger than the server takes"), "{said}");
    });
}

#[test]
fn a_wrong_password_is_tried_again_and_not_shown() {
    on_sqlite(async |store: TestStore| {
        let users = "authorization { users = [ { user: u, password: right } ] }";
        let Some(nats) = Nats::start(&store, users).await else {
            return;
        };
        let url = format!("nats://u:hunter2@{}", nats.address);
        let kind = format!("kind = \"nats\"\nurl = \"{url}\"\nsubject = \"in.x\"");
        let server = setup(&store, &kind).start().await;
        server.github("1", b"{}").await;
        let said = retried(&server, "1").await;
        assert!(said.contains("cannot connect"), "{said}");
        assert!(!said.contains("hunter2") && !server.log().contains("hunter2"), "{said}");
    });
}

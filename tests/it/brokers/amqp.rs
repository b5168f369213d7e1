//! RabbitMQ.

use std::{net::SocketAddr, path::PathBuf, process::Command};

use lapin::{
    Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};

use super::{
    Received, all_done, assert_bodies, assert_numbered, dead_at_once, on_sqlite, program, program::Program, retried,
    send_bodies, send_numbered, setup,
};
use crate::support::TestStore;

struct Rabbit {
    program: Program,
    address: SocketAddr,
    /// Knows under which port the node's own name is. Of the test's own, so that nothing stays behind.
    _names: Program,
}

impl Rabbit {
    async fn start(store: &TestStore) -> Option<Self> {
        let binary = program::find(&["/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"])?;
        let names = program::find(&["epmd"])?;
        let (address, distribution) = (program::free_address(), program::free_address());
        let names_at = program::free_address();
        let port = names_at.port().to_string();
        let names = Program::start("epmd", store, names_at, move || {
            let mut command = Command::new(&names);
            command.args(["-port", &port, "-address", "127.0.0.1"]);
            command
        });
        let names = names.await;
        let folder = store.folder().join("rabbitmq");
        std::fs::create_dir_all(folder.join("home")).unwrap();
        std::fs::write(folder.join("plugins"), "[].\n").unwrap();
        std::fs::write(folder.join("rabbitmq.conf"), "max_message_size = 20000\n").unwrap();
        let ports = [address.port(), distribution.port(), names_at.port()];
        let program = Program::start("rabbitmq", store, address, move || command(&binary, &folder, ports));
        Some(Self {
            program: program.await,
            address,
            _names: names,
        })
    }

    fn handler(&self, more: &str) -> String {
        format!("kind = \"amqp\"\nurl = \"amqp://guest:guest@{}\"\n{more}", self.address)
    }

    async fn channel(&self) -> (Connection, Channel) {
        let url = format!("amqp://guest:guest@{}", self.address);
        let connection = Connection::connect(&url, ConnectionProperties::default())
            .await
            .unwrap();
        let channel = connection.create_channel().await.unwrap();
        (connection, channel)
    }

    /// A topic exchange `hooks` and a quorum queue `all` that takes what is in `keys`.
    async fn declare(&self, keys: &str) {
        let (_connection, channel) = self.channel().await;
        let none = FieldTable::default;
        let durable = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        channel
            .exchange_declare("hooks".into(), ExchangeKind::Topic, durable, none())
            .await
            .unwrap();
        let mut quorum = none();
        quorum.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        let durable = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        channel.queue_declare("all".into(), durable, quorum).await.unwrap();
        let bound = channel.queue_bind(
            "all".into(),
            "hooks".into(),
            keys.into(),
            QueueBindOptions::default(),
            none(),
        );
        bound.await.unwrap();
    }

    /// Takes everything out of the queue, with the routing keys.
    async fn drain(&self) -> Vec<(String, Received)> {
        let (_connection, channel) = self.channel().await;
        let mut received = Vec::new();
        let options = BasicGetOptions { no_ack: true };
        while let Some(message) = channel.basic_get("all".into(), options).await.unwrap() {
            let properties = &message.properties;
            let table = properties.headers().clone().unwrap_or_default();
            let headers = table.inner().iter().filter_map(|(name, value)| match value {
                AMQPValue::LongString(text) => Some((name.as_str().to_ascii_lowercase(), text.to_string())),
                _ => None,
            });
            let headers: std::collections::BTreeMap<_, _> = headers.collect();
            assert_eq!(*properties.delivery_mode(), Some(2), "persistent");
            assert_eq!(
                properties.message_id().as_ref().map(|id| id.as_str()),
                headers.get("idempotency-key").map(|k| &**k)
            );
            assert_eq!(
                properties.content_type().as_ref().map(|t| t.as_str()),
                Some("application/json")
            );
            let body = message.data.clone();
            received.push((message.routing_key.to_string(), Received { headers, body }));
        }
        received
    }
}

fn command(binary: &PathBuf, folder: &std::path::Path, [port, distribution, names]: [u16; 3]) -> Command {
    let at = |name: &str| folder.join(name).into_os_string();
    let mut command = Command::new(binary);
    command
        // The script then becomes the node, and a signal to it is one to the node.
        .env("RUNNING_UNDER_SYSTEMD", "1")
        .env("HOME", at("home"))
        .env("ERL_EPMD_PORT", names.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODENAME", "cerca@localhost")
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", port.to_string())
        .env("RABBITMQ_DIST_PORT", distribution.to_string())
        .env("RABBITMQ_MNESIA_BASE", at("mnesia"))
        .env("RABBITMQ_LOG_BASE", at("log"))
        .env("RABBITMQ_CONFIG_FILE", at("rabbitmq"))
        .env("RABBITMQ_ADVANCED_CONFIG_FILE", at("none"))
        .env("RABBITMQ_CONF_ENV_FILE", at("none.conf"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", at("plugins"))
        .env("RABBITMQ_PID_FILE", at("pid"))
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+S 1:1 +sbwt none");
    command
}

/// One test for all that a healthy broker shows, because one takes long to start.
#[test]
fn messages_arrive_once_and_what_is_refused_is_told_apart() {
    on_sqlite(async |store: TestStore| {
        let Some(rabbit) = Rabbit::start(&store).await else {
            return;
        };
        rabbit.declare("github.#").await;
        let exchange = "exchange = \"hooks\"\nrouting_key = \"{provider}.{type}\"";
        let server = setup(&store, &rabbit.handler(exchange)).start().await;
        send_bodies(&server).await;
        let received = rabbit.drain().await;
        assert!(received.iter().all(|(key, _)| key == "github.push"), "{received:?}");
        let received: Vec<_> = received.into_iter().map(|(_, message)| message).collect();
        assert_bodies(&received);

        server.github("large", &[b'x'; 30_000]).await;
        let said = dead_at_once(&server, "large").await;
        assert!(said.contains("PRECONDITION_FAILED"), "{said}");
        server.github("after", b"{}").await;
        server.wait_for("github", "after", "done").await;
        drop(server);

        // A message that no queue takes comes back; nothing of it is in the log.
        let store = TestStore::create(crate::support::Engine::Sqlite).await.unwrap();
        let nowhere = "exchange = \"hooks\"\nrouting_key = \"nowhere\"";
        let server = setup(&store, &rabbit.handler(nowhere)).start().await;
        server.github("1", b"{\"a\":\"hunter2\"}").await;
        let said = retried(&server, "1").await;
        assert!(said.contains("no queue takes it: 312 NO_ROUTE"), "{said}");
        assert!(!server.log().contains("hunter2"));
        rabbit.declare("nowhere").await;
        server.wait_for("github", "1", "done").await;
        drop(server);

        let store = TestStore::create(crate::support::Engine::Sqlite).await.unwrap();
        let server = setup(&store, &rabbit.handler("exchange = \"unknown\"")).start().await;
        server.github("1", b"{}").await;
        let said = retried(&server, "1").await;
        assert!(said.contains("no exchange 'unknown'"), "{said}");
    });
}

#[test]
fn a_killed_broker_loses_nothing() {
    on_sqlite(async |store: TestStore| {
        let Some(mut rabbit) = Rabbit::start(&store).await else {
            return;
        };
        rabbit.declare("#").await;
        // RabbitMQ writes down a moment later what was declared; a queue that it forgot would never confirm.
        rabbit.program.stop();
        rabbit.program.restart().await;
        let server = setup(&store, &rabbit.handler("exchange = \"hooks\"")).start().await;
        send_numbered(&server, 0..20).await;
        rabbit.program.kill();
        send_numbered(&server, 20..40).await;
        retried(&server, "39").await;
        rabbit.program.restart().await;
        all_done(&server, 0..40).await;
        let received: Vec<_> = rabbit.drain().await.into_iter().map(|(_, message)| message).collect();
        assert_numbered(&received, 40);
    });
}

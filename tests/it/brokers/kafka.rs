//! Kafka, as the mock cluster of librdkafka speaks it: three brokers within the test's own process, over TCP. They cannot
//! be killed, but they can go away and come back with what they have.

use std::time::Duration;

use rdkafka::{
    ClientConfig, Message as _,
    consumer::{BaseConsumer, Consumer as _},
    message::Headers as _,
    mocking::MockCluster,
    producer::DefaultProducerContext,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};

use super::{
    Received, all_done, assert_bodies, assert_numbered, dead_at_once, on_sqlite, retried, send_bodies, send_numbered,
    setup,
};
use crate::support::TestStore;

const BROKERS: i32 = 3;

struct Kafka(MockCluster<'static, DefaultProducerContext>);

impl Kafka {
    fn start() -> Self {
        let cluster = MockCluster::new(BROKERS).unwrap();
        cluster.create_topic("hooks", 3, BROKERS).unwrap();
        Self(cluster)
    }

    fn handler(&self) -> String {
        let brokers = self.0.bootstrap_servers().replace(',', "\", \"");
        format!("kind = \"kafka\"\ntopic = \"hooks\"\nbrokers = [\"{brokers}\"]")
    }

    fn down(&self) {
        for id in 1..=BROKERS {
            self.0.broker_down(id).unwrap();
        }
    }

    fn up(&self) {
        for id in 1..=BROKERS {
            self.0.broker_up(id).unwrap();
        }
    }

    /// What is in the topic, with the keys, once there are at least so many.
    fn all(&self, count: usize) -> Vec<(Option<String>, Received)> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.0.bootstrap_servers())
            .set("group.id", format!("test-{:x}", rand::random::<u64>()))
            .set("auto.offset.reset", "earliest")
            .create()
            .unwrap();
        consumer.subscribe(&["hooks"]).unwrap();
        let mut received = Vec::new();
        let mut silent = 0;
        // Up to a minute for the first, and then as long as more may come.
        while silent < if received.len() < count { 60 } else { 2 } {
            let Some(message) = consumer.poll(Duration::from_secs(1)) else {
                silent += 1;
                continue;
            };
            let Ok(message) = message else { continue };
            let headers = message.headers().unwrap().iter().map(|header| {
                let value = String::from_utf8(header.value.unwrap().to_vec()).unwrap();
                (header.key.to_ascii_lowercase(), value)
            });
            let key = message.key().map(|key| String::from_utf8(key.to_vec()).unwrap());
            received.push((
                key,
                Received {
                    headers: headers.collect(),
                    body: message.payload().unwrap_or_default().to_vec(),
                },
            ));
        }
        received
    }
}

fn messages(all: Vec<(Option<String>, Received)>) -> Vec<Received> {
    all.into_iter().map(|(_, message)| message).collect()
}

#[test]
fn every_event_is_in_the_topic_once() {
    on_sqlite(async |store: TestStore| {
        let kafka = Kafka::start();
        let server = setup(&store, &kafka.handler()).start().await;
        send_bodies(&server).await;
        assert_bodies(&messages(kafka.all(super::BODIES.len())));
        server.stripe("evt_1").await;
        server.wait_for("stripe", "evt_1", "done").await;
        let all = kafka.all(super::BODIES.len() + 1);
        let of_stripe = all
            .iter()
            .find(|(_, message)| message.header("cerca-provider") == "stripe");
        assert_eq!(
            of_stripe.unwrap().0.as_deref(),
            Some("cus_1"),
            "the key is the ordering key"
        );
    });
}

#[test]
fn brokers_that_go_away_lose_nothing() {
    on_sqlite(async |store: TestStore| {
        let kafka = Kafka::start();
        let server = setup(&store, &kafka.handler()).start().await;
        send_numbered(&server, 0..20).await;
        kafka.down();
        send_numbered(&server, 20..40).await;
        retried(&server, "39").await;
        kafka.up();
        all_done(&server, 0..40).await;
        assert_numbered(&messages(kafka.all(40)), 40);
    });
}

#[test]
fn what_the_topic_refuses_is_final() {
    on_sqlite(async |store: TestStore| {
        let kafka = Kafka::start();
        let server = setup(&store, &kafka.handler()).start().await;
        let too_large = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
        kafka.0.request_errors(RDKafkaApiKey::Produce, &[too_large]);
        server.github("large", b"{}").await;
        let said = dead_at_once(&server, "large").await;
        assert!(said.contains("not produced"), "{said}");
        server.github("small", b"{}").await;
        server.wait_for("github", "small", "done").await;
    });
}

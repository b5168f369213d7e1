use std::{path::Path, sync::Arc};

use crate::handlers::{Context, HandlerSpec, build};

fn problem(toml: &str) -> String {
    let spec: HandlerSpec = toml::from_str(&format!("name = \"h\"\nevents = [\"*\"]\n{toml}")).unwrap();
    let context = Context {
        base: Path::new("/"),
        environment: &[],
        resolve: &|text| match text {
            "env:UNSET" => Err("the variable UNSET is not set".into()),
            text => Ok(text.into()),
        },
        form_fields: Arc::default(),
        normalizers: Arc::default(),
    };
    build(&[spec], &context).map_or_else(|e| e.to_string(), |_| "fine".into())
}

fn all(kind: &str, cases: &[(&str, &str)]) {
    for (toml, expected) in cases {
        let text = problem(&format!("kind = \"{kind}\"\n{}", toml.replace("; ", "\n")));
        assert!(text.contains(expected), "{kind}: {toml}: {text}");
        assert!(text == "fine" || text.starts_with("handler `h`: `"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn mistakes_of_nats_name_the_key() {
    all(
        "nats",
        &[
            ("url = \"nats://a:4222\"; subject = \"in.{provider}.{type}\"", "fine"),
            ("url = \"nats://u:p@a:4222, tls://b\"; subject = \"in\"", "fine"),
            ("subject = \"in\"", "`url` is required"),
            ("url = \"nats://a\"", "`subject` is required"),
            ("url = \"env:UNSET\"; subject = \"in\"", "UNSET is not set"),
            (
                "url = \"http://u:hunter2@a\"; subject = \"in\"",
                "`url` must be nats://",
            ),
            ("url = \"wss://u:hunter2@a\"; subject = \"in\"", "`url` must be nats://"),
            ("url = \"nats://a\"; subject = \"in.*\"", "`subject`"),
            ("url = \"nats://a\"; subject = \"in..x\"", "`subject`"),
            ("url = \"nats://a\"; subject = \"\"", "`subject`"),
            (
                "url = \"nats://a\"; subject = \"in.{id}\"",
                "`subject`: {id} is unknown",
            ),
            (
                "url = \"nats://a\"; subject = \"in\"; credentials = \"hunter2\"",
                "`credentials`",
            ),
            (
                "url = \"nats://a\"; subject = \"in\"; tls = { ca = \"hunter2\" }",
                "`tls.ca`",
            ),
            (
                "url = \"nats://a\"; subject = \"in\"; topic = \"x\"",
                "`topic` belongs to kind = \"kafka\"",
            ),
        ],
    );
}

#[test]
fn mistakes_of_amqp_name_the_key() {
    let long = format!("url = \"amqp://a\"; exchange = \"{}\"", "x".repeat(256));
    all(
        "amqp",
        &[
            (
                "url = \"amqp://u:p@a/v\"; exchange = \"x\"; routing_key = \"{type}\"",
                "fine",
            ),
            ("url = \"amqps://a\"; routing_key = \"queue\"", "fine"),
            ("exchange = \"x\"", "`url` is required"),
            (
                "url = \"http://u:hunter2@a\"; exchange = \"x\"",
                "`url` must be amqp://",
            ),
            ("url = \"amqp://a\"", "`exchange` or `routing_key` is required"),
            (
                "url = \"amqp://a\"; exchange = \"x\"; routing_key = \"{\"",
                "`routing_key`",
            ),
            (
                "url = \"amqp://a\"; exchange = \"x\"; tls = { ca = \"hunter2\" }",
                "`tls.ca`",
            ),
            (&long, "`exchange` must be at most 255"),
        ],
    );
}

#[cfg(feature = "kafka")]
#[test]
fn mistakes_of_kafka_name_the_key() {
    all(
        "kafka",
        &[
            ("brokers = [\"a:9092\"]; topic = \"events\"", "fine"),
            (
                "brokers = [\"a:9092\"]; topic = \"e\"; options = { \"compression.type\" = \"lz4\" }",
                "fine",
            ),
            (
                "brokers = [\"a:9092\"]; topic = \"e\"; options = { \"security.protocol\" = \"sasl_ssl\", \
                 \"sasl.mechanism\" = \"SCRAM-SHA-512\", \"sasl.username\" = \"u\", \"sasl.password\" = \"p\" }",
                "fine",
            ),
            ("topic = \"events\"", "`brokers` is required"),
            ("brokers = [\"a:9092\"]", "`topic` is required"),
            ("brokers = [\"a:9092\"]; topic = \"a b\"", "`topic`"),
            ("brokers = [\"\"]; topic = \"a\"", "`brokers`"),
            (
                "brokers = [\"a\"]; topic = \"a\"; options = { acks = \"0\" }",
                "`options`: \"acks\"",
            ),
            (
                "brokers = [\"a\"]; topic = \"a\"; options = { nonsense = \"hunter2\" }",
                "`options`: \"nonsense\"",
            ),
            (
                "brokers = [\"a\"]; topic = \"a\"; options = { \"sasl.password\" = \"env:UNSET\" }",
                "UNSET is not set",
            ),
        ],
    );
}

#[cfg(feature = "redis")]
#[test]
fn mistakes_of_redis_name_the_key() {
    all(
        "redis",
        &[
            ("url = \"redis://a\"; stream = \"events:{provider}\"", "fine"),
            (
                "url = \"rediss://u:p@a:6380/1\"; stream = \"events\"; max_length = 1000",
                "fine",
            ),
            ("stream = \"events\"", "`url` is required"),
            ("url = \"redis://a\"", "`stream` is required"),
            ("url = \"http://u:hunter2@a\"; stream = \"e\"", "`url` must be redis://"),
            ("url = \"rediss://a/#insecure\"; stream = \"e\"", "`url`"),
            ("url = \"redis://a\"; stream = \"e\"; max_length = 0", "`max_length`"),
            (
                "url = \"redis://a\"; stream = \"e\"; tls = { ca = \"hunter2\" }",
                "`tls.ca`",
            ),
        ],
    );
}

#[cfg(feature = "sqs")]
#[test]
fn mistakes_of_sqs_name_the_key() {
    all(
        "sqs",
        &[
            ("queue = \"https://sqs.eu-west-1.amazonaws.com/1/q.fifo\"", "fine"),
            (
                "queue = \"http://localhost:1/1/q\"; endpoint = \"http://localhost:1\"; region = \"eu-west-1\"",
                "fine",
            ),
            ("region = \"eu-west-1\"", "`queue` is required"),
            ("queue = \"events\"", "`queue` must be its URL"),
            ("queue = \"https://a/1/q\"; endpoint = \"localhost\"", "`endpoint`"),
            (
                "queue = \"https://a/1/q\"; url = \"http://x\"",
                "`url` belongs to kind = \"http\"",
            ),
        ],
    );
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_kind_that_is_not_built_names_its_feature() {
    let text = problem("kind = \"kafka\"\nbrokers = [\"a:9092\"]\ntopic = \"events\"");
    assert!(text.contains("`kind`") && text.contains("--features kafka"), "{text}");
}

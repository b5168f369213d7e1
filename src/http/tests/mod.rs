//! The HTTP surface over real sockets, with a store in memory.

mod admin;
mod limits;
mod public;
mod sqlite;
mod store;
mod transport;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use secrecy::SecretString;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;

use super::{Providers, QuarantineLimits, Running, Secrets, Services, Settings, start};
use crate::{
    adapters::{Adapter, Provider, ProviderSpec, Registry},
    idempotency::{Engine, Layer},
    store::Store,
};

use store::MemoryStore;

const ADAPTER: &str = r#"
title = "Acme"
[[signature]]
scheme = "token"
source = "header:X-Acme-Proof"
[event]
id = ["item:/id", "body:/id"]
type = "body:/type"
[batch]
items = "body:/items/*"
when = "body:/items"
[[handshake]]
method = "GET"
when = "query:challenge"
require = "query:verify == config:verify"
body = "{query:challenge}"
refuse = 403

[normalize]
unit = "major"
amount = "body:/amount"
currency = "KWD"
reference = "header:X-Acme-Topic"
types = { paid = "payment.succeeded" }
"#;

const MAX_BODY: usize = 64 * 1024;

/// Both servers on free ports, and what is behind them. Stops when dropped.
struct Servers {
    store: Arc<MemoryStore>,
    running: Option<Running>,
    public: SocketAddr,
    admin: SocketAddr,
    shutdown: CancellationToken,
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn settings() -> Settings {
    Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        admin_listen: ([127, 0, 0, 1], 0).into(),
        body_timeout: Duration::from_secs(5),
        workers: 1,
        shutdown_timeout: Duration::from_secs(2),
        ..Settings::default()
    }
}

fn serve() -> Servers {
    serve_with(settings())
}

fn serve_with(settings: Settings) -> Servers {
    let store = Arc::new(MemoryStore::default());
    let shutdown = CancellationToken::new();
    let running = start(settings, services(store.clone()), shutdown.clone()).unwrap();
    Servers {
        store,
        public: running.public.unwrap(),
        admin: running.admin,
        running: Some(running),
        shutdown,
    }
}

fn services(store: Arc<dyn Store>) -> Services {
    let mut registry = Registry::default();
    registry.insert(Adapter::parse("acme", ADAPTER).unwrap());
    let provider = |name: &str, on_conflict| {
        let spec = ProviderSpec {
            name: name.into(),
            adapter: Some("acme".into()),
            secrets: vec![SecretString::from("right")],
            public_url: "https://hooks.example.com".into(),
            max_body: MAX_BODY,
            on_conflict,
            options: [("verify".to_owned(), "me".to_owned())].into(),
            ..ProviderSpec::default()
        };
        Arc::new(Provider::new(spec, &registry).unwrap())
    };
    let prometheus = metrics_exporter_prometheus::PrometheusBuilder::new()
        .build_recorder()
        .handle();
    let engine_store = Arc::clone(&store);
    let providers = Arc::new(Providers::new([provider("acme", 200), provider("strict", 409)]));
    Services {
        secrets: Arc::new(Secrets::new(store.clone(), providers.clone(), None, [])),
        store,
        providers,
        router: Arc::new(|_, _, event_type| match event_type {
            Some("ignored") => "".into(),
            _ => "ledger,mail".into(),
        }),
        pulls: Arc::default(),
        quarantine: QuarantineLimits {
            rows: 100,
            bytes: 1 << 20,
            rate: 100,
        },
        gateways: Arc::default(),
        engine: Arc::new(Engine::new(Layer::new(engine_store))),
        handlers: vec!["ledger".into(), "mail".into()],
        running: Vec::new(),
        adapters: Arc::new(registry),
        prometheus: Some(prometheus),
    }
}

/// What came back.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The `detail` of a problem, whose form is checked.
    fn problem(&self) -> String {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        let json = self.json();
        assert_eq!(json["status"], self.status);
        assert!(json["type"].is_string() && json["title"].is_string());
        json["detail"].as_str().unwrap().to_owned()
    }
}

/// A connection that is written and read by hand.
struct Client(TcpStream);

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The next answer, of a request that was not HEAD.
    async fn reply(&mut self) -> Reply {
        self.read_reply(true).await
    }

    async fn read_reply(&mut self, with_body: bool) -> Reply {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.timely(|io| Box::pin(io.read_u8())).await.expect("an answer"));
        }
        let head = String::from_utf8(head).unwrap();
        let mut reply = Reply {
            status: head[9..12].parse().unwrap(),
            head,
            body: Vec::new(),
        };
        let length = reply
            .header("content-length")
            .map_or(0, |length| length.parse().unwrap());
        if with_body && reply.status != 100 {
            reply.body = vec![0; length];
            self.0.read_exact(&mut reply.body).await.unwrap();
        }
        reply
    }

    /// Whether the server has closed the connection, or does so soon.
    async fn is_closed(&mut self) -> bool {
        self.timely(|io| Box::pin(io.read_u8())).await.is_err()
    }

    async fn timely<T>(
        &mut self,
        read: impl for<'a> FnOnce(
            &'a mut TcpStream,
        ) -> std::pin::Pin<Box<dyn Future<Output = std::io::Result<T>> + Send + 'a>>,
    ) -> std::io::Result<T> {
        tokio::time::timeout(Duration::from_secs(10), read(&mut self.0))
            .await
            .expect("the server says something, or closes")
    }
}

/// One request on a connection of its own.
async fn send(address: SocketAddr, request: impl AsRef<[u8]>) -> Reply {
    let mut client = Client::connect(address).await;
    client.write(request).await;
    client.reply().await
}

async fn get(address: SocketAddr, target: &str) -> Reply {
    send(address, format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await
}

/// A request as the sender would make it.
fn post(target: &str, headers: &str, body: &str) -> String {
    format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

/// An authentic one.
fn webhook(provider: &str, body: &str) -> String {
    post(&format!("/webhooks/{provider}"), "X-Acme-Proof: right\r\n", body)
}

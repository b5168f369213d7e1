//! A sender, and an operator at the JSON API.

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{PATIENCE, PAUSE, Server, github, sign::Headers, stripe};

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap_or_default())
    }
}

impl Server {
    /// Sends a webhook; `path` is what follows `/webhooks/`.
    pub async fn send(&self, path: &str, headers: Headers, body: impl Into<Vec<u8>>) -> Reply {
        self.try_send(path, headers, body).await.unwrap()
    }

    /// The same, for a server that may be gone before it answers.
    pub async fn try_send(
        &self,
        path: &str,
        headers: Headers,
        body: impl Into<Vec<u8>>,
    ) -> Result<Reply, reqwest::Error> {
        let mut request = self
            .client
            .post(format!("http://{}/webhooks/{path}", self.public()))
            .body(body.into());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        read(request.send().await?).await
    }

    /// Sends a signed Stripe event with this id and expects 200.
    pub async fn stripe(&self, id: &str) {
        let body = stripe_body(id);
        let reply = self.send("stripe", stripe(&body), body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// Sends a signed GitHub event with this delivery id and expects 200.
    pub async fn github(&self, delivery: &str, body: &[u8]) {
        let reply = self.send("github", github(delivery, "push", body), body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// `GET` on the admin listener.
    pub async fn get(&self, path: &str) -> Reply {
        let response = self.client.get(format!("http://{}{path}", self.admin())).send().await;
        read(response.unwrap()).await.unwrap()
    }

    /// `POST` of JSON on the admin listener.
    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        let response = self
            .client
            .post(format!("http://{}{path}", self.admin()))
            .header("Content-Type", "application/json")
            .body(body.to_string())
            .send()
            .await;
        read(response.unwrap()).await.unwrap()
    }

    /// The event as the API gives it, or `null` while it is not there.
    pub async fn event(&self, provider: &str, id: &str) -> Value {
        let reply = self.get(&event_path(provider, id)).await;
        if reply.status == 404 { Value::Null } else { reply.json() }
    }

    /// The bytes that the API gives for an event.
    pub async fn payload(&self, provider: &str, id: &str) -> Vec<u8> {
        let reply = self.get(&format!("{}/payload", event_path(provider, id))).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.body
    }

    /// Waits until the event has this status, and gives it.
    pub async fn wait_for(&self, provider: &str, id: &str, status: &str) -> Value {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let event = self.event(provider, id).await;
            if event["status"] == status {
                return event;
            }
            let now = tokio::time::Instant::now();
            assert!(
                now < deadline,
                "waited in vain: {provider} {id} is {status}; it is {event}"
            );
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Every event of a provider, by walking the pages.
    pub async fn all_events(&self, provider: &str) -> Vec<Value> {
        let mut events = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self
                .get(&format!("/api/v1/events?provider={provider}&limit=100{cursor}"))
                .await
                .json();
            events.extend(page["events"].as_array().expect("a page has events").iter().cloned());
            match &page["next"] {
                Value::Null => return events,
                Value::String(next) => cursor = format!("&cursor={next}"),
                next => cursor = format!("&cursor={next}"),
            }
        }
    }
}

/// A Stripe event that tells itself apart from others by its id alone.
pub fn stripe_body(id: &str) -> Vec<u8> {
    serde_json::json!({
        "id": id, "object": "event", "type": "payment_intent.succeeded", "created": 1_790_000_000,
        "data": {"object": {"id": format!("pi_{id}"), "amount": 4200, "customer": "cus_1"}},
    })
    .to_string()
    .into_bytes()
}

fn event_path(provider: &str, id: &str) -> String {
    let id = percent_encoding::utf8_percent_encode(id, percent_encoding::NON_ALPHANUMERIC);
    format!("/api/v1/events/{provider}/{id}")
}

async fn read(response: reqwest::Response) -> Result<Reply, reqwest::Error> {
    Ok(Reply {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: response.bytes().await?.to_vec(),
    })
}

/// Writes bytes that no client would, and gives what comes back until the server closes, or for as long as `patience`.
pub async fn raw_exchange(address: SocketAddr, bytes: &[u8], patience: Duration) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may have heard enough before it has heard all.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(patience, stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

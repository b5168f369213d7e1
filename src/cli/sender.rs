//! Plays the sender: samples of an adapter, signed and sent over HTTP.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jiff::Timestamp;

use crate::{
    adapters::{Adapter, Provider},
    config,
    ingest::{self, Bad, OwnedRequest},
};

/// How long a server may take to begin to listen, because it was started a moment ago.
const START: Duration = Duration::from_secs(2);

/// How often it is tried meanwhile.
const KNOCK: Duration = Duration::from_millis(50);

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a server said.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: String,
    pub(super) took: Duration,
}

/// Sends requests to one server.
#[derive(Clone)]
pub(super) struct Sender {
    client: reqwest::Client,
    /// `http://127.0.0.1:8080`, without a trailing slash.
    base: String,
}

impl Sender {
    /// For a server at `http://HOST:PORT`, perhaps with a path before the webhooks'.
    ///
    /// # Errors
    /// A sentence that says what is no such URL, and what is meant perhaps.
    pub(super) fn new(base: &str) -> anyhow::Result<Self> {
        check(base)?;
        Ok(Self {
            client: reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?,
            base: base.trim_end_matches('/').to_owned(),
        })
    }

    /// Sends a request to this server, whatever public URL it was signed for. Waits a little for one that does not listen
    /// yet.
    pub(super) async fn send(&self, request: &OwnedRequest) -> anyhow::Result<Reply> {
        let began = Instant::now();
        let method = reqwest::Method::from_bytes(request.method.as_bytes())?;
        let url = format!("{}{}", self.base, request.path_and_query());
        let mut sending = self.client.request(method, url).body(request.body.clone());
        for (name, value) in &request.headers {
            sending = sending.header(name.as_str(), value.as_slice());
        }
        let request = sending.build()?;
        let (started, reply) = loop {
            let started = Instant::now();
            // A body of bytes can always be sent again.
            let again = request.try_clone().context("the request cannot be sent twice")?;
            match self.client.execute(again).await {
                Err(error) if error.is_connect() && began.elapsed() < START => tokio::time::sleep(KNOCK).await,
                result => break (started, result),
            }
        };
        let reply = reply.map_err(|error| {
            if error.is_connect() {
                anyhow::anyhow!(
                    "no server answers at {}; start one with `cerca serve`, or name it with --url",
                    self.base
                )
            } else {
                anyhow::Error::new(error).context("the request failed")
            }
        })?;
        let status = reply.status().as_u16();
        let body = String::from_utf8_lossy(&reply.bytes().await.context("the answer broke off")?).into_owned();
        Ok(Reply {
            status,
            body,
            took: started.elapsed(),
        })
    }
}

fn check(base: &str) -> anyhow::Result<()> {
    const EXPECTED: &str = "--url: expected the server as `http://HOST:PORT` or `https://HOST`";
    let shown = base.escape_debug();
    let parsed = reqwest::Url::parse(base)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = parsed.filter(reqwest::Url::has_host) else {
        // `localhost:8080` reads as a URL of the scheme `localhost`.
        let guess = reqwest::Url::parse(&format!("http://{base}"));
        let is_host = base.contains([':', '.']) || base == "localhost";
        match guess.is_ok_and(|url| url.has_host()) && is_host && !base.contains("//") {
            true => bail!("{EXPECTED}, found `{shown}`; did you mean `http://{shown}`?"),
            false => bail!("{EXPECTED}, found `{shown}`"),
        }
    };
    if url.query().is_some() || url.fragment().is_some() {
        bail!("{EXPECTED}, without a query, found `{shown}`");
    }
    let path = format!("{}/", url.path().trim_end_matches('/'));
    if let Some((before, _)) = path.split_once("/webhooks/") {
        let server = format!("{}{before}", url.origin().ascii_serialization());
        bail!("{EXPECTED}: `/webhooks/PROVIDER` is added to it, found `{shown}`; did you mean `{server}`?");
    }
    Ok(())
}

/// The names of an adapter's samples.
pub(super) fn sample_names(adapter: &Adapter) -> Vec<&str> {
    adapter.samples().keys().map(String::as_str).collect()
}

/// A sample as this provider would be sent it, not yet signed. Without a name, the first.
pub(super) fn sample(
    adapter: &Adapter,
    provider: &Provider,
    name: Option<&str>,
) -> anyhow::Result<(String, OwnedRequest)> {
    let samples = adapter.samples();
    let found = match name {
        Some(name) => samples.get_key_value(name),
        None => samples.first_key_value(),
    };
    let Some((name, text)) = found else {
        let names = sample_names(adapter);
        if names.is_empty() {
            bail!(
                "the adapter {} has no samples; put one into samples/NAME.http of its folder",
                adapter.name
            );
        }
        let name = name.unwrap_or_default();
        let guess = config::near(name, &names)
            .map(|near| format!("did you mean {near}? "))
            .unwrap_or_default();
        bail!(
            "{} has no sample {name}; {guess}There are: {}",
            adapter.name,
            names.join(", ")
        );
    };
    let mut request = OwnedRequest::parse_sample(text, &provider.public_url)
        .with_context(|| format!("the sample {name} of {}", adapter.name))?;
    // Samples are written for the adapter's own name.
    let query = request
        .url
        .split_once('?')
        .map(|(_, query)| format!("?{query}"))
        .unwrap_or_default();
    request.url = format!("{}/webhooks/{}{query}", provider.public_url, provider.name);
    Ok((name.clone(), request))
}

/// Signs a sample as of now.
pub(super) fn sign(provider: &Provider, sample: &OwnedRequest, bad: Bad) -> anyhow::Result<OwnedRequest> {
    ingest::sign(provider, sample, Timestamp::now(), bad)
        .with_context(|| format!("cannot sign the sample for {}", provider.name))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_url_that_is_none_is_named_with_what_was_expected() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        for (url, expected) in [
            (
                "junk",
                "--url: expected the server as `http://HOST:PORT` or `https://HOST`, found `junk`",
            ),
            ("", "found ``"),
            ("127.0.0.1:8080", "did you mean `http://127.0.0.1:8080`?"),
            ("localhost:8080", "did you mean `http://localhost:8080`?"),
            ("ftp://h", "found `ftp://h`"),
            ("http://", "found `http://`"),
            ("http://h?x=1", "without a query"),
            ("http://h/webhooks/stripe", "is added to it"),
        ] {
            let error = Sender::new(url).err().unwrap().to_string();
            assert!(
                error.starts_with("--url: ") && error.contains(expected),
                "{url}: {error}"
            );
        }
        for url in ["http://h", "https://h.example/", "http://[::1]:8080/prefix"] {
            assert!(Sender::new(url).is_ok(), "{url}");
        }
    }

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_server_that_begins_to_listen_a_little_later_is_waited_for() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let server = tokio::spawn(async move {
            tokio::time::sleep(3 * KNOCK).await;
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .await
                .unwrap();
        });
        let _ = rustls::crypto::ring::default_provider().install_default();
        let request = OwnedRequest::parse(b"POST /webhooks/x HTTP/1.1\n\n{}", "http://h").unwrap();
        let reply = Sender::new(&format!("http://{address}")).unwrap().send(&request).await;
        let reply = reply.unwrap();
        assert_eq!((reply.status, reply.body.as_str()), (200, "ok"));
        server.await.unwrap();
    }
}

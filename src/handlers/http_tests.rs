use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::handlers::testing::claim;

/// A server that gives one answer to every request, and keeps what it was sent.
pub(super) struct Server {
    pub(super) url: String,
    pub(super) seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
pub(super) struct Seen {
    pub(super) connections: usize,
    pub(super) requests: Vec<(String, Vec<u8>)>,
}

impl Server {
    pub(super) async fn answering(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hooks?a=b", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let log = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                log.lock().unwrap().connections += 1;
                tokio::spawn(Self::serve(stream, answer, log.clone()));
            }
        });
        Self { url, seen }
    }

    async fn serve(mut stream: TcpStream, answer: &'static str, log: Arc<Mutex<Seen>>) {
        let mut buffer = Vec::new();
        while stream.read_buf(&mut buffer).await.is_ok_and(|n| n > 0) {
            let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8(buffer[..end].to_vec()).unwrap().to_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap_or("0");
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            if buffer.len() < end + 4 + length {
                continue;
            }
            let body = buffer[end + 4..].to_vec();
            buffer.clear();
            log.lock().unwrap().requests.push((head, body));
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    fn handler(&self, secret: Option<&str>) -> Http {
        let secret = secret.map(SecretString::from);
        http(&self.url, |target| Target {
            secret: secret.as_ref(),
            ..target
        })
    }
}

/// A handler with what the test changes.
pub(super) fn http<'a>(url: &'a str, change: impl FnOnce(Target<'a>) -> Target<'a>) -> Http {
    Http::new(change(usual(url))).unwrap()
}

pub(super) fn usual(url: &str) -> Target<'_> {
    Target {
        name: "h",
        url,
        secret: None,
        timeout: Duration::from_secs(20),
        concurrency: 4,
        allow_private: None,
        trusted: None,
        probe: None,
        breaker: BreakerSpec::default(),
        reuse: true,
    }
}

async fn outcome(answer: &'static str) -> Result<(), Failure> {
    Server::answering(answer)
        .await
        .handler(None)
        .handle(&Outgoing::raw(&claim("evt_1", "{}")))
        .await
}

#[tokio::test]
async fn the_exact_bytes_travel_with_their_headers() {
    let target = Server::answering("HTTP/1.1 204 No Content\r\n\r\n").await;
    let handler = target.handler(None);
    let mut claim = claim("evt_1", &b"{\"a\": \"\0\xff\"}\r\n"[..]);
    let event = Arc::make_mut(&mut claim.event);
    event.headers = r#"{"x-trace":"a","user-agent":"Stripe/1.0","Authorization":"no","host":"no","content-length":"3",
        "Connection":"no","idempotency-key":"theirs","bad name":"no","x-bad":"a\nb"}"#
        .into();
    event.content_type = Some("application/json; charset=utf-8".into());
    handler.handle(&Outgoing::raw(&claim)).await.unwrap();
    handler.handle(&Outgoing::raw(&claim)).await.unwrap();
    let seen = target.seen.lock().unwrap();
    assert_eq!(
        (seen.connections, seen.requests.len()),
        (1, 2),
        "the connection is used again"
    );
    let (head, body) = &seen.requests[0];
    assert_eq!(&body[..], &claim.event.payload[..]);
    assert!(head.starts_with("post /hooks?a=b http/1.1\r\n"), "{head}");
    for line in [
        "content-type: application/json; charset=utf-8",
        "idempotency-key: stripe:evt_1:h",
        "cerca-event-id: evt_1",
        "cerca-provider: stripe",
        "cerca-event-type: invoice.paid",
        "cerca-attempt: 2",
        "x-trace: a",
        "user-agent: stripe/1.0",
        "content-length: 13",
    ] {
        assert_eq!(head.lines().filter(|l| *l == line).count(), 1, "{line} in {head}");
    }
    for word in ["authorization", "no\r\n", "theirs", "x-bad", "webhook-signature"] {
        assert!(!head.contains(word), "{word} in {head}");
    }
}

#[tokio::test]
async fn hostile_ids_fit_into_headers_and_stay_different() {
    let target = Server::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let handler = target.handler(None);
    for id in ["a b%", "é\r\nX-Evil: 1", &"x".repeat(300)] {
        handler.handle(&Outgoing::raw(&claim(id, "{}"))).await.unwrap();
    }
    let seen = target.seen.lock().unwrap();
    let heads: Vec<&str> = seen.requests.iter().map(|(head, _)| head.as_str()).collect();
    assert!(
        heads[0].contains("idempotency-key: stripe:a%20b%25:h\r\n"),
        "{}",
        heads[0]
    );
    assert!(
        heads[1].contains("cerca-event-id: %c3%a9%0d%0ax-evil:%201\r\n"),
        "{}",
        heads[1]
    );
    assert!(heads[2].contains(&"x".repeat(300)));
}

#[test]
fn the_signature_is_that_of_standard_webhooks() {
    // The example of the specification's reference libraries.
    let key = Key::new(&"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into()).unwrap();
    let body = br#"{"test": 2432232314}"#;
    assert_eq!(
        key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body),
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    );
    for bad in ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!", "whsec_AAAA"] {
        assert!(Key::new(&bad.into()).is_err());
    }
}

#[tokio::test]
async fn with_a_secret_every_request_is_signed() {
    let target = Server::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let handler = target.handler(Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"));
    handler.handle(&Outgoing::raw(&claim("evt_1", "{}"))).await.unwrap();
    let seen = target.seen.lock().unwrap();
    let head = &seen.requests[0].0;
    assert!(head.contains("webhook-id: stripe:evt_1:h\r\n"), "{head}");
    assert!(
        head.contains("webhook-signature: v1,") && head.contains("webhook-timestamp: "),
        "{head}"
    );
}

#[tokio::test]
async fn the_status_decides() {
    let retry = |error: &str| Err(Failure::Retry(error.into()));
    let after = |seconds, error: &str| {
        Err(Failure::RetryAfter {
            after: Duration::from_secs(seconds),
            error: error.into(),
        })
    };
    for (answer, expected) in [
        ("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", Ok(())),
        (
            "HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n",
            Err(Failure::GiveUp("answered 410 Gone".into())),
        ),
        (
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 5\r\n\r\nno\nid",
            retry("answered 400 Bad Request: no id"),
        ),
        (
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            retry("answered 302 Found (redirects are not followed)"),
        ),
        (
            "HTTP/1.1 503 Service Unavailable\r\nretry-after: 120\r\ncontent-length: 0\r\n\r\n",
            after(120, "answered 503 Service Unavailable"),
        ),
        (
            "HTTP/1.1 429 Too Many Requests\r\nretry-after: soon\r\ncontent-length: 0\r\n\r\n",
            retry("answered 429 Too Many Requests"),
        ),
    ] {
        assert_eq!(outcome(answer).await, expected, "{answer}");
    }
}

#[test]
fn a_date_may_say_when() {
    let headers = |text: &'static str| HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
    let now = "1994-11-06T08:48:37Z".parse().unwrap();
    let date = headers("Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(retry_after(&date, now), Some(Duration::from_secs(60)));
    assert_eq!(retry_after(&date, now + Duration::from_secs(3600)), None);
    for other_form in ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
        assert_eq!(
            retry_after(&headers(other_form), now),
            Some(Duration::from_secs(60)),
            "{other_form}"
        );
    }
}

#[test]
fn what_is_no_time_asks_for_nothing() {
    let asks = |text: &'static str| {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
        retry_after(&headers, Timestamp::UNIX_EPOCH)
    };
    for text in [
        "",
        " ",
        "-1",
        "+5",
        "1.5",
        "1e9",
        "soon",
        "120, 60",
        "Sun, 99 Nov 1994 08:49:37 GMT",
    ] {
        assert_eq!(asks(text), None, "{text:?}");
    }
    assert_eq!(asks(" 0 "), Some(Duration::ZERO));
    assert_eq!(asks("1000000000"), Some(Duration::from_secs(1_000_000_000)));
    let more_than_a_word = asks("99999999999999999999999999");
    assert_eq!(
        more_than_a_word,
        Some(Duration::from_secs(u64::MAX)),
        "the worker caps it"
    );
}

#[tokio::test]
async fn a_long_answer_is_cut() {
    let error = describe(StatusCode::INTERNAL_SERVER_ERROR, "é".repeat(1_000).as_bytes());
    assert_eq!(
        error,
        format!("answered 500 Internal Server Error: {}", "é".repeat(EXCERPT))
    );
}

#[tokio::test]
async fn a_dead_target_is_a_retry_without_the_url() {
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("http://user:hush@127.0.0.1:{port}/?token=hush");
    let handler = http(&url, |target| target);
    let Err(Failure::Retry(error)) = handler.handle(&Outgoing::raw(&claim("evt_1", "{}"))).await else {
        panic!("a retry was expected")
    };
    assert!(
        !error.contains("hush") && error.to_lowercase().contains("refused"),
        "{error}"
    );
}

#[tokio::test]
async fn a_connection_is_used_again_whatever_was_answered() {
    let long = "x".repeat(40_000);
    let answer: &'static str = format!("HTTP/1.1 500 No\r\ncontent-length: 40000\r\n\r\n{long}").leak();
    let server = Server::answering(answer).await;
    let handler = server.handler(None);
    for _ in 0..3 {
        assert!(handler.handle(&Outgoing::raw(&claim("evt_1", "{}"))).await.is_err());
    }
    let seen = server.seen.lock().unwrap();
    assert_eq!((seen.connections, seen.requests.len()), (1, 3));
}

/// Made with the official libraries by `tests/standard-webhooks/make`.
#[test]
fn the_official_libraries_sign_alike() {
    let vectors = include_str!("../../tests/standard-webhooks/vectors.jsonl");
    let mut count = 0;
    for line in vectors.lines() {
        let vector: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| vector[name].as_str().unwrap();
        let key = Key::new(&text("secret").into()).unwrap();
        let signature = key.sign(text("id"), text("timestamp"), text("body").as_bytes());
        assert_eq!(signature, text("npm"), "{line}");
        assert_eq!(signature, text("pypi"), "{line}");
        count += 1;
    }
    assert!(count >= 5, "only {count} vectors");
}

//! Every adapter behind a server: what its sender sends is taken, whatever is done to it is answered by the table of statuses.

use jiff::Timestamp;

use super::*;
use crate::{
    domain::NewEvent,
    ingest::{Bad, OwnedRequest, SignError, sign, suite_tests},
};

/// What a sender may read: taken, unreadable, unproved, an unreadable encoding.
const ANSWERS: [u16; 4] = [200, 400, 401, 415];

/// A server with every adapter that there is, each under its own name.
pub(super) fn serve_all() -> (Servers, Vec<Provider>) {
    let registry = Registry::embedded();
    let providers = || {
        registry.iter().map(|adapter| {
            let mut provider = suite_tests::provider(adapter, &registry);
            provider.name = adapter.name.as_ref().into();
            provider.max_body = MAX_BODY;
            provider
        })
    };
    let store = Arc::new(MemoryStore::default());
    let known = Arc::new(Providers::new(providers().map(Arc::new)));
    let services = Services {
        secrets: Arc::new(Secrets::new(store.clone(), known.clone(), None, [])),
        providers: known,
        ..services(store.clone())
    };
    (serve_these(settings(), store, services), providers().collect())
}

/// The samples of a provider's adapter, as they are sent to it.
fn samples(provider: &Provider) -> Vec<OwnedRequest> {
    let registry = Registry::embedded();
    let adapter = registry.get(&provider.adapter).unwrap();
    let read = |text: &Vec<u8>| OwnedRequest::parse_sample(text, &provider.public_url).unwrap();
    adapter.samples().values().map(read).collect()
}

/// The bytes of a request, its body as it is said.
fn written(request: &OwnedRequest) -> Vec<u8> {
    framed(
        request,
        &format!("Content-Length: {}\r\n", request.body.len()),
        &request.body,
    )
}

fn framed(request: &OwnedRequest, framing: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "{} {} HTTP/1.1\r\nHost: localhost\r\n",
        request.method,
        request.path_and_query()
    )
    .into_bytes();
    for (name, value) in &request.headers {
        bytes.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    bytes.extend_from_slice(framing.as_bytes());
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

#[tokio::test]
async fn every_adapter_takes_what_is_triggered_and_refuses_what_is_bad() {
    let (servers, providers) = serve_all();
    let (mut taken, mut wrong) = (0, String::new());
    for provider in &providers {
        let mut say = |what: &str, reply: &Reply| wrong.push_str(&line(provider, what, reply));
        for sample in samples(provider) {
            let signed = sign(provider, &sample, Timestamp::now(), Bad::None)
                .unwrap_or_else(|error| panic!("{}: {error}", provider.name));
            // The second one is a duplicate, and is answered alike.
            for _ in 0..2 {
                let reply = send(servers.public, written(&signed)).await;
                let expected = provider.response();
                if (reply.status, &reply.body) != (expected.status, &expected.body) {
                    say("as it is sent", &reply);
                }
            }
            taken += 1;
            for bad in [Bad::Tampered, Bad::WrongKey, Bad::Stale, Bad::Malformed, Bad::Missing] {
                let request = match sign(provider, &sample, Timestamp::now(), bad) {
                    Err(SignError::NotTimed) => continue,
                    request => request.unwrap(),
                };
                let reply = send(servers.public, written(&request)).await;
                if reply.status != 401 && (reply.status, bad) != (400, Bad::Tampered) {
                    say(&format!("{bad:?}"), &reply);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(taken > 300, "{taken}");
}

#[tokio::test]
async fn what_an_item_is_an_item_of_is_stored_with_it_and_no_sender_can_say_it() {
    let (servers, providers) = serve_all();
    let quickbooks = providers.iter().find(|one| &*one.name == "quickbooks").unwrap();
    let mut stored = Vec::new();
    for mut sample in samples(quickbooks) {
        sample.set_header("X-Envelope-Realm-Id", "forged");
        sample.set_header("X-Other", "1");
        let signed = sign(quickbooks, &sample, Timestamp::now(), Bad::None).unwrap();
        assert_eq!(send(servers.public, written(&signed)).await.status, 200);
        stored.append(&mut servers.store.events.lock().unwrap());
    }
    let of = |event: &NewEvent| serde_json::from_str::<serde_json::Value>(&event.headers).unwrap();
    assert!(stored.iter().all(|event| of(event)["x-other"] == "1"));
    let realms: Vec<_> = stored
        .iter()
        .map(|event| of(event)["x-batch-realm-id"].clone())
        .collect();
    // The older form says it beside its items, the newer in each.
    assert!(
        realms.iter().any(|realm| realm.is_string()) && realms.iter().any(|realm| realm.is_null()),
        "{realms:?}"
    );
    assert!(!realms.contains(&"forged".into()), "{realms:?}");
}

/// A reply that should not be.
fn line(provider: &Provider, what: &str, reply: &Reply) -> String {
    let body = String::from_utf8_lossy(&reply.body);
    format!("{} {what}: {} {body}\n", provider.name, reply.status)
}

/// From the name and value of a header to the values that it has then.
type Change<'c> = &'c dyn Fn(&str, &[u8]) -> Vec<Vec<u8>>;

/// What is done to a request that its sender signed, without signing it anew; and whether it must be taken all the same.
fn changed(request: &OwnedRequest) -> Vec<(&'static str, Vec<u8>, bool)> {
    let with = |change: &dyn Fn(&mut OwnedRequest)| {
        let mut changed = request.clone();
        change(&mut changed);
        written(&changed)
    };
    let is_proof = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["sign", "hmac", "token", "auth", "jwt", "secret"]
            .iter()
            .any(|word| name.contains(word))
    };
    let proofs = |change: Change<'_>| {
        with(&|request| {
            let headers = std::mem::take(&mut request.headers).into_iter();
            request.headers = headers
                .flat_map(|(name, value)| {
                    let values = if is_proof(&name) {
                        change(&name, &value)
                    } else {
                        vec![value]
                    };
                    values
                        .into_iter()
                        .map(move |value| (name.clone(), value))
                        .collect::<Vec<_>>()
                })
                .collect();
        })
    };
    let mut chunks = Vec::new();
    for chunk in request.body.chunks(7) {
        chunks.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunks.extend_from_slice(chunk);
        chunks.extend_from_slice(b"\r\n");
    }
    chunks.extend_from_slice(b"0\r\n\r\n");
    let gzip = [b"\x1f\x8b\x08\0\0\0\0\0\0\x03", request.body.as_slice()].concat();
    vec![
        (
            "in chunks",
            framed(request, "Transfer-Encoding: chunked\r\n", &chunks),
            true,
        ),
        (
            "names of headers in capitals",
            with(&|request| {
                request
                    .headers
                    .iter_mut()
                    .for_each(|(name, _)| *name = name.to_ascii_uppercase())
            }),
            true,
        ),
        (
            "each proof twice",
            proofs(&|_, value| vec![value.to_vec(), value.to_vec()]),
            false,
        ),
        (
            "a wrong proof before",
            proofs(&|_, value| vec![b"00".to_vec(), value.to_vec()]),
            false,
        ),
        (
            "a wrong proof after",
            proofs(&|_, value| vec![value.to_vec(), b"00".to_vec()]),
            false,
        ),
        ("an empty proof", proofs(&|_, _| vec![Vec::new()]), false),
        (
            "a proof of separators",
            proofs(&|_, _| vec![b",;=, ;=,v1=,t=,".to_vec()]),
            false,
        ),
        ("a proof of bytes", proofs(&|_, _| vec![vec![0xff; 90]]), false),
        (
            "a huge proof",
            proofs(&|_, value| vec![value.repeat(16_000 / value.len().max(1))]),
            false,
        ),
        ("no proof", proofs(&|_, _| Vec::new()), false),
        (
            "a gzip body",
            framed(
                request,
                &format!("Content-Encoding: gzip\r\nContent-Length: {}\r\n", gzip.len()),
                &gzip,
            ),
            false,
        ),
        ("no body", framed(request, "Content-Length: 0\r\n", b""), false),
        (
            "no content type",
            with(&|request| {
                request
                    .headers
                    .retain(|(name, _)| !name.eq_ignore_ascii_case("content-type"))
            }),
            false,
        ),
        (
            "a content type of bytes",
            with(&|request| request.set_header("Content-Type", vec![0xfe, b';', b'=', b'"'])),
            false,
        ),
        (
            "a query that is none",
            with(&|request| request.url.push_str("?%zz&&=&%00=%ff&?")),
            false,
        ),
    ]
}

/// Bodies that a sender could have signed, though none does.
fn odd_bodies(body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let inside = |text: &str| {
        let at = body.iter().position(|byte| *byte == b'{').map_or(0, |at| at + 1);
        [&body[..at], text.as_bytes(), &body[at..]].concat()
    };
    vec![
        ("a byte order mark", [b"\xef\xbb\xbf", body].concat()),
        ("keys twice", inside(r#""id":"first","type":"first","id":{"a":[]},"#)),
        (
            "nested deeply",
            inside(&format!(r#""deep":{}{},"#, "[".repeat(5_000), "]".repeat(5_000))),
        ),
        (
            "numbers past all bounds",
            inside(r#""n":1e400,"m":-0.0e-999,"k":123456789012345678901234567890,"#),
        ),
        ("surrogates and NUL", inside("\"s\":\"\\ud800\\u0000\",")),
        ("bytes that are no UTF-8", [body, b"\xff\xfe"].concat()),
        ("cut off", body[..body.len() / 2].to_vec()),
        ("a number", b"1e400".to_vec()),
        ("null", b"null".to_vec()),
        ("an empty list", b"[]".to_vec()),
        ("a form of separators", b"&&==&%&%zz=%&payload=&".to_vec()),
    ]
}

#[tokio::test]
async fn whatever_a_hostile_sender_does_is_answered_by_the_table() {
    let (servers, providers) = serve_all();
    let mut wrong = String::new();
    for provider in &providers {
        let Some(sample) = samples(provider).into_iter().next() else {
            continue;
        };
        let mut look = |what: &str, must: bool, reply: &Reply| {
            let is_answer = ANSWERS.contains(&reply.status) || reply.status == provider.response().status;
            // Where the keys are not at hand nothing can be said yet.
            let waits = reply.status == 503 && provider.fetches_keys();
            if !(is_answer || waits) || must && reply.status != provider.response().status {
                wrong.push_str(&line(provider, what, reply));
            }
        };
        let signed = sign(provider, &sample, Timestamp::now(), Bad::None);
        let must = signed.is_ok();
        let signed = signed.unwrap_or_else(|_| sample.clone());
        for (what, bytes, same) in changed(&signed) {
            let reply = send(servers.public, bytes).await;
            look(what, same && must, &reply);
        }
        for (what, body) in odd_bodies(&sample.body) {
            let odd = OwnedRequest { body, ..sample.clone() };
            let odd = sign(provider, &odd, Timestamp::now(), Bad::None).unwrap_or(odd);
            let reply = send(servers.public, written(&odd)).await;
            look(what, false, &reply);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    // And it still serves.
    assert_eq!(get(servers.public, "/healthz").await.status, 200);
}

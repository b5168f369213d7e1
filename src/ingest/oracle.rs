//! Challenges that are answered with a MAC and without a signature make the endpoint sign for strangers. What could have
//! been asked for in this way proves nothing, so it is no event.

use std::borrow::Cow;

use super::{
    Rejection,
    scope::{Frame, Scope},
};
use crate::adapters::{Handshake, Hash};

/// Refuses a message whose MAC is given to whoever asks, as the answer to a challenge.
///
/// # Errors
/// [`Rejection::AnsweredChallenge`].
pub(crate) fn refuse<'m>(
    scope: &Scope<'_, '_>,
    hash: Hash,
    message: impl FnOnce() -> Option<Cow<'m, [u8]>>,
) -> Result<(), Rejection> {
    let handshakes = &scope.provider.rules.handshakes;
    if handshakes.iter().all(|handshake| handshake.macs.is_empty()) {
        return Ok(());
    }
    let message = message().unwrap_or_default();
    let answers = |handshake: &Handshake| {
        let asked = handshake.macs.iter().filter(|(known, _)| *known == hash);
        asked.map(|(_, asked)| asked).any(|asked| {
            let frame = Frame {
                assumed: Some((asked, &message)),
                ..Frame::default()
            };
            // What the other conditions want is up to whoever asks.
            let mut narrowing = handshake.narrowing(asked);
            narrowing.all(|condition| scope.holds(std::slice::from_ref(condition), frame))
        })
    };
    match handshakes.iter().any(answers) {
        true => Err(Rejection::AnsweredChallenge),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use base64::Engine as _;

    use super::{
        super::{
            Ingested, OwnedRequest, ingest,
            sign::{self, Signer},
            tests::now,
        },
        *,
    };
    use crate::{
        adapters::{Adapter, Digester, Expr, Provider, ProviderSpec, Registry},
        domain::{HeaderList, RawRequest},
    };

    fn adapter(rule: &str, condition: &str) -> Result<Adapter, String> {
        let text = format!(
            "title='t'\n[[signature]]\n{rule}\n[[handshake]]\nmethod='GET'\nwhen=['query:c', {condition}]\n\
             body='{{hmac_sha256(query:c)}}'\n[event]\nid='{{sha256(body)}}'"
        );
        Adapter::parse("mine", &text).map_err(|error| error.to_string())
    }

    fn registered(adapter: &str, secret: &str, registry: &Registry) -> Provider {
        let spec = ProviderSpec {
            name: "mine".into(),
            adapter: Some(adapter.to_owned()),
            secrets: vec![secret.into()],
            public_url: "https://h".into(),
            ..ProviderSpec::default()
        };
        Provider::new(spec, registry).unwrap()
    }

    fn post(adapter: Adapter, signed: &str, body: &str) -> Result<(), Rejection> {
        let mut registry = Registry::default();
        registry.insert(adapter);
        let provider = registered("mine", "secret", &registry);
        let mut mac = Digester::keyed(Hash::Sha256, b"secret");
        mac.update(signed.as_bytes());
        let signature = hex::encode(mac.finish().bytes());
        let headers = HeaderList::new(vec![("x-s", signature.as_bytes())]);
        let request = RawRequest {
            method: "POST",
            url: "https://h/webhooks/mine",
            headers: &headers,
            body: body.as_bytes(),
        };
        ingest(&provider, &request, now()).map(|_| ())
    }

    const BODY: &str = "scheme='hmac-sha256'\nheader='x-s'";
    const FRAMED: &str = "scheme='hmac-sha256'\nheader='x-s'\nmessage='v0.{body}'";

    #[test]
    fn what_could_be_asked_for_is_no_event_and_the_rest_is() {
        let hex = || adapter(BODY, "'unhex(query:c)'").unwrap();
        assert_eq!(post(hex(), "abcd", "abcd"), Err(Rejection::AnsweredChallenge));
        assert_eq!(post(hex(), "{\"a\":1}", "{\"a\":1}"), Ok(()));
        let token = |rule| adapter(rule, "'url_encode(query:c) == {query:c}'").unwrap();
        assert_eq!(post(token(FRAMED), "v0.abc", "abc"), Err(Rejection::AnsweredChallenge));
        assert_eq!(post(token(FRAMED), "v0.{}", "{}"), Ok(()));
    }

    #[test]
    fn an_answer_with_another_hash_is_not_the_signature_of_an_event() {
        let rule = "scheme='hmac-sha512'\nheader='x-s'";
        assert!(adapter(rule, "'query:d'").is_ok());
    }

    #[test]
    fn a_challenge_that_may_be_anything_is_not_accepted_in_a_folder() {
        for condition in ["'query:d'", "'query:c'", "'query:mode == x'", "'query:d == {query:c}'"] {
            let error = adapter(BODY, condition).unwrap_err();
            assert!(
                error.contains("handshake[0].body") && error.contains("narrows"),
                "{error}"
            );
        }
        let wrapped = adapter(BODY, "'unhex(query:c)'")
            .unwrap()
            .source()
            .replace("(query:c)}", "(lower(query:c))}");
        assert!(Adapter::parse("mine", &wrapped).is_err());
        let jwt = "scheme='jwt'\nalgorithms=['HS256']\nheader='x-s'";
        assert!(adapter(jwt, "'query:d'").is_err());
    }

    /// What a stranger may ask to have signed, and then send as an event.
    const WORDS: [&str; 6] = [
        "abcd",
        "deadbeef",
        "9b4a4b1e-0000-4000-8000-0123456789ab",
        "e30",
        "eyJpZCI6MX0=",
        "{\"id\":1}",
    ];

    #[test]
    fn no_adapter_takes_its_own_answer_for_a_signature() {
        let registry = Registry::embedded();
        let (mut asked, mut answered) = (BTreeSet::new(), BTreeSet::new());
        for adapter in registry.iter() {
            let unsigned = |handshake: &&Handshake| !handshake.macs.is_empty();
            if !adapter.rules.handshakes.iter().any(|handshake| unsigned(&handshake)) {
                continue;
            }
            // Of either shape: as it is, or a pair.
            let provider = registered(&adapter.name, "name:secret", &registry);
            for handshake in provider.rules.handshakes.iter().filter(unsigned) {
                asked.insert(&*adapter.name);
                for (index, word) in (0..provider.rules.signatures.len()).flat_map(|i| WORDS.map(|word| (i, word))) {
                    for (message, event) in events(&provider, index, word) {
                        if !answers(&provider, handshake, &message) {
                            continue;
                        }
                        answered.insert(&*adapter.name);
                        let headers = event.header_list();
                        let taken = ingest(&provider, &event.raw(&headers), now());
                        assert_eq!(
                            taken.unwrap_err(),
                            Rejection::AnsweredChallenge,
                            "{} {word}",
                            adapter.name
                        );
                    }
                }
            }
        }
        assert_eq!(Vec::from_iter(asked), ["braintree", "linkedin", "x"]);
        // LinkedIn signs a word before the body that no challenge may have.
        assert_eq!(Vec::from_iter(answered), ["braintree", "x"]);
    }

    /// Requests with a word in the place of what is signed, signed by a rule, each with the text that was signed.
    fn events(provider: &Provider, index: usize, word: &str) -> Vec<(Vec<u8>, OwnedRequest)> {
        let rule = &provider.rules.signatures[index];
        let fields = rule.message.exprs().into_iter().filter_map(|expr| match expr {
            Expr::Form(name) => Some(format!(
                "POST /webhooks/mine HTTP/1.1\nContent-Type: application/x-www-form-urlencoded\n\n{name}={word}"
            )),
            _ => None,
        });
        let samples = fields.chain([format!("POST /webhooks/mine HTTP/1.1\n\n{word}")]);
        let signed = samples.filter_map(|sample| {
            let request = OwnedRequest::parse_sample(sample.as_bytes(), &provider.public_url).unwrap();
            let signed = sign::attempt(
                provider,
                rule,
                Signer::new(provider.keys[index].first()?),
                &request,
                now(),
            )
            .ok()?;
            let headers = signed.header_list();
            let scope = Scope::new(provider, signed.raw(&headers), now());
            let time = super::super::time::write(now(), rule.timestamp_format);
            let captures = [("timestamp", Cow::Owned(time.into_bytes()))];
            let frame = Frame {
                captures: &captures,
                ..Frame::default()
            };
            let message = scope.text(&rule.message, frame)?.into_owned();
            Some((message, signed))
        });
        signed.collect()
    }

    /// Whether a stranger who asks for the MAC of a message is given it.
    fn answers(provider: &Provider, handshake: &Handshake, message: &[u8]) -> bool {
        let [(hash, Expr::Query(name))] = handshake.macs.as_slice() else {
            panic!("what is asked for is not in the query");
        };
        let value = percent_encoding::percent_encode(message, percent_encoding::NON_ALPHANUMERIC);
        let url = format!("{}/webhooks/mine?{name}={value}", provider.public_url);
        let headers = HeaderList::new(Vec::new());
        let request = RawRequest {
            method: "GET",
            url: &url,
            headers: &headers,
            body: b"",
        };
        let Ok(Ingested::Handshake { answer, .. }) = ingest(provider, &request, now()) else {
            return false;
        };
        let [sha1, sha256] = provider.answer_macs.as_ref().unwrap();
        let mut mac = if *hash == Hash::Sha1 { sha1 } else { sha256 }.clone();
        mac.update(message);
        let tag = mac.finish();
        let body = String::from_utf8(answer.body).unwrap();
        let given = body.contains(&hex::encode(tag.bytes()))
            || body.contains(&base64::engine::general_purpose::STANDARD.encode(tag.bytes()));
        assert!(given, "{body}");
        true
    }
}

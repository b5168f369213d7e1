//! Every vector of every folder that verifies, changed in every kind of place: nothing panics, whatever is refused is
//! refused as the sender's fault, and what is taken carries exactly what was signed.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
};

use jiff::Timestamp;
use secrecy::ExposeSecret as _;

use super::{
    batch,
    scope::{Frame, Scope},
    vectors, verify, *,
};
use crate::adapters::{Adapter, Provider, Registry, Scheme, Signature};

#[test]
fn no_change_of_what_is_signed_is_taken() {
    let registry = Registry::embedded();
    let adapters: Vec<&Adapter> = registry.iter().collect();
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = std::thread::scope(|threads| {
        let work = || {
            let mut wrong = Vec::new();
            while let Some(adapter) = adapters.get(next.fetch_add(1, Ordering::Relaxed)) {
                check(adapter, &registry, &mut wrong);
            }
            wrong
        };
        let workers: Vec<_> = (0..4).map(|_| threads.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} changes:\n{}", wrong.len(), wrong.join("\n"));
}

fn check(adapter: &Adapter, registry: &Registry, wrong: &mut Vec<String>) {
    let valid = vectors::valid(adapter.vectors().unwrap_or_default(), registry);
    for (case, provider, request, now) in valid {
        let mut signed: BTreeSet<Vec<u8>> = (0..provider.rules.signatures.len())
            .flat_map(|rule| messages(&provider, &request, now, rule))
            .collect();
        // One digit may be all that two secrets of a rotation differ in.
        let secrets = provider.secrets.iter();
        signed.extend(secrets.map(|secret| secret.expose_secret().as_bytes().to_vec()));
        for (what, changed) in changes(&request) {
            if let Some(problem) = problem(&provider, &changed, now, &signed) {
                wrong.push(format!("{} {case}: {what}: {problem}", adapter.name));
            }
        }
    }
}

fn problem(provider: &Provider, request: &OwnedRequest, now: Timestamp, signed: &BTreeSet<Vec<u8>>) -> Option<String> {
    let headers = request.header_list();
    match ingest(provider, &request.raw(&headers), now) {
        // The keys of another URL of the sender's are not at hand yet.
        Err(rejection) if provider.rules.key_source.is_some() && rejection.status() == 503 => None,
        Err(rejection) => {
            let status = rejection.status();
            (!(400..500).contains(&status)).then(|| format!("answered {status}"))
        }
        // Some are not signed; those that are were proved by the same code.
        Ok(Ingested::Handshake { answer, .. }) => (answer.status >= 500).then(|| format!("answered {}", answer.status)),
        Ok(Ingested::Events { verified, .. }) => {
            let rule = verified.signature?;
            let proved = messages(provider, request, now, rule);
            let holds = match provider.rules.signatures[rule].each {
                true => proved.is_subset(signed),
                false => !proved.is_disjoint(signed),
            };
            (!holds).then(|| "taken, though what was signed is another".to_owned())
        }
    }
}

/// What a rule takes as signed: the messages of hashes and signatures, or the tokens themselves.
fn messages(provider: &Provider, request: &OwnedRequest, now: Timestamp, rule: usize) -> BTreeSet<Vec<u8>> {
    let headers = request.header_list();
    let scope = Scope::new(provider, request.raw(&headers), now);
    let signature = &provider.rules.signatures[rule];
    let mut found = BTreeSet::new();
    match signature.each {
        false => of_frame(&scope, rule, signature, Frame::default(), &mut found),
        true => {
            for item in batch::items(&scope).ok().flatten().unwrap_or_default() {
                of_frame(&scope, rule, signature, item.frame(), &mut found);
            }
        }
    }
    found
}

fn of_frame(scope: &Scope<'_, '_>, index: usize, rule: &Signature, frame: Frame<'_>, found: &mut BTreeSet<Vec<u8>>) {
    let values = verify::source_values(scope, rule, frame);
    let groups: Vec<_> = match rule.group.as_deref().and_then(|separator| separator.bytes().next()) {
        None => vec![values],
        Some(separator) => values
            .iter()
            .flat_map(|value| value.split(move |byte| *byte == separator))
            .map(|group| vec![Cow::Borrowed(group.trim_ascii())])
            .collect(),
    };
    for values in &groups {
        let Ok(reading) = verify::read(scope, rule, values, frame) else {
            continue;
        };
        let candidates = reading.candidates.iter().map(|value| value.to_vec());
        match rule.scheme {
            // A token is the same in either case of the scheme's name.
            Scheme::Basic => found.extend(candidates.map(|value| value.to_ascii_lowercase())),
            Scheme::Token => found.extend(candidates),
            Scheme::Jwt if !rule.detached => {
                found.extend(candidates.filter_map(|value| {
                    let dot = value.iter().rposition(|byte| *byte == b'.')?;
                    Some(value[..dot].to_vec())
                }));
            }
            _ => {
                for key in &scope.provider.keys[index] {
                    let frame = Frame {
                        captures: &reading.captures,
                        secret: Some(b"secret"),
                        secret_id: key.id.as_deref(),
                        ..frame
                    };
                    let mut message = Vec::new();
                    if scope
                        .write(&rule.message, frame, &mut |piece| message.extend_from_slice(piece))
                        .is_some()
                    {
                        found.insert(message);
                    }
                }
            }
        }
    }
}

/// The request, changed in one place each.
fn changes(request: &OwnedRequest) -> Vec<(String, OwnedRequest)> {
    let mut all = Vec::new();
    for (at, (name, value)) in request.headers.iter().enumerate() {
        let mut dropped = request.clone();
        dropped.headers.remove(at);
        all.push((format!("without {name}"), dropped));
        let mut twice = request.clone();
        twice.headers.push((name.clone(), b"x".to_vec()));
        all.push((format!("{name} twice"), twice));
        let places = [0, value.len() / 2, value.len().saturating_sub(1)];
        for place in places.into_iter().filter(|place| *place < value.len()) {
            let mut flipped = request.clone();
            flipped.headers[at].1[place] ^= 1;
            all.push((format!("{name} at {place}"), flipped));
        }
        let mut empty = request.clone();
        empty.headers[at].1.clear();
        all.push((format!("{name} empty"), empty));
    }
    for (class, place) in places(&request.body) {
        let mut flipped = request.clone();
        flipped.body[place] ^= 1;
        all.push((format!("{class} of the body at {place}"), flipped));
    }
    for (what, body) in [
        ("no body", Vec::new()),
        ("half a body", request.body[..request.body.len() / 2].to_vec()),
        ("a longer body", [&request.body[..], b" "].concat()),
        ("another body", b"{\"id\":[]}".to_vec()),
    ] {
        let mut other = request.clone();
        other.body = body;
        all.push((what.to_owned(), other));
    }
    let (path, query) = request.url.split_once('?').unwrap_or((&request.url, ""));
    let mut urls = vec![
        format!("{path}?"),
        format!("{path}?x=%&{query}"),
        format!("{path}/more?{query}"),
    ];
    for (at, byte) in query
        .bytes()
        .enumerate()
        .filter(|(_, byte)| byte.is_ascii_alphanumeric())
        .step_by(7)
    {
        let other = if byte == b'1' { "2" } else { "1" };
        urls.push(format!("{path}?{}{other}{}", &query[..at], &query[at + 1..]));
    }
    for url in urls {
        let mut other = request.clone();
        other.url.clone_from(&url);
        all.push((url, other));
    }
    all
}

/// The first, a middle and the last byte of each class.
fn places(body: &[u8]) -> Vec<(&'static str, usize)> {
    type Is = fn(&u8) -> bool;
    let classes: [(&str, Is); 5] = [
        ("letter", u8::is_ascii_alphabetic),
        ("digit", u8::is_ascii_digit),
        ("mark", u8::is_ascii_punctuation),
        ("space", u8::is_ascii_whitespace),
        ("other byte", |byte| !byte.is_ascii()),
    ];
    let mut found = Vec::new();
    for (class, is) in classes {
        let all: Vec<usize> = (0..body.len()).filter(|at| is(&body[*at])).collect();
        let picked: BTreeSet<usize> = [all.first(), all.get(all.len() / 2), all.last()]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        found.extend(picked.into_iter().map(|place| (class, place)));
    }
    found
}

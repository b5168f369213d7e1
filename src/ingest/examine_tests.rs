//! What is told of samples that do not go with their manifest.

use super::{examine, tests::now};
use crate::adapters::{Adapter, Registry};

const MANIFEST: &str = "title='t'\ndocs='https://d'\n[[signature]]\nscheme='hmac-sha256'\nheader='X-S'\n\
    message='[{header:X-Other}]{header:X-Id}.{body}'\n[event]\nid='body:/id'\ntype='body:/type'\ntime='body:/at'\n\
    ordering='body:/who'\n";

fn told(manifest: &str, samples: &[(&str, &str)]) -> Vec<String> {
    let adapter = Adapter::with_samples("mine", manifest, samples).unwrap();
    examine(&adapter, now())
        .into_iter()
        .map(|one| match one.line {
            Some(line) => format!("{}:{line} {}: {}", one.file, one.key, one.message),
            None => format!("{} {}: {}", one.file, one.key, one.message),
        })
        .collect()
}

fn head(headers: &str, body: &str) -> String {
    format!("POST /webhooks/mine HTTP/1.1\n{headers}\n{body}\n")
}

#[test]
fn samples_that_go_with_the_manifest_are_not_mentioned() {
    let right = head(
        "X-Id: {{uuid}}\n",
        r#"{"id":"{{uuid}}","type":"a","at":"{{rfc3339}}","who":1}"#,
    );
    assert!(told(MANIFEST, &[("a.http", &right)]).is_empty());
    let registry = Registry::embedded();
    let all: Vec<_> = registry
        .iter()
        .flat_map(|adapter| {
            let findings = examine(adapter, now()).into_iter();
            findings.map(|one| format!("{}/{} {}: {}", adapter.name, one.file, one.key, one.message))
        })
        .collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn what_the_manifest_names_and_a_sample_lacks_is_told_with_file_and_key() {
    let full = r#"{"id":1,"type":"a","at":5,"who":1}"#;
    for (headers, body, expected) in [
        (
            "X-Id: 1\n",
            r#"{"ID":1,"type":"a","at":5,"who":1}"#,
            "samples/a.http event.id: nothing is found in it: body:/id",
        ),
        (
            "X-Id: 1\n",
            r#"{"id":1,"at":5,"who":1}"#,
            "samples/a.http event.type: nothing is found in it: body:/type",
        ),
        (
            "X-Id: 1\n",
            r#"{"id":1,"type":"a","at":"soon","who":1}"#,
            "samples/a.http event.time: `soon` is no time",
        ),
        (
            "X-Id: 1\n",
            r#"{"id":{},"type":"a","at":5,"who":1}"#,
            "samples/a.http event.id: the event id is an object",
        ),
        ("X-Id: 1\n", "{", "samples/a.http event.id: "),
        (
            "X-Id: 1\n",
            r#"{"id":1,"type":"a","who":1}"#,
            "samples/ event.time: finds nothing in any of the samples",
        ),
        (
            "X-Id: 1\n",
            r#"{"id":1,"type":"a","at":5}"#,
            "samples/ event.ordering: finds nothing",
        ),
        (
            "",
            full,
            "samples/a.http signature[0].message: `header:X-Id` is signed, and has no value in it",
        ),
        ("X-Id: {{uid}}\n", full, "samples/a.http : `{{uid}}` is no placeholder"),
        ("X-Id 1\n", full, "samples/a.http:2 : expected a header"),
    ] {
        let told = told(MANIFEST, &[("a.http", &head(headers, body))]);
        assert!(
            told.iter().any(|text| text.starts_with(expected)),
            "{expected}: {told:?}"
        );
    }
    let got = head("X-Id: 1\n", full).replace("POST", "GET");
    assert_eq!(
        told(MANIFEST, &[("a.http", &got)]),
        ["samples/a.http : an event comes by POST, not by GET"]
    );
    let orphan = told(MANIFEST, &[("b.normalized.json", "{}")]);
    assert_eq!(
        orphan,
        ["samples/b.normalized.json : there is no samples/b.http beside it"]
    );
}

#[test]
fn a_signature_needs_a_place_and_a_handshake_is_no_event() {
    let manifest = "title='t'\n[[signature]]\nscheme='hmac-sha256'\nsource='body:/sign'\nmessage='{body:/id}'\n\
        [[handshake]]\nwhen='body:/challenge'\nsigned=false\nbody='{body:/challenge}'\n[event]\nid='body:/id'";
    let told = |body: &str| told(manifest, &[("a.http", &head("", body))]);
    assert!(told(r#"{"id":1,"sign":"{{signature}}"}"#).is_empty());
    assert!(told(r#"{"id":1}"#)[0].contains("signature[0].source: put `{{signature}}`"));
    assert!(told(r#"{"id":1,"challenge":"x"}"#)[0].contains("answered as a handshake"));
}

#[test]
fn conditions_and_functions_that_cannot_be_meant_are_errors() {
    let fails = |when: &str, id: &str| {
        let manifest = format!("title='t'\nverify='none'\n[batch]\nitems='body:/*'\nwhen='{when}'\n[event]\nid='{id}'");
        Adapter::parse("mine", &manifest).err().map(|error| error.to_string())
    };
    for mistyped in [
        "body:/a==b",
        "!body:/a==b",
        "body:/a = b",
        "body:/a =! b",
        "body:/a === b",
        "body:/a!=b",
    ] {
        let error = fails(mistyped, "body:/id").unwrap();
        assert!(
            error.contains("batch.when") && error.contains("one space on each side"),
            "{error}"
        );
    }
    assert_eq!(fails("body:/a == b", "body:/id"), None);
    let deep = |n: usize| format!("{}body:/id{}", "lower(".repeat(n), ")".repeat(n));
    assert_eq!(fails("body:/a", &deep(32)), None);
    let error = fails("body:/a", &deep(20_000)).unwrap();
    assert!(
        error.contains("event.id") && error.contains("at most 32 functions"),
        "{error}"
    );
}

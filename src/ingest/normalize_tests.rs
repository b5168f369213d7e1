//! Samples with what they say in common words: `samples/NAME.normalized.json` beside `samples/NAME.http`.

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;

use super::{fill::Filler, suite_tests::provider, tests::now, *};
use crate::adapters::{Adapter, Normalize, Registry};

fn original<'a>(event: &'a Identified<'_>, content_type: Option<&'a str>) -> Original<'a> {
    Original {
        event_type: event.event_type.as_deref(),
        content_type,
        headers: "{}",
        payload: &event.payload,
        occurred_at: event.occurred_at,
    }
}

#[test]
fn samples_are_said_in_common_words() {
    let registry = Registry::embedded();
    let mut wrong = Vec::new();
    for adapter in registry.iter() {
        let Some(normalize) = adapter.normalize() else {
            continue;
        };
        let mut shown = BTreeSet::new();
        for (name, text) in adapter.samples() {
            let (found, expected) = found_and_expected(adapter, &registry, normalize, name, text);
            shown.extend(
                found
                    .iter()
                    .filter_map(|value| value["type"].as_str().map(str::to_owned)),
            );
            if found != expected {
                let written = |values: &[Value]| Value::from(values.to_vec()).to_string();
                let (found, expected) = (written(&found), written(&expected));
                wrong.push(format!(
                    "{}/{name}:\n found    {found}\n expected {expected}",
                    adapter.name
                ));
            }
        }
        let can: BTreeSet<&str> = normalize.common_names().collect();
        let shows = |name: &str| shown.contains(name);
        let other = ["payment.failed", "payment.refunded"];
        if can.contains("payment.succeeded") && !shows("payment.succeeded")
            || other.iter().any(|name| can.contains(name)) && !other.into_iter().any(shows)
        {
            wrong.push(format!(
                "{}: no sample shows a success, or a failure or refund",
                adapter.name
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the events of a sample say, and what the file beside it expects; without one, nothing.
fn found_and_expected(
    adapter: &Adapter,
    registry: &Registry,
    normalize: &Normalize,
    name: &str,
    text: &[u8],
) -> (Vec<Value>, Vec<Value>) {
    let provider = provider(adapter, registry);
    let sample = OwnedRequest::parse_sample(text, &provider.public_url).unwrap();
    let mut filler = Filler::new(now(), "", &provider.options);
    let request = filler.request(&sample);
    let headers = request.header_list();
    let scope = Scope::new(&provider, request.raw(&headers), now());
    let events = identify::identify(&scope).unwrap();
    let content_type = headers
        .get("content-type")
        .map(|value| std::str::from_utf8(value).unwrap());
    let found = events.iter().map(|event| {
        let normalized = normalize.read(original(event, content_type));
        serde_json::to_value(normalized).unwrap()
    });
    let found: Vec<Value> = found.collect();
    let file = format!("providers/{}/samples/{name}.normalized.json", adapter.name);
    let expected = match std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)) {
        Err(_) => vec![Value::Null; found.len()],
        Ok(json) => match serde_json::from_slice(&filler.fill(&json)).unwrap() {
            Value::Array(values) => values,
            value => vec![value],
        },
    };
    (found, expected)
}

#[test]
fn every_expectation_has_its_sample() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("providers");
    for provider in std::fs::read_dir(folder).unwrap() {
        let Ok(samples) = std::fs::read_dir(provider.unwrap().path().join("samples")) else {
            continue;
        };
        for file in samples.map(|file| file.unwrap().path()) {
            let name = file.to_str().unwrap();
            if let Some(sample) = name.strip_suffix(".normalized.json") {
                assert!(Path::new(&format!("{sample}.http")).is_file(), "{name}");
            }
        }
    }
}

fn read(lines: &str, payload: &str, content_type: &str) -> Option<Normalized> {
    let manifest = format!("title='t'\nverify='none'\n[body]\nform_field='p'\n[normalize]\n{lines}");
    let adapter = Adapter::parse("p", &manifest).unwrap();
    adapter.normalize().unwrap().read(Original {
        event_type: Some("paid"),
        content_type: Some(content_type),
        headers: r#"{"x-currency":"kwd"}"#,
        payload: payload.as_bytes(),
        occurred_at: None,
    })
}

fn amount(unit: &str, value: &str, currency: &str) -> Option<i64> {
    let lines = format!(
        "amount='body:/a'\nunit='{unit}'\ncurrency='body:/c'\ndecimals={{ISK=2,IDR=0}}\ntypes={{paid='payment.succeeded'}}"
    );
    let payload = format!("{{\"a\":{value},\"c\":{currency}}}");
    read(&lines, &payload, "application/json").unwrap().amount
}

#[test]
fn amounts_are_whole_minor_units_of_their_currency_or_none() {
    for (unit, value, currency, expected) in [
        ("minor", "1099", "\"usd\"", Some(1099)),
        ("minor", "\"1099\"", "\"USD\"", Some(1099)),
        ("minor", "500", "\"JPY\"", Some(500)),
        ("minor", "500", "\"ISK\"", Some(5)),
        ("minor", "501", "\"ISK\"", None),
        ("minor", "7", "\"IDR\"", Some(700)),
        ("minor", "12", "null", Some(12)),
        ("minor", "12", "\"BTC\"", Some(12)),
        ("minor", "12.5", "\"USD\"", None),
        ("major", "150.6", "\"BRL\"", Some(15_060)),
        ("major", "0.1", "\"BRL\"", Some(10)),
        ("major", "\"1.234\"", "\"KWD\"", Some(1234)),
        ("major", "500", "\"JPY\"", Some(500)),
        ("major", "500.5", "\"JPY\"", None),
        ("major", "10.005", "\"EUR\"", None),
        ("major", "90071992547409.93", "\"EUR\"", Some(9_007_199_254_740_993)),
        ("major", "10", "null", None),
        ("major", "10", "\"BTC\"", None),
        ("major", "\"10,00\"", "\"EUR\"", None),
        ("major", "true", "\"EUR\"", None),
        ("major", "null", "\"EUR\"", None),
    ] {
        assert_eq!(amount(unit, value, currency), expected, "{unit} {value} {currency}");
    }
}

#[test]
fn everything_stored_can_be_read() {
    let lines = "match='{type}:{form:state}'\namount='form:p:/a'\ncurrency='header:X-Currency'\nreference='body:/id'\n\
        customer='upper(form:who)'\noccurred_at='body:/at'\ntypes={'paid:*'='payment.disputed'}";
    let form = "state=open&who=me&p=%7B%22a%22%3A12%2C%22id%22%3A%22r%22%2C%22at%22%3A5%7D";
    let found = read(lines, form, "application/x-www-form-urlencoded").unwrap();
    let expected = Normalized {
        event_type: Some("payment.disputed"),
        amount: Some(12),
        currency: Some("KWD".into()),
        reference: Some("r".into()),
        customer: Some("ME".into()),
        occurred_at: Timestamp::from_second(5).ok(),
    };
    assert_eq!(found, expected);
    assert_eq!(read(lines, "{}", "application/json"), None);
    assert_eq!(read("types={}", "{}", "application/json"), None);
    let nothing = read("amount='body:/a'\ntypes={paid={}}", "\u{ff}not JSON", "text/plain").unwrap();
    assert_eq!((nothing.event_type, nothing.amount), (None, None));
}

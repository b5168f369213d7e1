//! Every embedded folder, and every file of vectors, at once.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::{tests::now, *};
use crate::adapters::{Adapter, Provider, ProviderSpec, Registry};

/// Key pairs that are for tests only.
pub(crate) const ED25519: &str = include_str!("../../tests/vectors/keys/ed25519-1.pem");
pub(crate) const P256: &str = include_str!("../../tests/vectors/keys/p256-1.pem");
pub(crate) const P521: &str = include_str!("../../tests/vectors/keys/p521-1.pem");
pub(crate) const RSA: &str = include_str!("../../tests/vectors/keys/rsa-1.pem");
pub(crate) const RSA_2: &str = include_str!("../../tests/vectors/keys/rsa-2.pem");

#[test]
fn every_folder_is_understood() {
    let (_, errors) = Registry::read_all(None).unwrap();
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

/// The folder of shared vectors, where there is one beside the crate (or where `CERCA_VECTORS` says).
fn shared_vectors() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors");
    let folder = std::env::var_os("CERCA_VECTORS").map_or_else(beside, PathBuf::from);
    folder.is_dir().then_some(folder)
}

#[test]
fn shared_vectors_are_met() {
    let Some(folder) = shared_vectors() else {
        return;
    };
    let registry = Registry::embedded();
    let mut wrong = Vec::new();
    let mut lines = 0;
    for name in registry.names() {
        let Ok(text) = std::fs::read_to_string(folder.join(format!("{name}.jsonl"))) else {
            continue;
        };
        for result in run_vectors(&text, &registry).unwrap() {
            lines += 1;
            if !result.ok() {
                wrong.push(format!(
                    "{} {}: {:?} {:?}",
                    result.provider, result.case, result.differences, result.reason
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {lines}:\n{}", wrong.len(), wrong.join("\n"));
}

/// A provider of an adapter, with a secret that suits any of its rules: where the sender has a key pair, the private key.
pub(crate) fn provider(adapter: &Adapter, registry: &Registry) -> Provider {
    let shapes = [
        Some("c2VjcmV0c2VjcmV0c2VjcmV0"),
        Some("73656372657473656372657473656372"),
        Some("user:password"),
        Some("token:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"),
        Some("whsec_c2VjcmV0c2VjcmV0"),
        Some(ED25519),
        Some(P256),
        Some(P521),
        Some(RSA),
        None,
    ];
    let mut tried = shapes
        .into_iter()
        .map(|secret| Provider::new(spec(adapter, secret), registry));
    tried
        .find_map(Result::ok)
        .unwrap_or_else(|| panic!("{}: no secret suits", adapter.name))
}

fn spec(adapter: &Adapter, secret: Option<&str>) -> ProviderSpec {
    ProviderSpec {
        name: "mine".into(),
        adapter: Some(adapter.name.to_string()),
        secrets: secret.into_iter().map(SecretString::from).collect(),
        decryption_keys: adapter.decrypts_first().then(|| RSA_2.into()).into_iter().collect(),
        public_url: "https://hooks.example.com".into(),
        options: adapter
            .options()
            .into_iter()
            .map(|name| (name.to_owned(), format!("sample-{name}")))
            .collect(),
        ..ProviderSpec::default()
    }
}

fn reason(provider: &Provider, request: &OwnedRequest) -> Option<&'static str> {
    let headers = request.header_list();
    ingest(provider, &request.raw(&headers), now())
        .err()
        .map(|rejection| rejection.reason())
}

#[test]
fn every_sample_signs_and_verifies_and_no_bad_one_does() {
    let registry = Registry::embedded();
    for adapter in registry.iter() {
        samples_sign_and_verify(adapter, &registry);
    }
}

fn samples_sign_and_verify(adapter: &Adapter, registry: &Registry) {
    assert!(!adapter.samples().is_empty(), "{}: no samples", adapter.name);
    let provider = provider(adapter, registry);
    for (name, text) in adapter.samples() {
        let at = format!("{}/{name}", adapter.name);
        let sample = OwnedRequest::parse_sample(text, &provider.public_url).unwrap();
        let signed = sign(&provider, &sample, now(), Bad::None).unwrap_or_else(|error| panic!("{at}: {error}"));
        let headers = signed.header_list();
        match ingest(&provider, &signed.raw(&headers), now()) {
            Ok(Ingested::Events { events, .. }) => {
                assert!(!events.is_empty(), "{at}: no events");
                for event in events {
                    assert!(!event.id.is_empty(), "{at}");
                    assert!(event.event_type.is_some(), "{at}: no type");
                    assert!(!event.id.contains("{{"), "{at}: {}", event.id);
                }
            }
            other => panic!("{at}: {other:?}"),
        }
        for bad in [Bad::Tampered, Bad::WrongKey, Bad::Malformed, Bad::Missing] {
            let request = sign(&provider, &sample, now(), bad).unwrap();
            let headers = request.header_list();
            let refused = ingest(&provider, &request.raw(&headers), now()).err();
            let status = refused.map(|rejection| rejection.status());
            assert!(matches!(status, Some(400 | 401)), "{at}: {bad:?}: {status:?}");
        }
        match sign(&provider, &sample, now(), Bad::Stale) {
            Ok(request) => assert_eq!(reason(&provider, &request), Some("stale"), "{at}"),
            Err(error) => assert_eq!(error, SignError::NotTimed, "{at}"),
        }
    }
}

#[test]
fn a_key_is_pinned_for_every_rule_whose_keys_are_fetched() {
    let registry = Registry::embedded();
    let mut pinned = 0;
    for adapter in registry.iter() {
        let fetched = adapter.rules.signatures.iter().filter(|rule| rule.fetched);
        let names: Vec<_> = fetched.map(|rule| rule.name.clone()).collect();
        // Those of a handshake (Atlassian's) are for no event.
        if names.is_empty()
            || adapter
                .rules
                .handshakes
                .iter()
                .any(|handshake| handshake.keep.is_some())
        {
            continue;
        }
        let providers = [P256, P521, RSA].into_iter().filter_map(|key| {
            let accept = Some(names.clone());
            Provider::new(
                ProviderSpec {
                    accept,
                    ..spec(adapter, Some(key))
                },
                &registry,
            )
            .ok()
        });
        let provider = providers
            .into_iter()
            .next()
            .unwrap_or_else(|| panic!("{}", adapter.name));
        assert!(!provider.fetches_keys(), "{}", adapter.name);
        let told = provider.warnings().join("\n");
        assert!(
            told.contains("a public key is pinned (secret 1)"),
            "{}: {told}",
            adapter.name
        );
        assert!(told.contains("for tests only"), "{}: {told}", adapter.name);
        for text in adapter.samples().values() {
            let sample = OwnedRequest::parse_sample(text, &provider.public_url).unwrap();
            for (bad, refused) in [(Bad::None, false), (Bad::Tampered, true), (Bad::WrongKey, true)] {
                let request =
                    sign(&provider, &sample, now(), bad).unwrap_or_else(|error| panic!("{}: {error}", adapter.name));
                assert_eq!(
                    reason(&provider, &request).is_some(),
                    refused,
                    "{} {bad:?}",
                    adapter.name
                );
            }
        }
        pinned += 1;
    }
    assert!(pinned >= 8, "{pinned}");
}

/// What comes of the adapter's vectors that is not as they say.
fn unmet(adapter: &Adapter, registry: &Registry) -> Vec<String> {
    let name = &adapter.name;
    let Some(text) = adapter.vectors() else {
        return vec![format!("{name}: no vectors")];
    };
    let results = run_vectors(text, registry).unwrap_or_else(|error| panic!("{name}: {error}"));
    let wrong = results.iter().filter(|result| !result.ok());
    wrong
        .map(|result| format!("{name} {}: {:?} {:?}", result.case, result.differences, result.reason))
        .collect()
}

#[test]
fn what_contributors_are_told_is_a_whole_adapter_in_ten_lines() {
    let text = include_str!("../../CONTRIBUTING.md");
    let block = |before: &str, mark: &str| {
        let (_, rest) = text.split_once(before).unwrap();
        let (_, rest) = rest.split_once(mark).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let manifest = block("`providers/acme/adapter.toml`", "```toml\n");
    assert_eq!(manifest.lines().count(), 10);
    let directory = tempfile::TempDir::new().unwrap();
    let folder = directory.path().join("acme");
    std::fs::create_dir_all(folder.join("samples")).unwrap();
    std::fs::write(folder.join("adapter.toml"), manifest).unwrap();
    for name in ["samples/order.paid.http", "samples/order.refunded.http"] {
        std::fs::write(folder.join(name), block(&format!("providers/acme/{name}`"), "```\n")).unwrap();
    }
    let registry = Registry::with_dir(directory.path()).unwrap();
    let made = make_vectors(registry.get("acme").unwrap(), &registry, None).unwrap();
    let lines: String = made.iter().map(|vector| format!("{}\n", vector.line)).collect();
    std::fs::write(folder.join("vectors.jsonl"), lines).unwrap();

    // All that is asked of the folders of the repository.
    let registry = Registry::with_dir(directory.path()).unwrap();
    let acme = registry.get("acme").unwrap();
    samples_sign_and_verify(acme, &registry);
    assert_eq!(unmet(acme, &registry), Vec::<String>::new());
    assert_eq!(acme.lint(), Vec::<String>::new());
}

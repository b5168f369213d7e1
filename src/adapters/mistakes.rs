//! The mistakes that people make most when they register a provider, each told in a sentence that shows no secret.

use secrecy::ExposeSecret as _;

use super::{
    adapter::Adapter,
    keys,
    provider::ProviderSpec,
    rules::{KeyStep, Rules, Scheme},
    uses::{options, signs_url},
};

/// Adds what is likely wrong and not told yet.
pub(crate) fn add(spec: &ProviderSpec, adapter: &Adapter, rules: &Rules, warnings: &mut Vec<String>) {
    for (index, secret) in spec.secrets.iter().enumerate() {
        let found = secret_mistakes(spec, adapter, rules, secret.expose_secret().trim());
        warnings.extend(found.into_iter().map(|text| format!("secret {}{text}", index + 1)));
    }
    let own_key = spec.signature.contains_key("key");
    if own_key && !adapter.is_generic() && rules.signatures.iter().any(|rule| is_mac(rule.scheme)) {
        warnings.push(format!(
            "`signature.key` changes how the secret is decoded; {} signs with the secret as its adapter has it, even where \
             the secret looks like hex or base64",
            adapter.title()
        ));
    }
    for name in options(rules) {
        let told = warnings.iter().any(|text| text.contains(&format!("option `{name}`")));
        if !told && spec.options.get(name).is_none_or(String::is_empty) {
            warnings.push(format!(
                "the option `{name}` is not set, and the adapter reads it: options = {{ {name} = \"…\" }}"
            ));
        }
    }
    if is_local(&spec.public_url) && signs_url(rules) && !warnings.iter().any(|text| text.contains("`public_url`")) {
        warnings.push(format!(
            "the sender signs the URL that it calls, and `public_url` is not set: `{}` is what signatures are checked with",
            spec.public_url
        ));
    }
    let own = adapter.rules.signatures.iter().filter_map(|rule| rule.tolerance).min();
    let set = rules.signatures.iter().filter_map(|rule| rule.tolerance).min();
    if let (Some(own), Some(set)) = (own, set)
        && set < own
        && spec.tolerance.is_some()
    {
        warnings.push(format!(
            "`tolerance` is {set} s, less than the adapter's own {own} s: a request that waits at the sender or on its way, or a \
             clock that is off, is refused sooner"
        ));
    }
    if adapter.sender().resigns == Some(false)
        && let Some(tolerance) = rules.signatures.iter().filter_map(|rule| rule.tolerance).min()
    {
        warnings.push(format!(
            "this sender keeps the first attempt's signature and time, so an attempt that comes more than {tolerance} s \
             later is refused: tolerance = \"none\", or longer than its retries go on"
        ));
    }
}

fn secret_mistakes(spec: &ProviderSpec, adapter: &Adapter, rules: &Rules, secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (prefix, what) in adapter.mistaken_secrets() {
        if secret.starts_with(prefix.as_str()) {
            found.push(format!(" begins with `{prefix}`: {what}"));
        }
    }
    let keys: Vec<&[KeyStep]> = rules
        .signatures
        .iter()
        .filter(|rule| is_mac(rule.scheme))
        .map(|rule| rule.key.as_slice())
        .collect();
    let prefixed = secret.starts_with("whsec_");
    let raw = !keys.is_empty() && keys.iter().all(|key| matches!(key, [] | [KeyStep::Raw]));
    let decoded = keys.iter().any(|key| key.contains(&KeyStep::Whsec));
    let keeps = adapter.secret_pattern().iter().any(|shape| shape == "whsec_");
    if prefixed && raw && !keeps {
        found.push(
            " begins with `whsec_`, and this adapter takes it whole as the key; Standard Webhooks decode what follows as \
             base64: signature = { key = \"whsec\" } if the sender says so"
                .to_owned(),
        );
    }
    if prefixed && decoded && keeps && !adapter.decodes_whsec() {
        found.push(" is decoded, although at this sender its `whsec_` belongs to the key".to_owned());
    }
    if decoded && let Ok(key) = keys::decode(&[KeyStep::Whsec], secret) {
        let text = std::str::from_utf8(&key).unwrap_or_default();
        // Of random bytes, so many are never letters and digits only.
        let encoded_again =
            text.starts_with("whsec_") || text.len() >= 24 && text.len().is_multiple_of(4) && keys::is_base64(text);
        if encoded_again {
            found.push(
                " is base64 of something that looks encoded already: register it as the sender shows it, unless it is a \
                 text of your own"
                    .to_owned(),
            );
        }
    }
    let same = |(_, value): &(&String, &String)| value.trim() == secret && !secret.is_empty();
    if let Some((name, _)) = spec.options.iter().find(same)
        && !keys.is_empty()
    {
        found.push(format!(
            " is the same as the option `{name}`, which only answers the sender's challenge; the key that signs is another \
             text{}",
            adapter.secret_hint().map(|hint| format!(": {hint}")).unwrap_or_default()
        ));
    }
    found
}

/// What is right and looks odd, so that nobody mends it.
pub(crate) fn notes(spec: &ProviderSpec, adapter: &Adapter, rules: &Rules) -> Vec<String> {
    let keys = rules.signatures.iter().filter(|rule| is_mac(rule.scheme));
    let mut keys = keys.map(|rule| rule.key.as_slice()).peekable();
    let raw = keys.peek().is_some() && keys.all(|key| matches!(key, [] | [KeyStep::Raw]));
    if !raw || adapter.is_generic() {
        return Vec::new();
    }
    let secrets = spec.secrets.iter().enumerate();
    let looks_like_hex = secrets.filter(|(_, secret)| {
        let text = secret.expose_secret();
        text.len() >= 32 && text.len().is_multiple_of(2) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    let note = |(index, _): (usize, _)| {
        format!(
            "secret {} looks like hex; its characters are the key, as {} has it",
            index + 1,
            adapter.title()
        )
    };
    looks_like_hex.map(note).collect()
}

fn is_mac(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::Hmac(_))
}

/// Whether no sender can call a URL, because it names this machine or nothing.
fn is_local(url: &str) -> bool {
    let host = url.split_once("://").map_or("", |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    let own = ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::]"];
    host.is_empty()
        || own.iter().any(|own| {
            host.strip_prefix(own)
                .is_some_and(|port| port.is_empty() || port.starts_with(':'))
        })
}

#[cfg(test)]
mod tests {
    use crate::adapters::{Provider, ProviderSpec, Registry};

    fn warned(spec: ProviderSpec, registry: &Registry) -> String {
        Provider::new(spec, registry).unwrap().warnings().join("\n")
    }

    /// What is told of a provider; `options` and `signature` as TOML.
    fn told(adapter: &str, secret: &str, options: &str, signature: &str, public_url: &str) -> String {
        let registry = Registry::embedded();
        let options: toml::Table = toml::from_str(options).unwrap();
        let spec = ProviderSpec {
            name: "p".into(),
            adapter: Some(adapter.into()),
            secrets: vec![secret.into()],
            public_url: public_url.into(),
            options: options
                .into_iter()
                .map(|(name, value)| (name, value.as_str().unwrap().to_owned()))
                .collect(),
            signature: toml::from_str(signature).unwrap(),
            ..ProviderSpec::default()
        };
        warned(spec, &registry)
    }

    #[test]
    fn the_usual_mistakes_are_told_and_nothing_else() {
        let whsec = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0";
        let twice = "whsec_d2hzZWNfYzJWamNtVjBjMlZqY21WMA==";
        let hex = "73656372657473656372657473656372";
        let url = "https://h";
        for (adapter, secret, options, signature, public_url, expected) in [
            ("stripe", whsec, "", "", url, ""),
            ("stripe", "sk_test_1234", "", "", url, "an API key"),
            ("stripe", whsec, "", "key='whsec'", url, "belongs to the key"),
            ("svix", whsec, "", "", url, ""),
            ("svix", twice, "", "", url, "encoded already"),
            // A key of 24 bytes needs no padding.
            (
                "svix",
                "whsec_YzJWamNtVjBjMlZqY21WMGMyVmpjbVYw",
                "",
                "",
                url,
                "encoded already",
            ),
            ("svix", "whsec_7IGl/UN2rZrVINsfj0bKzHOkrD4NQSUz", "", "", url, ""),
            ("creem", whsec, "", "", url, ""),
            ("generic_hmac", whsec, "", "source='header:X-S'", url, "takes it whole"),
            ("generic_hmac", whsec, "", "source='header:X-S'\nkey='whsec'", url, ""),
            // Shopify's secrets look like hex and are used as text.
            ("shopify", hex, "", "", url, ""),
            (
                "shopify",
                hex,
                "",
                "key='hex'",
                url,
                "even where the secret looks like hex",
            ),
            ("shopify", "shpat_0123456789abcdef", "", "", url, "access token"),
            ("shopify", " 0123456789abcdef\n", "", "", url, "white space"),
            ("meta", hex, "verify_token='abc'", "", url, ""),
            ("meta", hex, "", "", url, "option `verify_token`"),
            (
                "meta",
                hex,
                &format!("verify_token='{hex}'"),
                "",
                url,
                "same as the option `verify_token`",
            ),
            ("square", "abc", "", "", "", "`public_url` is not set"),
            (
                "square",
                "abc",
                "",
                "",
                "http://127.0.0.1:8080",
                "`public_url` is not set",
            ),
            ("square", "abc", "", "", url, ""),
        ] {
            let text = told(adapter, secret, options, signature, public_url);
            assert!(text.contains(expected), "{adapter} {options} {signature}: {text}");
            assert!(
                !expected.is_empty() || text.is_empty(),
                "{adapter} {options} {signature}: {text}"
            );
            assert!(!text.contains(secret.trim()), "{text}");
        }
    }

    #[test]
    fn a_secret_that_looks_like_hex_and_is_text_is_noted() {
        let noted = |adapter: &str, secret: &str, signature: &str| {
            let registry = Registry::embedded();
            let spec = ProviderSpec {
                name: adapter.into(),
                secrets: vec![secret.into()],
                signature: toml::from_str(signature).unwrap(),
                ..ProviderSpec::default()
            };
            Provider::new(spec, &registry).unwrap().notes().join("\n")
        };
        let hex = "73656372657473656372657473656372";
        assert!(noted("shopify", hex, "").contains("its characters are the key, as Shopify has it"));
        assert_eq!(noted("shopify", "shpss_73656372657473656372657473656372", ""), "");
        assert_eq!(noted("shopify", hex, "key='hex'"), "");
        assert_eq!(noted("adyen", hex, ""), "");
        assert_eq!(noted("generic_hmac", hex, ""), "");
    }

    #[test]
    fn a_tolerance_below_the_senders_is_told() {
        let told = |tolerance: Option<&str>| {
            let spec = ProviderSpec {
                name: "stripe".into(),
                secrets: vec!["whsec_c2VjcmV0c2VjcmV0c2VjcmV0".into()],
                tolerance: tolerance.map(str::to_owned),
                ..ProviderSpec::default()
            };
            warned(spec, &Registry::embedded())
        };
        assert!(told(Some("30s")).contains("`tolerance` is 30 s, less than the adapter's own 300 s"));
        for tolerance in [None, Some("5m"), Some("1h"), Some("none")] {
            assert_eq!(told(tolerance), "", "{tolerance:?}");
        }
    }

    #[test]
    fn an_option_that_one_rule_alone_needs_is_told_as_that() {
        let told = |adapter: &str, secret: &str| {
            let spec = ProviderSpec {
                name: adapter.into(),
                secrets: vec![secret.into()],
                ..ProviderSpec::default()
            };
            warned(spec, &Registry::embedded())
        };
        assert_eq!(
            told("atlassian_connect", "0123456789012345678901234567890123456789"),
            "the option `base_url` is not set, so requests that only `installation` proves are refused"
        );
        let key = include_str!("../../tests/vectors/keys/rsa-1.pem");
        let text = told("woovi", key);
        assert!(
            text.contains("the option `company` is not set, so requests that only `rsa` proves are refused"),
            "{text}"
        );
        assert_eq!(told("woovi", "not-a-real-secret"), "");
        let text = told("wise", key);
        assert!(text.contains("so no request of the sender will be taken"), "{text}");
    }

    /// A sender of whom its folder says that every attempt carries the first one's time.
    #[test]
    fn a_tolerance_that_shipped_adapters_cannot_meet_is_told() {
        let registry = Registry::embedded();
        for (adapter, key) in [
            ("sendgrid", include_str!("../../tests/vectors/keys/p256-1.pem")),
            ("paypal", ""),
        ] {
            let told = |tolerance: Option<&str>| {
                let spec = ProviderSpec {
                    name: adapter.into(),
                    secrets: Some(key)
                        .filter(|key| !key.is_empty())
                        .map(Into::into)
                        .into_iter()
                        .collect(),
                    tolerance: tolerance.map(str::to_owned),
                    options: [("webhook_id".to_owned(), "1".to_owned())].into(),
                    ..ProviderSpec::default()
                };
                warned(spec, &registry)
            };
            assert!(told(Some("5m")).contains("more than 300 s"), "{adapter}");
            assert!(!told(None).contains("later is refused"), "{adapter}");
        }
    }

    #[test]
    fn a_tolerance_that_retries_cannot_meet_is_told() {
        let manifest = "title='t'\n[[signature]]\nscheme='hmac-sha256'\nsource='header:s'\ntimestamp='header:t'\n\
            message='{timestamp}.{body}'\ntolerance='5m'\n[event]\nid='body:/id'\n[sender]\nresigns=false";
        let adapter = crate::adapters::Adapter::parse("mine", manifest).unwrap();
        let mut registry = Registry::default();
        assert!(adapter.lint().iter().any(|text| text.contains("resigns")));
        registry.insert(adapter);
        let told = |tolerance: Option<&str>| {
            let spec = ProviderSpec {
                name: "mine".into(),
                secrets: vec!["s".into()],
                tolerance: tolerance.map(str::to_owned),
                ..ProviderSpec::default()
            };
            warned(spec, &registry)
        };
        assert!(told(None).contains("more than 300 s"), "{}", told(None));
        assert_eq!(told(Some("none")), "");
    }
}

//! The mistakes that people make most when they register a provider, each told in a sentence that shows no secret.

use std::collections::BTreeSet;

use secrecy::ExposeSecret as _;

use super::{
    adapter::Adapter,
    expr::Expr,
    keys,
    provider::ProviderSpec,
    rules::{KeyStep, Rules, Scheme},
    template::{Operand, Test},
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
        let encoded_again = text.starts_with("whsec_")
            || text.len() >= 24 && text.len().is_multiple_of(4) && text.ends_with('=') && keys::is_base64(text);
        if encoded_again {
            found
                .push(" is base64 of something that is encoded already: register it as the sender shows it".to_owned());
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

pub(super) fn signs_url(rules: &Rules) -> bool {
    rules.signatures.iter().any(|rule| {
        rule.message.exprs().into_iter().any(|expr| {
            reads(expr, &|expr| {
                matches!(
                    expr,
                    Expr::Url | Expr::UrlWithPort | Expr::UrlBase | Expr::Host | Expr::PlivoUrl
                )
            })
        })
    })
}

/// The options that signatures and answers read as values.
pub(super) fn options(rules: &Rules) -> BTreeSet<&str> {
    let sources = rules.signatures.iter().flat_map(|rule| &rule.sources);
    let messages = rules.signatures.iter().flat_map(|rule| rule.message.exprs());
    let answers = rules.handshakes.iter().flat_map(|handshake| {
        let headers = handshake.headers.iter().flat_map(|(_, text)| text.exprs());
        handshake.body.exprs().into_iter().chain(headers)
    });
    let keys = rules.key_source.iter().flat_map(|source| source.url.required());
    let mut names = BTreeSet::new();
    for expr in sources.chain(messages).chain(answers).chain(keys) {
        gather(expr, &mut names);
    }
    names
}

/// Those, and the ones that conditions compare with.
pub(crate) fn all_options(rules: &Rules) -> BTreeSet<&str> {
    let claims = rules
        .signatures
        .iter()
        .flat_map(|rule| rule.claims.iter().chain(&rule.when));
    let handshakes = rules.handshakes.iter();
    let conditions = handshakes.flat_map(|handshake| handshake.when.iter().chain(&handshake.require));
    let mut names = options(rules);
    let keys = rules.key_source.iter().flat_map(|source| source.url.exprs());
    keys.for_each(|expr| gather(expr, &mut names));
    let event = &rules.event;
    let selectors = [&event.id, &event.key, &event.kind, &event.time, &event.ordering];
    for selector in selectors.into_iter().flatten() {
        selector
            .value
            .exprs()
            .into_iter()
            .for_each(|expr| gather(expr, &mut names));
    }
    let bound = rules
        .bind
        .iter()
        .flat_map(|bind| bind.when.iter().chain([&bind.condition]));
    for condition in bound.chain(claims).chain(conditions) {
        gather(&condition.expr, &mut names);
        if let Test::Equals(Operand::Config(name)) | Test::Differs(Operand::Config(name)) = &condition.test {
            names.insert(name);
        }
        if let Test::Equals(Operand::Template(text)) | Test::Differs(Operand::Template(text)) = &condition.test {
            text.exprs().into_iter().for_each(|expr| gather(expr, &mut names));
        }
    }
    names
}

fn gather<'r>(expr: &'r Expr, names: &mut BTreeSet<&'r str>) {
    match expr {
        Expr::Config(name) => {
            names.insert(name);
        }
        Expr::Call(_, inner) | Expr::At(_, inner) | Expr::HeaderLines(inner) => gather(inner, names),
        Expr::Join(parts) => parts.iter().for_each(|part| gather(part, names)),
        _ => {}
    }
}

/// Whether an expression, or what it wraps, is of a kind.
fn reads(expr: &Expr, kind: &dyn Fn(&Expr) -> bool) -> bool {
    kind(expr) || matches!(expr, Expr::Call(_, inner) | Expr::At(_, inner) if reads(inner, kind))
}

#[cfg(test)]
mod tests {
    use crate::adapters::{Provider, ProviderSpec, Registry};

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
        Provider::new(spec, &registry).unwrap().warnings().join("\n")
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
            Provider::new(spec, &registry).unwrap().warnings().join("\n")
        };
        assert!(told(None).contains("more than 300 s"), "{}", told(None));
        assert_eq!(told(Some("none")), "");
    }
}

//! What to write into the configuration for one kind of sender.

use crate::adapters::{Adapter, Gap, SecretNeed, Uncovered};

/// The lines, without indentation. `public_url` is whether the configuration has one already.
pub(super) fn lines(adapter: &Adapter, public_url: bool) -> Vec<String> {
    let needs = adapter.needs();
    let name = &adapter.name;
    let mut lines = vec!["[[provider]]".to_owned(), format!("name = \"{name}\"")];
    let secret = format!("secrets = [\"env:{}\"]", variable(name));
    match needs.secret {
        SecretNeed::Shared => lines.push(secret),
        SecretNeed::UserPassword => lines.push(format!("{secret}   # user:password")),
        SecretNeed::PublicKey => lines.push(format!(
            "{secret}   # the sender's public key; file:PATH for one in a file"
        )),
        SecretNeed::Fetched => lines.push("# no secrets: the sender's keys are fetched".to_owned()),
        SecretNeed::HandedOver => {
            lines.push("# no secrets: the sender hands its own over, and it is kept sealed".to_owned());
        }
        SecretNeed::Nothing => lines.push("# no secrets: nothing is verified".to_owned()),
    }
    if needs.decryption_key {
        lines.push(format!("decryption_keys = [\"file:{name}-private.pem\"]"));
    }
    if needs.public_url && !public_url {
        lines.push("public_url = \"https://YOUR-HOST\"   # the sender signs the URL that it calls".to_owned());
    }
    let written = |names: &[String]| {
        names
            .iter()
            .map(|name| format!("{name} = \"…\""))
            .collect::<Vec<_>>()
            .join(", ")
    };
    if !needs.options.is_empty() {
        lines.push(format!("options = {{ {} }}", written(&needs.options)));
    }
    if !needs.optional.is_empty() {
        lines.push(format!("# options that may be set: {}", needs.optional.join(", ")));
    }
    lines.extend(accept(adapter));
    if needs.secret == SecretNeed::HandedOver {
        lines.push(String::new());
        lines.push("[store]".to_owned());
        lines.push("seal_key = \"env:CERCA_SEAL_KEY\"   # `openssl rand -hex 32` makes one".to_owned());
    }
    lines
}

/// How to take signatures only, where the secret itself would be taken too.
fn accept(adapter: &Adapter) -> Option<String> {
    let all = adapter.uncovered();
    let is_token = |one: &&Uncovered| one.gaps.contains(&Gap::Everything);
    let signed = all.iter().filter(|one| !is_token(one)).flat_map(|one| &one.rules);
    let signed: Vec<&str> = signed.map(String::as_str).collect();
    if signed.is_empty() || !all.iter().any(|one| is_token(&one)) {
        return None;
    }
    Some(format!(
        "# accept = [\"{}\"]   # without it, the secret itself is taken for a proof too",
        signed.join("\", \"")
    ))
}

/// The environment variable for the secret of a provider.
pub(in crate::cli) fn variable(provider: &str) -> String {
    let upper = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    let name: String = provider.chars().map(upper).collect();
    // A name that begins with a digit is none to a shell.
    let mark = if name.starts_with(|c: char| c.is_ascii_digit()) {
        "_"
    } else {
        ""
    };
    format!("{mark}{name}_SECRET")
}

#[cfg(test)]
mod tests {
    use crate::adapters::{Provider, ProviderSpec, Registry, SecretNeed};

    use super::*;

    /// Secrets, one of which suits any adapter that needs one.
    const SHAPES: [&str; 7] = [
        "c2VjcmV0c2VjcmV0c2VjcmV0",
        "73656372657473656372657473656372",
        "user:password",
        "token:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY",
        include_str!("../../../tests/vectors/keys/ed25519-1.pem"),
        include_str!("../../../tests/vectors/keys/p256-1.pem"),
        include_str!("../../../tests/vectors/keys/rsa-1.pem"),
    ];

    #[test]
    fn what_is_printed_is_all_that_a_provider_needs_and_nothing_else() {
        let registry = Registry::embedded();
        for adapter in registry.iter() {
            let name = &adapter.name;
            let text = lines(adapter, false).join("\n");
            let table: toml::Table = toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
            let table = &table["provider"].as_array().unwrap()[0];
            let with_secret = table.get("secrets").is_some();
            let spec = |secret: Option<&str>| ProviderSpec {
                name: name.to_string(),
                secrets: secret.into_iter().map(Into::into).collect(),
                decryption_keys: table
                    .get("decryption_keys")
                    .map(|_| include_str!("../../../tests/vectors/keys/rsa-2.pem").into())
                    .into_iter()
                    .collect(),
                public_url: table
                    .get("public_url")
                    .map_or_else(|| "http://127.0.0.1:8080".into(), |_| "https://h.example".into()),
                options: table
                    .get("options")
                    .and_then(|options| options.as_table())
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| (name.clone(), format!("sample-{name}")))
                    .collect(),
                ..ProviderSpec::default()
            };
            assert_eq!(
                with_secret,
                matches!(
                    adapter.needs().secret,
                    SecretNeed::Shared | SecretNeed::UserPassword | SecretNeed::PublicKey
                ),
                "{name}"
            );
            let shapes = with_secret.then_some(SHAPES);
            let made = match shapes {
                None => Provider::new(spec(None), &registry).ok(),
                Some(shapes) => shapes
                    .into_iter()
                    .find_map(|secret| Provider::new(spec(Some(secret)), &registry).ok()),
            };
            let provider = made.unwrap_or_else(|| panic!("{name}: no provider\n{text}"));
            let unset = |text: &&String| text.contains("is not set");
            let handed = adapter.needs().secret == SecretNeed::HandedOver;
            let missing: Vec<_> = provider.warnings().iter().filter(unset).filter(|_| !handed).collect();
            assert!(missing.is_empty(), "{name}: {missing:?}\n{text}");
        }
    }

    #[test]
    fn a_variable_has_a_name_that_shells_take() {
        assert_eq!(variable("stripe-br"), "STRIPE_BR_SECRET");
        assert_eq!(variable("3c"), "_3C_SECRET");
    }
}

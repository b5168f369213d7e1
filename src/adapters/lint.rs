//! What is allowed but deserves a look.

use std::collections::BTreeSet;

use secrecy::{ExposeSecret as _, SecretString};

use super::{
    adapter::Adapter,
    expr::Expr,
    mistakes,
    provider::ProviderSpec,
    public_key::KeySet,
    rules::{Rules, Scheme, Signature},
    template::{Condition, Operand, Test},
};

/// Warnings about an adapter, for `providers check`.
pub(crate) fn adapter(adapter: &Adapter) -> Vec<String> {
    let rules = &adapter.rules;
    let mut warnings = Vec::new();
    let mut warn = |holds: bool, text: &str| {
        if holds {
            warnings.push(text.to_owned());
        }
    };
    warn(
        adapter.docs().is_none(),
        "`docs` is missing: cite the sender's own page",
    );
    warn(
        adapter.docs().is_some_and(|url| !url.starts_with("https://")),
        "`docs` is no https URL",
    );
    warn(
        adapter.samples().is_empty(),
        "no samples: `trigger` has nothing to send",
    );
    warn(
        adapter.vectors().is_none(),
        "no vectors: nothing shows that the rules are right",
    );
    warn(rules.event.kind.is_empty(), "`event.type` is missing");
    warn(!rules.verify, "`verify = \"none\"`: anyone who knows the URL can send");
    warn(
        rules.verify && adapter.secret_hint().is_none(),
        "`secret.hint` is missing: where is the secret found?",
    );
    if adapter.sender().resigns == Some(false) && rules.signatures.iter().any(|rule| rule.tolerance.is_some()) {
        warnings.push("`sender.resigns = false`, and yet a `tolerance`: late attempts are refused".to_owned());
    }
    for rule in &rules.signatures {
        let timed = rule.timestamp.is_some() || rule.captures_time();
        if timed && rule.tolerance.is_none() {
            let written = adapter.manifest.signature.iter().any(|table| table.tolerance.is_some());
            if !written {
                warnings.push(format!("signature `{}` has a time but no `tolerance`", rule.name));
            }
        }
        warnings.extend(signs_nothing(rule));
    }
    warnings
}

/// What is allowed so that a registered provider can say the rest, and is wrong in a folder: the key, and why.
pub(crate) fn faults(adapter: &Adapter) -> Vec<(&'static str, &'static str)> {
    let event = &adapter.rules.event;
    let mut faults = Vec::new();
    if event.id.is_empty() && event.key.is_empty() {
        faults.push((
            "event.id",
            "is missing, so every request is answered 400; where the sender has none, say how events are told apart: \
             `{sha256(body)}` takes equal bytes for a repetition, `request_id` takes every request for an event of its own",
        ));
    }
    faults
}

fn signs_nothing(rule: &Signature) -> Option<String> {
    let is_constant = matches!(rule.scheme, Scheme::Hmac(_)) && rule.message.exprs().is_empty();
    is_constant.then(|| format!("signature `{}` signs the same text each time", rule.name))
}

/// Warnings about a registered provider.
pub(crate) fn provider(spec: &ProviderSpec, adapter: &Adapter, rules: &Rules) -> Vec<String> {
    let mut warnings = Vec::new();
    if !rules.verify {
        warnings.push("`verify = \"none\"`: anyone who knows the URL can send".to_owned());
    }
    if rules.event.id.is_empty() && rules.event.key.is_empty() {
        warnings.push("there is no `event.id`, so every request is answered 400".to_owned());
    }
    let comes = rules.handshakes.iter().any(|handshake| handshake.keep.is_some());
    if rules.verify && spec.secrets.is_empty() && comes {
        warnings.push(
            "no secret is set: until the sender hands one over in its handshake, nothing else of it is taken"
                .to_owned(),
        );
    }
    for (index, secret) in spec.secrets.iter().enumerate() {
        let text = secret.expose_secret();
        let number = index + 1;
        if text.trim() != text {
            warnings.push(format!("secret {number} begins or ends with white space"));
        }
        if let Some(shape) = misses_shape(text, adapter.secret_pattern()) {
            warnings.push(format!(
                "secret {number} does not look like one of {}: expected {shape}",
                adapter.title()
            ));
        }
    }
    for name in unset_options(spec, rules) {
        match needing(spec, rules, name) {
            Needing::Nothing => {}
            Needing::Everything => warnings.push(format!(
                "the option `{name}` is not set, so no request of the sender will be taken"
            )),
            Needing::Rules(some) => warnings.push(format!(
                "the option `{name}` is not set, so requests that only `{}` proves are refused",
                some.join("` or `")
            )),
        }
    }
    for rule in &rules.signatures {
        // Several rules may read one key.
        for weak in spec.secrets.iter().filter_map(|secret| weak_key(rule, secret)) {
            if !warnings.contains(&weak) {
                warnings.push(weak);
            }
        }
        if !spec.signature.is_empty() {
            warnings.extend(signs_nothing(rule));
        }
    }
    let conditions = rules
        .handshakes
        .iter()
        .flat_map(|handshake| handshake.when.iter().chain(&handshake.require));
    for condition in conditions {
        if let Test::Equals(Operand::Config(name)) = &condition.test
            && !spec.options.contains_key(name)
        {
            warnings.push(format!(
                "the option `{name}` is not set, so the sender's ownership challenge is refused"
            ));
        }
    }
    if let Some(source) = &rules.key_source
        && source.fixed.is_none()
        && let Some(url) = source.url.over_options(&spec.options)
    {
        warnings.push(format!(
            "the options make `{url}` of `keys.url`, which is no plain https URL of a host that may have the keys, so no \
             key is fetched"
        ));
    }
    if spec.public_url.is_empty() && rules.signatures.iter().any(|rule| rule.message.uses(&Expr::Url)) {
        warnings.push("the sender signs the URL, and `public_url` is not set".to_owned());
    }
    mistakes::add(spec, adapter, rules, &mut warnings);
    warnings
}

/// What does not work without an option.
enum Needing<'r> {
    Nothing,
    /// These rules alone.
    Rules(Vec<&'r str>),
    Everything,
}

fn needing<'r>(spec: &ProviderSpec, rules: &'r Rules, name: &str) -> Needing<'r> {
    let compares =
        |condition: &Condition| matches!(&condition.test, Test::Equals(Operand::Config(known)) if known == name);
    if rules.bind.iter().any(|bind| compares(&bind.condition)) {
        return Needing::Everything;
    }
    let needs = |rule: &&Signature| {
        let option = Expr::Config(name.to_owned());
        let signed = rule.message.exprs().into_iter().any(|expr| *expr == option);
        signed || rule.claims.iter().chain(&rule.when).any(compares)
    };
    // A rule that asks for an option not to be set counts as the options are.
    let counts = |rule: &&Signature| {
        rule.when
            .iter()
            .all(|condition| match (&condition.expr, &condition.test) {
                (Expr::Config(name), Test::Absent) => !spec.options.contains_key(name),
                _ => true,
            })
    };
    let counting: Vec<&Signature> = rules.signatures.iter().filter(counts).collect();
    let needing: Vec<&str> = counting.iter().copied().filter(needs).map(|rule| &*rule.name).collect();
    match needing.len() {
        0 => Needing::Nothing,
        all if all == counting.len() => Needing::Everything,
        _ => Needing::Rules(needing),
    }
}

/// Options that conditions compare with and that are not set.
pub(super) fn unset_options<'r>(spec: &ProviderSpec, rules: &'r Rules) -> BTreeSet<&'r str> {
    let claims = rules.signatures.iter().flat_map(|rule| &rule.claims);
    let compared = rules
        .bind
        .iter()
        .map(|bind| &bind.condition)
        .chain(claims)
        .filter_map(|condition| match &condition.test {
            Test::Equals(Operand::Config(name)) => Some(name.as_str()),
            _ => None,
        });
    let messages = rules.signatures.iter().flat_map(|rule| rule.message.exprs());
    let signed = messages.filter_map(|expr| match expr {
        Expr::Config(name) => Some(name.as_str()),
        _ => None,
    });
    // Where a public key is registered for a rule that an option ties to the customer.
    let has_key = |rule: &&Signature| {
        let is_key = |secret: &SecretString| KeySet::parse(secret.expose_secret()).is_ok();
        matches!(rule.scheme, Scheme::Public(_)) && spec.secrets.iter().any(is_key)
    };
    let tied = rules.signatures.iter().filter(has_key).flat_map(|rule| &rule.when);
    let tied = tied.filter_map(|condition| match &condition.test {
        Test::Equals(Operand::Config(name)) => Some(name.as_str()),
        _ => None,
    });
    compared
        .chain(signed)
        .chain(tied)
        .filter(|name| !spec.options.contains_key(*name))
        .collect()
}

/// What is weak about a public key, or wrong about a private one.
fn weak_key(rule: &Signature, secret: &SecretString) -> Option<String> {
    let (Scheme::Public(_) | Scheme::Jwt) = rule.scheme else {
        return None;
    };
    let set = KeySet::parse(secret.expose_secret()).ok()?;
    let bits = set.shortest_rsa().filter(|bits| *bits < 2048);
    match (bits, set.private.is_some()) {
        (_, true) => Some("a private key is set, where the sender's public key belongs; it is for tests only".into()),
        (Some(bits), _) => Some(format!("the sender's RSA key has {bits} bits only")),
        (None, false) => None,
    }
}

/// What the shape should be, where a secret has not got it.
fn misses_shape(secret: &str, pattern: &[String]) -> Option<String> {
    let fits = |shape: &String| match shape.as_str() {
        "hex" => secret.len().is_multiple_of(2) && secret.bytes().all(|b| b.is_ascii_hexdigit()),
        "base64" => super::keys::is_base64(secret),
        prefix => secret.starts_with(prefix),
    };
    (!pattern.is_empty() && !pattern.iter().any(fits)).then(|| pattern.join(" or "))
}

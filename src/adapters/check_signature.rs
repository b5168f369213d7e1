//! What a `[[signature]]` table must not say.

use super::{
    compile::{Compiled, fail},
    jwt::JwtAlgorithm,
    manifest::{Manifest, SignatureTable, Text},
    public_key::Public,
    rules::{KeyStep, Scheme, Signature},
};

/// An Ed25519 key is 32 bytes, which look like any other secret. Where the adapter takes shared secrets too, a public
/// key must say of itself that it is one, or it would count as a secret that everybody knows.
pub(crate) fn check_kinds(manifest: &Manifest, rules: &[Signature]) -> Compiled<()> {
    let shared = |rule: &Signature| match rule.scheme {
        Scheme::Public(_) => false,
        Scheme::Jwt => rule.algorithms.iter().any(|a| matches!(a, JwtAlgorithm::Hmac(_))),
        _ => true,
    };
    let bare = |rule: &Signature| rule.scheme == Scheme::Public(Public::Ed25519) && !rule.key.contains(&KeyStep::Whpk);
    match rules.iter().position(bare).filter(|_| rules.iter().any(shared)) {
        Some(index) => fail(
            &manifest.signature[index].scheme,
            &format!("signature[{index}].key"),
            "expected `whpk`, because the adapter takes shared secrets too",
        ),
        None => Ok(()),
    }
}

/// Keys that a scheme does not look at are mistakes, not decoration.
pub(crate) fn unused_keys(table: &SignatureTable, scheme: Scheme, key: &impl Fn(&str) -> String) -> Compiled<()> {
    if scheme == Scheme::Jwt
        && !table.detached
        && let Some(text) = &table.message
    {
        return fail(
            text,
            &key("message"),
            "a token brings its own message, unless it is `detached`",
        );
    }
    if !matches!(scheme, Scheme::Token | Scheme::Basic) {
        return Ok(());
    }
    if let Some(texts) = &table.key {
        return fail(texts, &key("key"), "this scheme signs nothing, so it has no such key");
    }
    let texts: [(&str, &Option<Text>); 3] = [
        ("message", &table.message),
        ("encoding", &table.encoding),
        ("tolerance", &table.tolerance),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            return fail(text, &key(name), "this scheme signs nothing, so it has no such key");
        }
    }
    Ok(())
}

pub(crate) fn check_format(
    table: &SignatureTable,
    signature: &Signature,
    key: &impl Fn(&str) -> String,
) -> Compiled<()> {
    let names_secret = signature
        .format
        .iter()
        .any(|pattern| pattern.names().any(|name| name == "secret_id"));
    match &table.format {
        Some(text) if names_secret && !signature.key.contains(&KeyStep::Pair) => fail(
            text,
            &key("format"),
            "`{secret_id}` is the first part of a secret, so expected `key = \"pair\"`",
        ),
        Some(text) if signature.positional && signature.list.is_none() => {
            fail(text, &key("positional"), "expected `list`, in which items have places")
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_time(table: &SignatureTable, signature: &Signature, key: &impl Fn(&str) -> String) -> Compiled<()> {
    let has_time = signature.timestamp.is_some() || signature.captures_time();
    match &table.tolerance {
        Some(text) if signature.tolerance.is_some() && !has_time => fail(
            text,
            &key("tolerance"),
            "expected a time to judge: `{timestamp}` in `format`, or a `timestamp` expression",
        ),
        _ => Ok(()),
    }
}

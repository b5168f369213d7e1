//! One `[[signature]]` table, compiled.

use super::{
    check_signature::{check_format, check_time, unused_keys},
    compile::{Compiled, RuleError, conditions, each, fail},
    expr::Expr,
    jwt::{JWT_ALGORITHMS, JwtAlgorithm},
    manifest::{SignatureTable, Text, Texts},
    parser::{Allowed, Parser, is_header_name},
    pattern::Pattern,
    public_key::Public,
    rules::{Encoding, Hash, KeyStep, Scheme, Signature, TimeFormat},
    template::{Part, Template},
};

const SCHEMES: [(&str, Scheme); 16] = [
    ("hmac-sha1", Scheme::Hmac(Hash::Sha1)),
    ("hmac-sha256", Scheme::Hmac(Hash::Sha256)),
    ("hmac-sha384", Scheme::Hmac(Hash::Sha384)),
    ("hmac-sha512", Scheme::Hmac(Hash::Sha512)),
    ("sha1", Scheme::Hash(Hash::Sha1)),
    ("sha256", Scheme::Hash(Hash::Sha256)),
    ("sha512", Scheme::Hash(Hash::Sha512)),
    ("token", Scheme::Token),
    ("basic", Scheme::Basic),
    ("ed25519", Scheme::Public(Public::Ed25519)),
    ("ecdsa-p256-sha256", Scheme::Public(Public::P256Sha256)),
    ("ecdsa-p256-sha256-raw", Scheme::Public(Public::P256Sha256Raw)),
    ("ecdsa-p256-sha1", Scheme::Public(Public::P256Sha1)),
    ("rsa-sha256", Scheme::Public(Public::RsaSha256)),
    ("rsa-sha1", Scheme::Public(Public::RsaSha1)),
    ("jwt", Scheme::Jwt),
];

const ENCODINGS: [(&str, Encoding); 3] = [
    ("hex", Encoding::Hex),
    ("base64", Encoding::Base64),
    ("base64url", Encoding::Base64Url),
];

const KEYS: [(&str, KeyStep); 9] = [
    ("raw", KeyStep::Raw),
    ("hex", KeyStep::Hex),
    ("base64", KeyStep::Base64),
    ("whsec", KeyStep::Whsec),
    ("whpk", KeyStep::Whpk),
    ("pair", KeyStep::Pair),
    ("nfkd", KeyStep::Nfkd),
    ("sha1", KeyStep::Sha1),
    ("sha256", KeyStep::Sha256),
];

const TIMES: [(&str, TimeFormat); 5] = [
    ("unix", TimeFormat::Unix),
    ("unix-ms", TimeFormat::UnixMs),
    ("rfc3339", TimeFormat::Rfc3339),
    ("http", TimeFormat::Http),
    ("auto", TimeFormat::Auto),
];

/// Compiles one table.
pub(crate) fn signature(parser: &mut Parser, index: usize, table: &SignatureTable) -> Compiled<Signature> {
    let key = |name: &str| format!("signature[{index}].{name}");
    let scheme = one_of(Some(&table.scheme), &key("scheme"), &SCHEMES, Scheme::Token)?;
    unused_keys(table, scheme, &key)?;

    let base = Allowed {
        item: table.each,
        numbered: true,
        ..Allowed::default()
    };
    let (steps, fetched) = key_steps(table.key.as_ref(), &key("key"))?;
    let has_id = steps.contains(&KeyStep::Pair);
    let after = Allowed {
        claims: scheme == Scheme::Jwt,
        secret_id: has_id,
        numbered: false,
        ..base
    };
    let (format, list) = patterns(table, &key)?;
    let timestamp = match &table.timestamp {
        Some(text) => Some(
            parser
                .expr(text.get_ref(), after)
                .or_else(|message| fail(text, &key("timestamp"), &message))?,
        ),
        None if scheme == Scheme::Jwt && table.tolerance.is_some() => Some(
            parser
                .expr("claim:/iat", after)
                .or_else(|message| fail(&table.scheme, &key("timestamp"), &message))?,
        ),
        None => None,
    };
    let mut captures: Vec<String> = format
        .iter()
        .flat_map(Pattern::names)
        .filter(|name| *name != "signature")
        .map(str::to_owned)
        .collect();
    if timestamp.is_some() && !captures.iter().any(|name| name == "timestamp") {
        captures.push("timestamp".into());
    }
    let found = Allowed {
        decrypted: parser.decrypts_first,
        ..base
    };
    let mut sources = each(table.source.as_ref(), &key("source"), |text| parser.expr(text, found))?;
    if let Some(header) = &table.header {
        if !sources.is_empty() {
            return fail(header, &key("header"), "expected `header` or `source`, not both");
        }
        if !is_header_name(header.get_ref()) {
            return fail(
                header,
                &key("header"),
                "expected the name of a header, such as `X-Signature`",
            );
        }
        sources.push(Expr::Header(header.get_ref().clone()));
    }
    if sources.is_empty() && scheme == Scheme::Basic {
        sources.push(Expr::Header("Authorization".into()));
    }
    if sources.is_empty() {
        return fail(
            &table.scheme,
            &key("source"),
            "expected where the signature is found, such as `header:X-Signature`",
        );
    }
    let of_authorization =
        |source: &Expr| matches!(source, Expr::Header(name) if name.eq_ignore_ascii_case("authorization"));
    let format = match sources.iter().any(of_authorization) {
        true => format.into_iter().map(Pattern::with_scheme_name).collect(),
        false => format,
    };
    let signature = Signature {
        name: table.name.clone().unwrap_or_else(|| table.scheme.get_ref().clone()),
        scheme,
        sources,
        format,
        list,
        encoding: one_of(table.encoding.as_ref(), &key("encoding"), &ENCODINGS, Encoding::Hex)?,
        message: message(parser, table, scheme, &captures, has_id, &key)?,
        key: steps,
        fetched,
        algorithms: algorithms(table, scheme, &key)?,
        claims: conditions(parser, table.claims.as_ref(), &key("claims"), after)?,
        detached: table.detached,
        group: table.group.as_ref().map(|text| text.get_ref().clone()),
        positional: table.positional,
        timestamp,
        timestamp_format: one_of(
            table.timestamp_format.as_ref(),
            &key("timestamp_format"),
            &TIMES,
            TimeFormat::Unix,
        )?,
        tolerance: match &table.tolerance {
            Some(text) => tolerance(text.get_ref()).or_else(|message| fail(text, &key("tolerance"), &message))?,
            None => None,
        },
        each: table.each,
        when: conditions(parser, table.when.as_ref(), &key("when"), Allowed::default())?,
    };
    check_time(table, &signature, &key)?;
    check_format(table, &signature, &key)?;
    Ok(signature)
}

/// Reads `5m`, `90s`, `1h`, `2d` or `none` (`None`), in seconds.
///
/// # Errors
/// A sentence, where the text is none of these.
pub(crate) fn tolerance(text: &str) -> Result<Option<i64>, String> {
    if text == "none" {
        return Ok(None);
    }
    let expected = || format!("expected a duration such as `30s`, `5m`, `1h`, or `none`, found `{text}`");
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(expected)?;
    let number: i64 = text[..at].parse().map_err(|_| expected())?;
    let unit = match &text[at..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(expected()),
    };
    let seconds = number
        .checked_mul(unit)
        .filter(|seconds| (1..=366 * 86_400).contains(seconds));
    seconds.map(Some).ok_or_else(expected)
}

/// The patterns of `format`, and what separates the items of a list.
fn patterns(table: &SignatureTable, key: &impl Fn(&str) -> String) -> Compiled<(Vec<Pattern>, Option<String>)> {
    let given = table.list.as_ref().map(|text| text.get_ref().clone());
    let inferred = match (&given, &table.format) {
        (None, Some(format)) => key_value_list(&format.get_ref().0),
        _ => None,
    };
    let (mut format, list) = match inferred {
        Some((patterns, separator)) => (patterns, Some(separator)),
        None => (each(table.format.as_ref(), &key("format"), Pattern::parse)?, given),
    };
    if format.is_empty() {
        format.push(Pattern::signature());
    }
    let some = format
        .iter()
        .any(|pattern| pattern.names().any(|name| name == "signature"));
    match (&table.format, some) {
        (Some(text), false) => fail(text, &key("format"), "expected `{signature}` in it"),
        _ => Ok((format, list)),
    }
}

/// How the secret becomes a key, and whether it is fetched instead.
pub(crate) fn key_steps(texts: Option<&Texts>, key: &str) -> Compiled<(Vec<KeyStep>, bool)> {
    let Some(texts) = texts else {
        return Ok((vec![KeyStep::Raw], false));
    };
    if texts.get_ref().0 == ["fetched"] {
        return Ok((vec![KeyStep::Raw], true));
    }
    let steps = each(Some(texts), key, |text| {
        if let Some(prefix) = text.strip_prefix("strip:") {
            return Ok(KeyStep::Strip(prefix.to_owned()));
        }
        let step = KEYS.iter().find(|(name, _)| *name == text);
        step.map(|(_, step)| step.clone()).ok_or_else(|| {
            let known = KEYS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            format!("`{text}` is not known; one of {known}, strip:prefix, fetched")
        })
    })?;
    match steps.iter().skip(1).any(|step| *step == KeyStep::Pair) {
        true => fail(texts, key, "`pair` is the first step"),
        false => Ok((steps, false)),
    }
}

fn algorithms(table: &SignatureTable, scheme: Scheme, key: &impl Fn(&str) -> String) -> Compiled<Vec<JwtAlgorithm>> {
    let jwt = scheme == Scheme::Jwt;
    for (name, texts) in [("algorithms", &table.algorithms), ("claims", &table.claims)] {
        if let (Some(texts), false) = (texts, jwt) {
            return fail(texts, &key(name), "only `jwt` has such a key");
        }
    }
    if table.detached && !jwt {
        return fail(&table.scheme, &key("detached"), "only `jwt` has such a key");
    }
    if jwt && table.algorithms.is_none() {
        return fail(
            &table.scheme,
            &key("algorithms"),
            "expected the algorithms that a token may be signed with, such as `[\"HS256\"]`",
        );
    }
    each(table.algorithms.as_ref(), &key("algorithms"), |text| {
        let known = JWT_ALGORITHMS.iter().find(|(name, _)| *name == text);
        known.map(|(_, algorithm)| *algorithm).ok_or_else(|| {
            format!(
                "`{text}` is not known; one of {}",
                JWT_ALGORITHMS.map(|(name, _)| name).join(", ")
            )
        })
    })
}

/// Reads `t={timestamp},v1={signature}` as the list that it describes: items in any order, with others among them.
fn key_value_list(format: &[String]) -> Option<(Vec<Pattern>, String)> {
    let [text] = format else { return None };
    [",", ";"].into_iter().find_map(|separator| {
        let items: Option<Vec<_>> = text.split(separator).map(key_value).collect();
        items
            .filter(|items| items.len() > 1)
            .map(|items| (items, separator.to_owned()))
    })
}

/// An item `name={capture}`.
fn key_value(item: &str) -> Option<Pattern> {
    let item = item.trim();
    let (name, capture) = item.split_once('=')?;
    let pattern = Pattern::parse(item).ok()?;
    let one = capture.starts_with('{') && capture.ends_with('}') && pattern.names().count() == 1;
    (!name.contains(['{', '}']) && one).then_some(pattern)
}

fn message(
    parser: &mut Parser,
    table: &SignatureTable,
    scheme: Scheme,
    captures: &[String],
    secret_id: bool,
    key: &impl Fn(&str) -> String,
) -> Compiled<Template> {
    let allowed = Allowed {
        captures,
        secret: matches!(scheme, Scheme::Hash(_)),
        item: table.each,
        secret_id,
        jose: scheme == Scheme::Jwt,
        ..Allowed::default()
    };
    let message = match &table.message {
        Some(text) => parser
            .template(text.get_ref(), allowed)
            .or_else(|message| fail(text, &key("message"), &message))?,
        None => Template(vec![Part::Value(Expr::Body)]),
    };
    let secret = message.uses(&Expr::Secret) || secret_id && message.uses(&Expr::SecretId);
    if matches!(scheme, Scheme::Hash(_)) && !secret {
        let expected = "expected `{secret}` in it: a hash without a secret proves nothing";
        return match &table.message {
            Some(text) => fail(text, &key("message"), expected),
            None => fail(&table.scheme, &key("message"), expected),
        };
    }
    Ok(message)
}

fn one_of<T: Copy, const N: usize>(text: Option<&Text>, key: &str, known: &[(&str, T); N], default: T) -> Compiled<T> {
    let Some(text) = text else {
        return Ok(default);
    };
    let choice = known.iter().find(|(name, _)| name == text.get_ref());
    choice.map(|(_, value)| *value).ok_or_else(|| RuleError {
        span: text.span(),
        key: key.to_owned(),
        message: format!(
            "`{}` is not known; one of {}",
            text.get_ref(),
            known.map(|(name, _)| name).join(", ")
        ),
    })
}

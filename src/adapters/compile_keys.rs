//! `[keys]`, compiled.

use super::{
    compile::{Compiled, each, fail},
    compile_signature::tolerance,
    expr::Expr,
    fetched::{KeyFormat, KeySource},
    manifest::{KeysTable, Texts},
    parser::{Allowed, Parser},
    pins,
    template::Part,
};
use crate::json::{Wanted, parse_pointer};

/// How long fetched keys are used, where `cache` is not given, in seconds.
const CACHE: i64 = 86_400;

/// Compiles where keys are fetched.
pub(crate) fn key_source(parser: &mut Parser, table: &KeysTable) -> Compiled<KeySource> {
    let url = parser
        .template(
            table.url.get_ref(),
            Allowed {
                jose: true,
                ..Allowed::default()
            },
        )
        .or_else(|message| fail(&table.url, "keys.url", &message))?;
    let mut hosts = hosts(table.hosts.as_ref(), "keys.hosts")?;
    let fixed = match url.0.as_slice() {
        [Part::Literal(url)] => Some(url.clone()),
        _ => None,
    };
    match &fixed {
        Some(url) => hosts.push(pins::host_of(url).to_owned()),
        // The host that the operator's options say, and no other: see `KeySource::fix`.
        None if url.exprs().iter().all(|expr| matches!(expr, Expr::Config(_))) => {}
        None if hosts.is_empty() => {
            return fail(
                &table.url,
                "keys.hosts",
                "expected the hosts that a URL from a request may have",
            );
        }
        None => {}
    }
    if let Some(url) = &fixed
        && !pins::is_pinned(url, &hosts)
    {
        return fail(&table.url, "keys.url", "expected a plain https URL");
    }
    let format = match table.format.get_ref().as_str() {
        "x509" => KeyFormat::X509,
        "jwks" => KeyFormat::Jwks,
        "pem" => KeyFormat::Pem,
        _ => return fail(&table.format, "keys.format", "expected one of x509, jwks, pem"),
    };
    if let (Some(_), true) = (&table.subject, format != KeyFormat::X509) {
        return fail(&table.format, "keys.subject", "only a certificate (x509) has a subject");
    }
    let pointer = match &table.pointer {
        None => None,
        Some(text) => {
            let tokens = parse_pointer(text.get_ref()).or_else(|message| fail(text, "keys.pointer", &message))?;
            Some(Wanted::only(&tokens))
        }
    };
    let cache = match &table.cache {
        None => CACHE,
        Some(text) => match tolerance(text.get_ref()) {
            Ok(Some(seconds)) => seconds,
            _ => return fail(text, "keys.cache", "expected a duration such as `1h`"),
        },
    };
    Ok(KeySource {
        url,
        fixed,
        hosts,
        format,
        pointer,
        cache,
        subjects: table.subject.clone().unwrap_or_default().0,
    })
}

/// Reads host patterns.
pub(crate) fn hosts(texts: Option<&Texts>, key: &str) -> Compiled<Vec<String>> {
    each(texts, key, |text| pins::check(text).map(|()| text.to_owned()))
}

//! From a manifest to rules: every expression is read, every choice is checked, once.

use std::ops::Range;

use toml::Spanned;

use super::{
    check_answers::check_answers,
    check_signature::check_kinds,
    compile_handshake::handshake,
    compile_keys::key_source,
    compile_selectors::{bind, body_from, payload, redact, selectors},
    compile_signature::signature,
    decrypt::{Decrypt, decrypt},
    expr::{Doc, Expr},
    manifest::{BatchTable, Manifest, ResponseTable, Text, Texts},
    parser::{Allowed, Parser, is_header_name},
    rules::{Batch, ItemPath, Rules, Scheme},
    template::{Condition, Part},
};
use crate::domain::Answer;
use crate::json::{Wanted, parse_pointer};

/// A rule that cannot be understood.
#[derive(Debug)]
pub(crate) struct RuleError {
    /// Where in the manifest, in bytes.
    pub(crate) span: Range<usize>,
    pub(crate) key: String,
    pub(crate) message: String,
}

pub(crate) type Compiled<T> = Result<T, RuleError>;

/// Compiles all rules of a manifest.
pub(crate) fn compile(manifest: &Manifest) -> Compiled<Rules> {
    let mut parser = Parser::default();
    for claim in ["exp", "nbf", "iat"] {
        // Always looked at, so always at slots 0 to 2.
        parser.documents.claims.add(&[claim.to_owned()]);
    }
    let verify = verify(manifest)?;
    let decrypt = match &manifest.decrypt {
        Some(table) => Some(decrypt(&mut parser, table)?),
        None => None,
    };
    parser.decrypts_first = decrypt.as_ref().is_some_and(Decrypt::goes_first);
    let signatures = manifest
        .signature
        .iter()
        .enumerate()
        .map(|(index, table)| signature(&mut parser, index, table))
        .collect::<Compiled<Vec<_>>>()?;
    check_kinds(manifest, &signatures)?;
    let claims = signatures.iter().any(|rule| rule.scheme == Scheme::Jwt);
    let key_source = match &manifest.keys {
        Some(table) => Some(key_source(&mut parser, table)?),
        None => None,
    };
    if let Some((index, table)) = manifest
        .signature
        .iter()
        .enumerate()
        .find(|(index, _)| signatures[*index].fetched)
        && key_source.is_none()
    {
        return fail(
            &table.scheme,
            &format!("signature[{index}].key"),
            "expected `[keys]`, where keys are fetched",
        );
    }
    let bound = Allowed {
        claims,
        decrypted: decrypt.is_some(),
        ..Allowed::default()
    };
    let bind = match &manifest.bind {
        Some(ties) => bind(&mut parser, ties, bound)?,
        None => Vec::new(),
    };
    let body_from = body_from(&mut parser, &manifest.body, bound)?;
    let redact = redact(&mut parser, manifest, body_from.is_some())?;
    let payload = payload(&mut parser, manifest, bound)?;
    let event = selectors(&mut parser, &manifest.event, manifest.batch.is_some(), bound)?;
    let batch = match &manifest.batch {
        Some(table) => Some(batch(&mut parser, table, bound)?),
        None => None,
    };
    let handshakes = manifest
        .handshake
        .iter()
        .enumerate()
        .map(|(index, table)| handshake(&mut parser, index, table, bound))
        .collect::<Compiled<Vec<_>>>()?;
    check_answers(manifest, &signatures, &handshakes)?;
    Ok(Rules {
        verify,
        signatures,
        bind,
        key_source,
        decrypt,
        event,
        body_from,
        json_instead: manifest.body.json_instead,
        payload,
        redact,
        batch,
        handshakes,
        response: response(&mut parser, &manifest.response)?,
        documents: parser.documents,
    })
}

fn verify(manifest: &Manifest) -> Compiled<bool> {
    match &manifest.verify {
        Some(word) if word.get_ref() == "none" && manifest.signature.is_empty() => Ok(false),
        Some(word) if word.get_ref() == "none" => {
            fail(word, "verify", "`none` contradicts the `[[signature]]` below it")
        }
        Some(word) => fail(word, "verify", "expected `none`, or no such key"),
        None if manifest.signature.is_empty() => Err(RuleError {
            span: 0..0,
            key: "signature".into(),
            message: "expected a `[[signature]]` (or `verify = \"none\"`, written out)".into(),
        }),
        None => Ok(true),
    }
}

fn batch(parser: &mut Parser, table: &BatchTable, bound: Allowed<'_>) -> Compiled<Batch> {
    let allowed = Allowed { item: true, ..bound };
    let headers = table.headers.iter().map(|(name, text)| {
        let key = format!("batch.headers.{name}");
        let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        if name.is_empty() || !name.bytes().all(fits) {
            return fail(text, &key, "expected a name of a-z, 0-9 and `-`");
        }
        let template = parser.selector(text.get_ref(), allowed);
        let template = template.or_else(|message| fail(text, &key, &message))?;
        Ok((format!("{ADDED}{name}"), template))
    });
    // Before `items`, which must know what is read of the elements on the way.
    let headers = headers.collect::<Compiled<Vec<_>>>()?;
    Ok(Batch {
        headers,
        items: each(Some(&table.items), "batch.items", |text| item_path(parser, text))?,
        when: conditions(parser, table.when.as_ref(), "batch.when", Allowed::default())?,
    })
}

/// How the headers begin that each item of a batch is given.
pub(crate) const ADDED: &str = "x-batch-";

fn item_path(parser: &mut Parser, text: &str) -> Result<ItemPath, String> {
    let split = |array, separator| ItemPath {
        array,
        separator: Some(separator),
        steps: Vec::new(),
        around: Vec::new(),
    };
    if text == "lines" {
        return Ok(split(Expr::Body, b'\n'));
    }
    if let Some(field) = text.strip_prefix("list:form:") {
        return Ok(split(Expr::Form(field.to_owned()), b','));
    }
    let expected = || format!("expected a path such as `body:/events/*` or `form:field:/*`, found `{text}`");
    let (doc, pointer) = match text.split_once(":/").ok_or_else(expected)? {
        ("body", pointer) => (Doc::Body, pointer),
        (source, pointer) => match source.strip_prefix("form:") {
            Some(field) if !field.is_empty() => (parser.form(field), pointer),
            _ => return Err(expected()),
        },
    };
    let mut tokens = parse_pointer(&format!("/{pointer}"))?;
    // A path to the array itself means its elements.
    if !tokens.iter().any(|token| token == "*") {
        tokens.retain(|token| !token.is_empty());
        tokens.push("*".into());
    }
    let around = (0..tokens.len())
        .filter(|at| tokens[*at] == "*")
        .map(|at| {
            let known = |(prefix, _): &(Vec<String>, Wanted)| *prefix == tokens[..=at];
            parser
                .documents
                .around
                .iter()
                .position(known)
                .filter(|_| doc == Doc::Body)
        })
        .collect();
    let mut parts = tokens.split(|token| token == "*");
    let first = parts.next().unwrap_or_default();
    let steps: Vec<_> = parts.map(Wanted::only).collect();
    let slot = parser.wanted(doc).add(first);
    Ok(ItemPath {
        array: Expr::Json { doc, slot },
        separator: None,
        steps,
        around,
    })
}

fn response(parser: &mut Parser, table: &ResponseTable) -> Compiled<Answer> {
    let written = match &table.body {
        Some(text) => Some(fixed_text(parser, text).or_else(|message| fail(text, "response.body", &message))?),
        None => None,
    };
    let json = table.body.is_none() && table.content_type.is_none() && table.status.is_none();
    if let Some(status) = &table.status {
        match status.get_ref() {
            204 if written.as_ref().is_some_and(|body| !body.is_empty()) => {
                return fail(status, "response.status", "204 has no body; expected 200, or no `body`");
            }
            200..=299 => {}
            _ => {
                let expected = "expected a status from 200 to 299, because the event is stored then";
                return fail(status, "response.status", expected);
            }
        }
    }
    for (name, text) in &table.headers {
        is_sendable(name, text, &format!("response.headers.{name}"))?;
    }
    let headers = table.headers.iter();
    Ok(Answer {
        status: table.status.as_ref().map_or(200, |status| *status.get_ref()),
        content_type: match (
            content_type(table.content_type.as_ref(), "response.content_type")?,
            json,
        ) {
            (Some(content_type), _) => content_type,
            (None, true) => "application/json".into(),
            (None, false) => "text/plain".into(),
        },
        headers: headers
            .map(|(name, text)| (name.clone(), text.get_ref().clone()))
            .collect(),
        body: match (written, json) {
            (Some(body), _) => body.into_bytes(),
            (None, true) => br#"{"received":true}"#.to_vec(),
            (None, false) => Vec::new(),
        },
    })
}

/// An answer with a header that cannot be sent would be a 500.
pub(super) fn is_sendable(name: &str, value: &Text, key: &str) -> Compiled<()> {
    if !is_header_name(name) {
        return fail(
            value,
            key,
            "the name of a header has no spaces, colons or control characters",
        );
    }
    if !is_header_value(value.get_ref()) {
        return fail(value, key, "expected one line of visible ASCII");
    }
    Ok(())
}

fn is_header_value(text: &str) -> bool {
    text.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b))
}

pub(super) fn content_type(text: Option<&Text>, key: &str) -> Compiled<Option<String>> {
    match text {
        Some(text) if !is_header_value(text.get_ref()) => fail(text, key, "expected one line of visible ASCII"),
        text => Ok(text.map(|text| text.get_ref().clone())),
    }
}

/// A template without expressions.
fn fixed_text(parser: &mut Parser, text: &Spanned<String>) -> Result<String, String> {
    let template = parser.template(text.get_ref(), Allowed::default())?;
    match template.0.as_slice() {
        [] => Ok(String::new()),
        [Part::Literal(text)] => Ok(text.clone()),
        _ => Err("the answer to an event is a fixed text (a literal brace or bracket is doubled)".into()),
    }
}

pub(super) fn status(value: Option<&Spanned<u16>>, key: &str, default: u16) -> Compiled<u16> {
    match value {
        None => Ok(default),
        Some(value) if (200..600).contains(value.get_ref()) => Ok(*value.get_ref()),
        Some(value) => fail(value, key, "expected a status from 200 to 599"),
    }
}

/// Reads conditions; none where the key is absent.
pub(crate) fn conditions(
    parser: &mut Parser,
    texts: Option<&Texts>,
    key: &str,
    allowed: Allowed<'_>,
) -> Compiled<Vec<Condition>> {
    each(texts, key, |text| parser.condition(text, allowed))
}

/// Reads each text of a list.
pub(crate) fn each<T>(
    texts: Option<&Texts>,
    key: &str,
    mut read: impl FnMut(&str) -> Result<T, String>,
) -> Compiled<Vec<T>> {
    let Some(texts) = texts else {
        return Ok(Vec::new());
    };
    texts
        .get_ref()
        .0
        .iter()
        .map(|text| read(text).or_else(|message| fail(texts, key, &message)))
        .collect()
}

/// An error at a place of the manifest.
pub(crate) fn fail<T, U>(at: &Spanned<U>, key: &str, message: &str) -> Compiled<T> {
    Err(RuleError {
        span: at.span(),
        key: key.to_owned(),
        message: message.to_owned(),
    })
}

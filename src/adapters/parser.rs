//! The text of an expression, read. The pointers in it are gathered on the way, so that one pass over a document finds
//! them all.

use super::expr::{Doc, Documents, Expr, Function};
use crate::json::{Wanted, parse_pointer};

/// What an expression may use where it stands.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Allowed<'a> {
    /// Captured names.
    pub(crate) captures: &'a [String],
    /// `secret`.
    pub(crate) secret: bool,
    /// `hmac_sha256(…)`.
    pub(crate) hmac: bool,
    /// `item:`, and `*` in `body:`.
    pub(crate) item: bool,
    /// `request_id`.
    pub(crate) request_id: bool,
    /// `claim:`.
    pub(crate) claims: bool,
    /// `jose:`.
    pub(crate) jose: bool,
    /// `decrypted`.
    pub(crate) decrypted: bool,
    /// `secret_id`.
    pub(crate) secret_id: bool,
    /// `header:Name-*`.
    pub(crate) numbered: bool,
}

/// Reads expressions and gathers the pointers in them.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    pub(crate) documents: Documents,
    /// Whether bodies are decrypted first, so that signatures may lie in them.
    pub(crate) decrypts_first: bool,
}

const DECRYPTED: &str = "it is only for what is read after verification, where there is `[decrypt]`";

/// Functions around each other; each is a call of the parser by itself.
const DEEPEST: usize = 32;

const FUNCTIONS: [(&str, Function); 15] = [
    ("lower", Function::Lower),
    ("upper", Function::Upper),
    ("trim", Function::Trim),
    ("sha1", Function::Sha1),
    ("sha256", Function::Sha256),
    ("hmac_sha1", Function::HmacSha1),
    ("hmac_sha256", Function::HmacSha256),
    ("base64", Function::Base64),
    ("unbase64", Function::Unbase64),
    ("unhex", Function::Unhex),
    ("url_decode", Function::UrlDecode),
    ("url_encode", Function::UrlEncode),
    ("json", Function::Json),
    ("crc32", Function::Crc32),
    ("requery", Function::Requery),
];

impl Parser {
    /// Reads one expression.
    ///
    /// # Errors
    /// A sentence that says what was expected.
    pub(crate) fn expr(&mut self, text: &str, allowed: Allowed<'_>) -> Result<Expr, String> {
        let text = text.trim();
        if text.matches('(').count() > DEEPEST {
            return Err(format!("expected at most {DEEPEST} functions around each other"));
        }
        if let Some((name, rest)) = text.split_once('(')
            && is_name(name)
        {
            return self.call(name, rest, allowed);
        }
        match text.split_once(':') {
            None => word(text, allowed),
            Some((source, rest)) => self.source(source, rest, allowed),
        }
    }

    fn call(&mut self, name: &str, rest: &str, allowed: Allowed<'_>) -> Result<Expr, String> {
        match name {
            "at" => return self.at(rest, allowed),
            "join" => return self.list(name, rest, allowed).map(Expr::Join),
            "first" => return self.list(name, rest, allowed).map(Expr::First),
            "sorted" => return self.list(name, rest, allowed).map(Expr::Sorted),
            "xml" => return self.xml(rest, allowed),
            "decrypt" if self.decrypts_first => {
                return Err("`decrypt(…)` is for a cipher that is keyed with the secret".into());
            }
            "decrypt" if allowed.decrypted => {
                let inner = rest.strip_suffix(')').ok_or("expected `decrypt(expression)`")?;
                return Ok(Expr::Decrypt(Box::new(self.expr(inner, allowed)?)));
            }
            "decrypt" => return Err(DECRYPTED.into()),
            "header_values" => {
                let inner = rest.strip_suffix(')').ok_or("expected `header_values(expression)`")?;
                return Ok(Expr::HeaderValues(Box::new(self.expr(inner, allowed)?)));
            }
            "header_lines" => {
                let inner = rest.strip_suffix(')').ok_or("expected `header_lines(expression)`")?;
                return Ok(Expr::HeaderLines(Box::new(self.expr(inner, allowed)?)));
            }
            _ => {}
        }
        let Some((_, function)) = FUNCTIONS.iter().find(|(known, _)| *known == name) else {
            let known = FUNCTIONS.map(|(known, _)| known).join(", ");
            return Err(format!(
                "`{name}` is no function; one of {known}, at, join, first, sorted, xml, decrypt, header_lines, header_values"
            ));
        };
        if matches!(function, Function::HmacSha1 | Function::HmacSha256) && !allowed.hmac {
            return Err(format!(
                "`{name}` is keyed with the secret and only for answers of handshakes"
            ));
        }
        let Some(inner) = rest.strip_suffix(')') else {
            return Err(format!("expected `)` at the end of `{name}({rest}`"));
        };
        Ok(Expr::Call(*function, Box::new(self.expr(inner, allowed)?)))
    }

    /// `at(/pointer, x)`: a place in a JSON text that is not the body itself.
    fn at(&mut self, rest: &str, allowed: Allowed<'_>) -> Result<Expr, String> {
        let inner = rest.strip_suffix(')').and_then(|rest| rest.split_once(','));
        let Some((pointer, inner)) = inner else {
            return Err("expected `at(/pointer, expression)`".into());
        };
        let wanted = Wanted::only(&parse_pointer(pointer.trim())?);
        Ok(Expr::At(Box::new(wanted), Box::new(self.expr(inner, allowed)?)))
    }

    /// `xml(x)`, or `xml(name name, x)` with the names that are always lists.
    fn xml(&mut self, rest: &str, allowed: Allowed<'_>) -> Result<Expr, String> {
        let inner = rest.strip_suffix(')').ok_or("expected `xml(expression)`")?;
        let (lists, inner) = match inner.split_once(',') {
            Some((names, inner)) if !names.contains('(') => (names, inner),
            _ => ("", inner),
        };
        let lists = lists.split_whitespace().map(str::to_owned).collect();
        Ok(Expr::Xml(lists, Box::new(self.expr(inner, allowed)?)))
    }

    /// `name(x, y, z)`; commas inside of brackets belong to what is in them.
    fn list(&mut self, name: &str, rest: &str, allowed: Allowed<'_>) -> Result<Vec<Expr>, String> {
        let Some(inner) = rest.strip_suffix(')') else {
            return Err(format!("expected `{name}(expression, expression)`"));
        };
        let mut depth = 0_usize;
        let parts = inner.split(|c: char| {
            depth = match c {
                '(' => depth + 1,
                ')' => depth.saturating_sub(1),
                _ => depth,
            };
            c == ',' && depth == 0
        });
        parts.map(|part| self.expr(part, allowed)).collect()
    }

    fn source(&mut self, source: &str, rest: &str, allowed: Allowed<'_>) -> Result<Expr, String> {
        match source {
            "body" if allowed.item && rest.contains("/*") => self.around(rest),
            "body" => self.json(Doc::Body, rest),
            "item" if allowed.item => self.json(Doc::Item, rest),
            "item" => Err("`item:` is only for `[event]`, where there is a `[batch]`".into()),
            // What the head of a token says is not proved before the token is.
            "jose" if allowed.jose => named(rest, |name| Expr::Capture(format!("jose:{name}"))),
            "claim" if allowed.claims => self.json(Doc::Claims, rest),
            "claim" => Err("`claim:` is only for what is read after a token was verified".into()),
            "header" if allowed.numbered && rest.ends_with("-*") && is_header_name(rest) => {
                Ok(Expr::Numbered(rest.trim_end_matches('*').to_owned()))
            }
            "header" if is_header_name(rest) => Ok(Expr::Header(rest.to_owned())),
            "header" => Err(format!("`{rest}` is no header name")),
            "headers" if is_header_name(rest) => Ok(Expr::Headers(rest.to_owned())),
            "query" => named(rest, Expr::Query),
            "form" if rest == "sorted" => Ok(Expr::FormSorted),
            "form" if rest.starts_with("pairs:") => Ok(Expr::FormPairs(
                rest[6..].split(',').map(|name| name.trim().to_owned()).collect(),
            )),
            "form" if rest.starts_with("php:") => named(&rest[4..], Expr::FormPhp),
            "form" => match rest.split_once(":/") {
                Some((field, pointer)) if !field.is_empty() => {
                    let doc = self.form(field);
                    self.json(doc, &format!("/{pointer}"))
                }
                _ => named(rest, Expr::Form),
            },
            "key_of" => self.key_of(rest, allowed),
            "config" => named(rest, Expr::Config),
            _ => Err(unknown(&format!("{source}:{rest}"), allowed)),
        }
    }

    fn json(&mut self, doc: Doc, pointer: &str) -> Result<Expr, String> {
        let tokens = parse_pointer(pointer)?;
        if tokens.iter().any(|token| token == "*") {
            return Err("`*` is only for `items` of `[batch]`, and for `body:` in `[event]` where there is one".into());
        }
        let slot = self.wanted(doc).add(&tokens);
        Ok(Expr::Json { doc, slot })
    }

    /// `body:/entry/*/id`: of the element that the present item lies in.
    fn around(&mut self, pointer: &str) -> Result<Expr, String> {
        let tokens = parse_pointer(pointer)?;
        let Some(star) = tokens.iter().rposition(|token| token == "*") else {
            return self.json(Doc::Body, pointer);
        };
        let (prefix, rest) = tokens.split_at(star + 1);
        let around = &mut self.documents.around;
        let known = around.iter().position(|(known, _)| known == prefix);
        let index = known.unwrap_or_else(|| {
            around.push((prefix.to_vec(), Wanted::default()));
            around.len() - 1
        });
        let slot = around[index].1.add(rest);
        let doc = Doc::Around(index);
        Ok(Expr::Json { doc, slot })
    }

    fn key_of(&mut self, rest: &str, allowed: Allowed<'_>) -> Result<Expr, String> {
        let mut words = rest.split_whitespace();
        let place = words.next().unwrap_or_default();
        let (doc, pointer) = match place.strip_prefix("item") {
            Some(_) if !allowed.item => {
                return Err("`item` is only for `[event]`, where there is a `[batch]`".into());
            }
            Some(pointer) => (Doc::Item, pointer.trim_start_matches(':')),
            None => (Doc::Body, place),
        };
        let mut tokens = match pointer {
            "/" => Vec::new(),
            pointer => parse_pointer(pointer)?,
        };
        let names: Vec<_> = words
            .map(|name| {
                tokens.push(name.to_owned());
                let slot = self.wanted(doc).add(&tokens);
                tokens.pop();
                (name.to_owned(), slot)
            })
            .collect();
        match names.is_empty() {
            true => Err("expected names after the pointer: `key_of:/pointer a b c`".into()),
            false => Ok(Expr::KeyOf { doc, names }),
        }
    }

    /// The document in a form field.
    pub(crate) fn form(&mut self, field: &str) -> Doc {
        let forms = &mut self.documents.forms;
        let known = forms.iter().position(|(name, _)| name == field);
        Doc::Form(known.unwrap_or_else(|| {
            forms.push((field.to_owned(), Wanted::default()));
            forms.len() - 1
        }))
    }

    /// The pointers wanted of a document.
    pub(crate) fn wanted(&mut self, doc: Doc) -> &mut Wanted {
        match doc {
            Doc::Body => &mut self.documents.body,
            Doc::Item => &mut self.documents.item,
            Doc::Claims => &mut self.documents.claims,
            Doc::Form(index) => &mut self.documents.forms[index].1,
            Doc::Around(index) => &mut self.documents.around[index].1,
        }
    }
}

fn word(text: &str, allowed: Allowed<'_>) -> Result<Expr, String> {
    Ok(match text {
        "body" => Expr::Body,
        "url" => Expr::Url,
        "url_base" => Expr::UrlBase,
        "url_with_port" => Expr::UrlWithPort,
        "path" => Expr::Path,
        "query" => Expr::QueryString,
        "host" => Expr::Host,
        "method" => Expr::Method,
        "qsh" => Expr::Qsh,
        "plivo_url" => Expr::PlivoUrl,
        "decrypted" if allowed.decrypted => Expr::Decrypted,
        "decrypted" => return Err(DECRYPTED.into()),
        "secret_id" if allowed.secret_id => Expr::SecretId,
        "item" if allowed.item => Expr::Item,
        "request_id" if allowed.request_id => Expr::RequestId,
        "secret" if allowed.secret => Expr::Secret,
        "secret" => {
            return Err("`secret` is only for messages of `sha*` schemes and for handshakes".into());
        }
        name if allowed.captures.iter().any(|known| known == name) => Expr::Capture(name.to_owned()),
        other => return Err(unknown(other, allowed)),
    })
}

fn named(name: &str, make: impl FnOnce(String) -> Expr) -> Result<Expr, String> {
    match name.is_empty() {
        true => Err("expected a name after the colon".into()),
        false => Ok(make(name.to_owned())),
    }
}

fn unknown(text: &str, allowed: Allowed<'_>) -> String {
    let mut sentence = format!(
        "`{text}` is no expression; expected body, body:/pointer, header:Name, query:name, form:name, key_of:…, url, path, \
         query, host, method, config:name"
    );
    for name in allowed.captures {
        sentence.push_str(", ");
        sentence.push_str(name);
    }
    sentence
}

/// Whether a text may name a captured value.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

pub(crate) fn is_header_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

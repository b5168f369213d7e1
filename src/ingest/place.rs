//! Where a signature that was made belongs in its request.

use base64::Engine as _;

use super::{OwnedRequest, fill::SIGNATURE, sign::SignError};
use crate::adapters::{Expr, Function, Scheme, Signature};

/// Puts the signatures where the rule looks for them.
pub(super) fn place(request: &mut OwnedRequest, rule: &Signature, values: Vec<String>) -> Result<(), SignError> {
    let mut source = rule.sources.first();
    let mut values = values;
    if let Some(Expr::At(wanted, inner)) = source
        && !inner.any(&|expr| *expr == Expr::Body)
    {
        source = Some(inner);
        let path = wanted.path(0).unwrap_or_default();
        values = values.into_iter().map(|value| inside(&path, value)).collect();
    }
    if let Some(Expr::Call(function, inner)) = source {
        source = Some(inner);
        if *function == Function::Unbase64 {
            let encode = |value| base64::engine::general_purpose::STANDARD.encode(value);
            values = values.into_iter().map(encode).collect();
        }
    }
    let mut values = values.into_iter();
    let encoded =
        |value: &str| percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC).to_string();
    match source {
        Some(Expr::Numbered(prefix)) => {
            request.set_header(&format!("{prefix}1"), values.next().unwrap_or_default());
        }
        Some(Expr::Body) => request.body = values.next().unwrap_or_default().into_bytes(),
        Some(Expr::Header(name)) => request.set_header(name, values.next().unwrap_or_default()),
        Some(Expr::Query(name)) => {
            let mark = if request.url.contains('?') { '&' } else { '?' };
            let value = encoded(&values.next().unwrap_or_default());
            request.url = format!("{}{mark}{name}={value}", request.url);
        }
        Some(Expr::Form(name)) => {
            let value = encoded(&values.next().unwrap_or_default());
            let mark = if request.body.is_empty() { "" } else { "&" };
            request
                .body
                .extend_from_slice(format!("{mark}{name}={value}").as_bytes());
        }
        _ => {
            for value in values {
                let at = request
                    .body
                    .windows(SIGNATURE.len())
                    .position(|text| text == SIGNATURE.as_bytes());
                let Some(at) = at else {
                    if rule.scheme == Scheme::Token {
                        // The sample carries it as `{{secret}}`.
                        break;
                    }
                    return Err(SignError::NoRule(format!(
                        "expected `{SIGNATURE}` where the signature belongs"
                    )));
                };
                request.body.splice(at..at + SIGNATURE.len(), value.bytes());
            }
        }
    }
    Ok(())
}

/// A JSON text with the value at this path.
fn inside(path: &[String], value: String) -> String {
    let nested = path.iter().rev().fold(
        serde_json::Value::String(value),
        |value, name| serde_json::json!({ name.as_str(): value }),
    );
    nested.to_string()
}

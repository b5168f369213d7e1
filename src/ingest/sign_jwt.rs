//! Tokens for samples: what a sender would claim, so that the adapter's conditions hold.

use std::borrow::Cow;

use base64::Engine as _;
use serde_json::{Map, Value};

use super::{
    scope::{Frame, Scope},
    sign::{SignError, Signer, message},
};
use crate::adapters::{Condition, Doc, Expr, JwtAlgorithm, Material, Operand, Signature, Test};

/// How long a token is good, in seconds.
const LIFETIME: i64 = 300;

/// A token for this request.
pub(crate) fn token(
    scope: &Scope<'_, '_>,
    rule: &Signature,
    signer: Signer<'_>,
    frame: Frame<'_>,
) -> Result<String, SignError> {
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let algorithm = algorithm(rule, signer.key)?;
    let mut header = Map::new();
    header.insert("alg".into(), algorithm.name().into());
    header.insert("typ".into(), "JWT".into());
    if let Material::Public(set) = signer.key
        && let Some(kid) = set.keys.first().and_then(|key| key.kid.clone())
    {
        header.insert("kid".into(), kid.into());
    }
    let header = encode(Value::Object(header).to_string().as_bytes());
    let payload = match rule.detached {
        true => message(scope, rule, frame)?,
        false => claims(scope, rule, frame)?.to_string().into_bytes(),
    };
    let signed = format!("{header}.{}", encode(&payload));
    let signature = signer.finish(sign(algorithm, signer.key, signed.as_bytes())?);
    let shown = if rule.detached { format!("{header}.") } else { signed };
    Ok(format!("{shown}.{}", encode(&signature)))
}

/// The first that the adapter allows and the key can do.
fn algorithm(rule: &Signature, key: &Material) -> Result<JwtAlgorithm, SignError> {
    let can = |algorithm: &&JwtAlgorithm| match (key, algorithm) {
        (Material::Macs(_), JwtAlgorithm::Hmac(_)) => true,
        (Material::Public(set), JwtAlgorithm::Public(public)) => set.suits(*public),
        _ => false,
    };
    rule.algorithms.iter().find(can).copied().ok_or(SignError::NoPrivateKey)
}

fn sign(algorithm: JwtAlgorithm, key: &Material, message: &[u8]) -> Result<Vec<u8>, SignError> {
    match (key, algorithm) {
        (Material::Macs(macs), JwtAlgorithm::Hmac(hash)) => {
            let known = macs.iter().find(|(known, _)| *known == hash);
            let (_, mac) = known.ok_or(SignError::NoPrivateKey)?;
            let mut mac = mac.clone();
            mac.update(message);
            Ok(mac.finish().bytes().to_vec())
        }
        (Material::Public(set), JwtAlgorithm::Public(public)) => {
            let private = set.private.as_ref().ok_or(SignError::NoPrivateKey)?;
            private.sign(public, message).ok_or(SignError::NoPrivateKey)
        }
        _ => Err(SignError::NoPrivateKey),
    }
}

/// What the sample claims where the body is the token, what the conditions ask for, and the times.
fn claims(scope: &Scope<'_, '_>, rule: &Signature, frame: Frame<'_>) -> Result<Value, SignError> {
    let mut claims = match rule.sources.first() {
        Some(Expr::Body | Expr::Decrypted) => serde_json::from_slice(scope.request.body)
            .map_err(|_| SignError::NoRule("the body of the sample must be the token's claims, as JSON".into()))?,
        _ => Value::Object(Map::new()),
    };
    let now = scope.now.as_second();
    set(&mut claims, &["iat".into()], now.into());
    set(&mut claims, &["exp".into()], (now + LIFETIME).into());
    for condition in &rule.claims {
        if let Some((path, value)) = wanted(scope, condition, frame) {
            set(&mut claims, &path, value);
        }
    }
    Ok(claims)
}

/// Where and what a condition asks for.
fn wanted(scope: &Scope<'_, '_>, condition: &Condition, frame: Frame<'_>) -> Option<(Vec<String>, Value)> {
    let expr = match &condition.expr {
        // The last is the plain form.
        Expr::First(choices) => choices.last()?,
        expr => expr,
    };
    let Expr::Json { doc: Doc::Claims, slot } = *expr else {
        return None;
    };
    let Test::Equals(operand) = &condition.test else {
        return None;
    };
    let value = match operand {
        Operand::Text(text) => Cow::Borrowed(text.as_bytes()),
        Operand::Config(name) => Cow::Borrowed(scope.provider.options.get(name)?.as_bytes()),
        Operand::Template(template) => scope.text(template, frame)?,
    };
    let value = match &*value {
        b"true" => Value::Bool(true),
        b"false" => Value::Bool(false),
        text => String::from_utf8_lossy(text).into_owned().into(),
    };
    Some((scope.provider.rules.documents.claims.path(slot)?, value))
}

/// Puts a value at a path of objects.
fn set(claims: &mut Value, path: &[String], value: Value) {
    let Some((last, above)) = path.split_last() else {
        return;
    };
    let mut at = claims;
    for key in above {
        let Value::Object(map) = at else { return };
        at = map.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
    }
    if let Value::Object(map) = at {
        map.insert(last.clone(), value);
    }
}

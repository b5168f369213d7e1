//! Whose request it is. Two principals never meet, so whoever can choose another's principal can read the answers that
//! were given to it: a header must be one that its sender cannot forge, or must itself be the proof.

use std::{str::FromStr, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use sha2::{Sha256, Sha384, Sha512};

use super::{key::scope, refusal::Refusal};
use crate::adapters::{JwtAlgorithm, KeySet};

/// Seconds that clocks may differ.
const LEEWAY: i64 = 60;

/// How a request says who sends it.
#[derive(Clone)]
pub enum Principal {
    /// Everyone is one: for services without users.
    None,
    /// The value of a header, such as `authorization`.
    Header(String),
    /// The same, believed only from a trusted proxy, which sets it from the client's certificate.
    ClientCert(String),
    /// One that is known already.
    Fixed(Arc<str>),
    /// A claim of the bearer token.
    Jwt { claim: String, key: Option<JwtKey> },
}

/// What verifies a token.
#[derive(Clone)]
pub struct JwtKey(Arc<Material>);

enum Material {
    Shared(Vec<u8>),
    Public(KeySet),
}

/// What a request shows of its sender.
pub struct Caller<'a> {
    /// Values of a header, by its name in lower case.
    pub header: &'a dyn Fn(&str) -> Vec<Vec<u8>>,
    /// Whether it comes from a trusted proxy.
    pub is_trusted: bool,
    /// Seconds since 1970.
    pub now: i64,
}

impl FromStr for Principal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = |name: &str| {
            let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            let name = name.trim();
            match !name.is_empty() && name.chars().all(fine) {
                true => Ok(name.to_owned()),
                false => Err(format!("`{name}` is not a name")),
            }
        };
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            Some(("header", header)) => Ok(Self::Header(name(header)?.to_ascii_lowercase())),
            Some(("client-cert", header)) => Ok(Self::ClientCert(name(header)?.to_ascii_lowercase())),
            Some(("jwt", claim)) => Ok(Self::Jwt {
                claim: name(claim)?,
                key: None,
            }),
            _ => Err(format!(
                "`{text}` is none of header:NAME, jwt:CLAIM, client-cert:HEADER and none"
            )),
        }
    }
}

impl JwtKey {
    /// A public key (PEM or JWK), or else a shared secret.
    ///
    /// # Errors
    /// What it is not.
    pub fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let material = if trimmed.starts_with('{') || trimmed.contains("-----BEGIN ") {
            Material::Public(KeySet::parse(trimmed)?)
        } else if text.len() < 16 {
            return Err("a shared secret of less than 16 characters can be guessed".to_owned());
        } else {
            Material::Shared(text.as_bytes().to_vec())
        };
        Ok(Self(Arc::new(material)))
    }
}

impl Principal {
    /// Whoever was let in with the operator's token, or without one where none is set.
    #[must_use]
    pub fn operator(token: &Option<SecretString>) -> Self {
        Self::Fixed(match token {
            Some(token) => scope("operator", token.expose_secret().as_bytes()),
            None => scope("operator", b""),
        })
    }

    /// The scope of a request's sender.
    ///
    /// # Errors
    /// [`Refusal::NoPrincipal`]: the request does not say who sends it, or not so that it can be believed.
    pub fn scope_of(&self, caller: &Caller<'_>) -> Result<Arc<str>, Refusal> {
        match self {
            Self::None => Ok(scope("none", b"")),
            Self::Fixed(scope) => Ok(Arc::clone(scope)),
            Self::Header(name) => Ok(scope(&format!("header:{name}"), &one(caller, name)?)),
            Self::ClientCert(name) => {
                if !caller.is_trusted {
                    let why = format!("the header {name} is believed only from a trusted proxy");
                    return Err(Refusal::NoPrincipal(why));
                }
                Ok(scope("client-cert", &one(caller, name)?))
            }
            Self::Jwt { claim, key } => {
                let header = one(caller, "authorization")?;
                let claims = header
                    .split_at_checked(7)
                    .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
                    .and_then(|(_, token)| claims(token.trim_ascii(), key.as_ref(), caller.now))
                    .ok_or_else(|| Refusal::NoPrincipal("the bearer token is not valid".to_owned()))?;
                let value = &claims[claim];
                let is_somebody = match value {
                    Value::String(text) => !text.is_empty(),
                    // Others are read with fewer digits than they have, and two would be one.
                    Value::Number(number) => number.is_i64() || number.is_u64(),
                    _ => false,
                };
                if !is_somebody {
                    let why = format!("the bearer token has no `{claim}` that is a text or a whole number");
                    return Err(Refusal::NoPrincipal(why));
                }
                // Two issuers may have the same subject. As JSON, so that "5" is not 5, and nothing slips from one to the other.
                let who = Value::from([claims["iss"].clone(), value.clone()]).to_string();
                Ok(scope(&format!("jwt:{claim}"), who.as_bytes()))
            }
        }
    }
}

fn one(caller: &Caller<'_>, name: &str) -> Result<Vec<u8>, Refusal> {
    let mut values = (caller.header)(name);
    match (values.pop(), values.is_empty()) {
        (Some(value), true) if !value.trim_ascii().is_empty() => Ok(value.trim_ascii().to_vec()),
        (Some(_), false) => Err(Refusal::NoPrincipal(format!(
            "the header {name} is sent more than once"
        ))),
        _ => Err(Refusal::NoPrincipal(format!(
            "the header {name} must say who sends a request with an Idempotency-Key"
        ))),
    }
}

/// The claims of a token that is in force and, where there is a key, authentic.
fn claims(token: &[u8], key: Option<&JwtKey>, now: i64) -> Option<Value> {
    let text = std::str::from_utf8(token).ok()?;
    let (signed, signature) = text.rsplit_once('.')?;
    let (head, body) = signed.split_once('.')?;
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
    if let Some(key) = key {
        let head: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).ok()?).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        // What `crit` names must be understood, and nothing is.
        let is_authentic = head.get("crit").is_none() && verifies(&key.0, &head, signed.as_bytes(), &signature);
        let time = |name: &str| claims.get(name).and_then(Value::as_f64);
        if ["exp", "nbf"]
            .iter()
            .any(|name| claims.get(name).is_some() && time(name).is_none())
        {
            return None;
        }
        #[allow(clippy::cast_precision_loss, reason = "seconds of this century are exact")]
        let (late, early) = ((now - LEEWAY) as f64, (now + LEEWAY) as f64);
        if !is_authentic || time("exp").is_some_and(|exp| exp < late) || time("nbf").is_some_and(|nbf| nbf > early) {
            return None;
        }
    }
    Some(claims)
}

fn verifies(material: &Material, head: &Value, message: &[u8], signature: &[u8]) -> bool {
    /// One of the three hashes.
    macro_rules! mac {
        ($hash:ty, $secret:expr) => {
            Hmac::<$hash>::new_from_slice($secret)
                .is_ok_and(|mac| mac.chain_update(message).verify_slice(signature).is_ok())
        };
    }
    let name = head["alg"].as_str().unwrap_or_default();
    match material {
        Material::Shared(secret) => match name {
            "HS256" => mac!(Sha256, secret),
            "HS384" => mac!(Sha384, secret),
            "HS512" => mac!(Sha512, secret),
            _ => false,
        },
        Material::Public(keys) => match JwtAlgorithm::named(name) {
            Some(JwtAlgorithm::Public(algorithm)) => keys.verifies(algorithm, message, signature),
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef0123";

    fn token(claims: &str, secret: &str) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", part(r#"{"alg":"HS256"}"#), part(claims));
        let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        let mac = mac.chain_update(signed.as_bytes()).finalize().into_bytes();
        format!("Bearer {signed}.{}", URL_SAFE_NO_PAD.encode(mac))
    }

    fn of(principal: &Principal, header: &str, is_trusted: bool) -> Result<Arc<str>, Refusal> {
        principal.scope_of(&Caller {
            header: &|_| vec![header.as_bytes().to_vec()],
            is_trusted,
            now: 1_000,
        })
    }

    #[test]
    fn a_principal_is_read_from_its_text() {
        for text in ["none", "header:authorization", "jwt:sub", "client-cert:X-Client-Cert"] {
            assert!(text.parse::<Principal>().is_ok(), "{text}");
        }
        for text in ["", "header", "header:", "jwt:a b", "cookie:x"] {
            assert!(text.parse::<Principal>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_is_believed_only_with_its_signature_and_in_its_time() {
        let principal = Principal::Jwt {
            claim: "sub".into(),
            key: Some(JwtKey::parse(SECRET).unwrap()),
        };
        let ana = of(&principal, &token(r#"{"sub":"ana","exp":2000}"#, SECRET), false).unwrap();
        assert_eq!(
            of(&principal, &token(r#"{"exp":3000,"sub":"ana"}"#, SECRET), false).unwrap(),
            ana
        );
        assert_ne!(of(&principal, &token(r#"{"sub":"bob"}"#, SECRET), false).unwrap(), ana);
        for bad in [
            token(r#"{"sub":"ana"}"#, "another secret that is long"),
            token(r#"{"sub":"ana","exp":900}"#, SECRET),
            token(r#"{"sub":"ana","nbf":1100}"#, SECRET),
            token(r#"{"sub":"ana","exp":"never"}"#, SECRET),
            token(r#"{"sub":""}"#, SECRET),
            token("[]", SECRET),
            "Bearer x".into(),
            "Basic x.y.z".into(),
        ] {
            assert!(of(&principal, &bad, false).is_err(), "{bad}");
        }
    }

    #[test]
    fn two_tokens_are_of_one_only_if_they_say_the_same() {
        let principal: Principal = "jwt:sub".parse().unwrap();
        let who = |claims: &str| of(&principal, &token(claims, SECRET), false);
        let all = [
            r#"{"sub":"5"}"#,
            r#"{"sub":5}"#,
            r#"{"sub":-5}"#,
            r#"{"sub":"5","iss":"a"}"#,
            r#"{"sub":"5","iss":1}"#,
            r#"{"sub":"5","iss":"1"}"#,
            r#"{"sub":"b\u00005","iss":"a"}"#,
            r#"{"sub":"5","iss":"a\u0000b"}"#,
            r#"{"sub":9007199254740993}"#,
            r#"{"sub":9007199254740992}"#,
        ]
        .map(|claims| who(claims).unwrap());
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(who(r#"{"iss":"a","sub":"5"}"#).unwrap(), all[3]);
        for nobody in [
            "5.0",
            "1e3",
            "123456789012345678901234567890",
            "[5]",
            "true",
            "null",
            "\"\"",
        ] {
            assert!(who(&format!("{{\"sub\":{nobody}}}")).is_err(), "{nobody}");
        }
    }

    #[test]
    fn a_certificate_header_counts_only_from_a_trusted_proxy() {
        let principal: Principal = "client-cert:x-cert".parse().unwrap();
        assert!(of(&principal, "CN=a", true).is_ok());
        assert!(of(&principal, "CN=a", false).is_err());
    }

    #[test]
    fn an_absent_or_repeated_header_is_nobody() {
        let principal: Principal = "header:x-user".parse().unwrap();
        for values in [vec![], vec![b" ".to_vec()], vec![b"a".to_vec(), b"b".to_vec()]] {
            let caller = Caller {
                header: &|_| values.clone(),
                is_trusted: true,
                now: 0,
            };
            assert!(principal.scope_of(&caller).is_err());
        }
    }
}

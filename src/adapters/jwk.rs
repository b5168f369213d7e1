//! JSON Web Keys (RFC 7517), alone or in a set. Shared keys (`oct`) are passed over: who publishes one has none.

use base64::Engine as _;
use serde::Deserialize;

use super::{
    der::{self, KeyType},
    keys::BASE64_URL,
    public_key::{KeySet, NamedKey, PublicKey},
};

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    /// Plaid's; Unix seconds.
    expired_at: Option<i64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Set { keys: Vec<serde_json::Value> },
    One(Box<Jwk>),
}

/// Reads a JWK or a set. Keys of a set that are of no known kind are passed over.
///
/// # Errors
/// A sentence, where no key is left.
pub(crate) fn parse(text: &str) -> Result<KeySet, String> {
    let text: Text = serde_json::from_str(text).map_err(|_| "it is no JWK and no set of them")?;
    let keys: Vec<Jwk> = match text {
        Text::One(jwk) => vec![*jwk],
        Text::Set { keys } => keys
            .into_iter()
            .filter_map(|key| serde_json::from_value(key).ok())
            .collect(),
    };
    let keys: Vec<_> = keys.into_iter().filter_map(named).collect();
    match keys.is_empty() {
        true => Err("it holds no key of a known kind".into()),
        false => Ok(KeySet { keys, private: None }),
    }
}

fn named(jwk: Jwk) -> Option<NamedKey> {
    if jwk.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
        return None;
    }
    let number = |field: &Option<String>| BASE64_URL.decode(field.as_deref()?).ok();
    let point = |size: usize| {
        let mut point = vec![4];
        for part in [number(&jwk.x)?, number(&jwk.y)?] {
            point.extend(std::iter::repeat_n(0, size.checked_sub(part.len())?));
            point.extend(part);
        }
        Some(point)
    };
    let (kind, bytes) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("OKP", Some("Ed25519")) => (KeyType::Ed25519, number(&jwk.x).filter(|x| x.len() == 32)?),
        ("EC", Some("P-256")) => (KeyType::P256, point(32)?),
        ("EC", Some("P-384")) => (KeyType::P384, point(48)?),
        ("EC", Some("P-521")) => (KeyType::P521, point(66)?),
        ("RSA", _) => {
            let fields = [
                der::write_integer(&number(&jwk.n)?),
                der::write_integer(&number(&jwk.e)?),
            ];
            (KeyType::Rsa, der::write(der::SEQUENCE, &fields.concat()))
        }
        _ => return None,
    };
    Some(NamedKey {
        kid: jwk.kid,
        algorithm: jwk.alg,
        expires: jwk.expired_at,
        key: PublicKey { kind, bytes },
    })
}

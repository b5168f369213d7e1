//! What the secrets of a provider are made into.

use std::collections::BTreeSet;

use secrecy::{ExposeSecret as _, SecretString};

use super::{
    decrypt::{Cipher, CipherKey, Decrypt},
    digest::Digester,
    jwe::DecryptionKey,
    keys::{self, Key, Material},
    provider::{ProviderError, ProviderSpec},
    public_key::pem,
    rules::{Hash, KeyStep, Rules, Scheme},
};

/// Makes the keys. A secret must suit at least one rule that counts: an adapter may hold rules of different kinds of
/// secret, such as a token and a signing key.
pub(super) fn make_keys(spec: &ProviderSpec, rules: &Rules, counts: &[bool]) -> Result<Vec<Vec<Key>>, ProviderError> {
    let mut keys: Vec<Vec<Key>> = vec![Vec::new(); rules.signatures.len()];
    let mut fetched = false;
    for ((rule, keys), counts) in rules.signatures.iter().zip(&mut keys).zip(counts) {
        if rule.fetched && *counts {
            keys.push(Key::fetched());
            fetched = true;
        }
    }
    // One that hands its secret over in a handshake must be able to reach us before it is known. Nothing else of it
    // is taken until then.
    let comes = rules.handshakes.iter().any(|handshake| handshake.keep.is_some());
    if rules.verify && spec.secrets.is_empty() && !fetched && !comes {
        let provider = spec.name.clone();
        let waits = rules
            .signatures
            .iter()
            .any(|rule| rule.fetched && rule.waits(&spec.options));
        return Err(match waits {
            true => ProviderError::Setting {
                provider,
                key: "options".into(),
                problem: "there is no secret, and the option is not set with which the sender's keys are fetched \
                          (`cerca providers show` names it)"
                    .into(),
            },
            false => ProviderError::NoSecret { provider },
        });
    }
    for (index, secret) in spec.secrets.iter().enumerate() {
        let wrong = |problem: String| ProviderError::Secret {
            provider: spec.name.clone(),
            number: index + 1,
            problem,
        };
        if secret.expose_secret().trim().is_empty() {
            return Err(wrong("is empty".into()));
        }
        let mut problem = None;
        let mut suits = !rules.verify || is_root(rules, secret);
        for (rule, keys) in rules
            .signatures
            .iter()
            .zip(&mut keys)
            .zip(counts)
            .filter_map(|(pair, counts)| counts.then_some(pair))
            .filter(|(rule, _)| !rule.fetched)
        {
            match keys::key(rule, index, secret) {
                Ok(key) => {
                    keys.push(key);
                    suits = true;
                }
                Err(why) => problem = Some(why),
            }
        }
        if !suits {
            suits = pin_in_place(rules, &mut keys, counts, index, secret);
        }
        if !suits {
            let why = problem.unwrap_or_else(|| {
                "the sender's keys are fetched, so there is none to give, unless a public key of its kind is to be pinned"
                    .into()
            });
            return Err(wrong(format!("cannot be used: {why}")));
        }
    }
    drop_fetched(spec, &mut keys);
    Ok(keys)
}

/// Gives a public key to the rules whose keys are fetched otherwise, where no rule is there for it; whether one takes it.
fn pin_in_place(rules: &Rules, keys: &mut [Vec<Key>], counts: &[bool], index: usize, secret: &SecretString) -> bool {
    let mut taken = false;
    for ((rule, keys), counts) in rules.signatures.iter().zip(keys).zip(counts) {
        if rule.fetched
            && *counts
            && let Ok(key) = keys::key(rule, index, secret)
            && is_public(&key)
        {
            keys.push(key);
            taken = true;
        }
    }
    taken
}

/// A public key that is registered is pinned: whoever registers one does not want to depend on what is fetched. `accept`
/// says where both are to count, if the adapter has a rule for each.
fn drop_fetched(spec: &ProviderSpec, keys: &mut [Vec<Key>]) {
    let all = spec.accept.is_none() && keys.iter().flatten().any(is_public);
    for keys in keys {
        if all || keys.iter().any(is_public) {
            keys.retain(|key| !matches!(key.material, Material::Fetched));
        }
    }
}

fn is_public(key: &Key) -> bool {
    matches!(key.material, Material::Public(_))
}

/// What pinned keys mean, for people; none where the adapter fetches none.
pub(super) fn pinned(rules: &Rules, keys: &[Vec<Key>]) -> Option<String> {
    if !rules.verify || !rules.signatures.iter().any(|rule| rule.fetched) {
        return None;
    }
    let pinned: BTreeSet<_> = keys
        .iter()
        .flatten()
        .filter(|key| is_public(key))
        .filter_map(|key| key.secret)
        .collect();
    let numbers: Vec<_> = pinned.iter().map(|index| (index + 1).to_string()).collect();
    let fetched = keys
        .iter()
        .flatten()
        .any(|key| matches!(key.material, Material::Fetched));
    let place = match fetched {
        true => "beside the keys that the sender publishes",
        false => "in the place of the keys that the sender publishes, and those are not fetched",
    };
    (!numbers.is_empty()).then(|| {
        format!(
            "a public key is pinned (secret {}): it counts {place}",
            numbers.join(", ")
        )
    })
}

/// The keys that decrypt, by secret.
pub(super) fn ciphers(spec: &ProviderSpec, rules: &Rules) -> Result<Vec<Option<CipherKey>>, ProviderError> {
    let Some(Cipher::Cbc(decrypt)) = rules.decrypt.as_ref().map(|decrypt| &decrypt.cipher) else {
        return Ok(Vec::new());
    };
    let secrets = spec.secrets.iter().enumerate();
    let key = |(index, secret)| {
        decrypt.cipher_key(secret).map_err(|problem| ProviderError::Secret {
            provider: spec.name.clone(),
            number: index + 1,
            problem: format!("cannot be used: {problem}"),
        })
    };
    secrets.map(key).collect()
}

/// The keys that senders encrypt to.
pub(super) fn decryption_keys(spec: &ProviderSpec, rules: &Rules) -> Result<Vec<DecryptionKey>, ProviderError> {
    let wrong = |problem: String| ProviderError::Setting {
        provider: spec.name.clone(),
        key: "decryption_keys".into(),
        problem,
    };
    let wanted = rules.decrypt.as_ref().is_some_and(Decrypt::goes_first);
    match (wanted, spec.decryption_keys.is_empty()) {
        (true, true) => {
            return Err(wrong(
                "expected the private RSA key that this sender encrypts to: decryption_keys = [\"file:…\"]".into(),
            ));
        }
        (false, false) => return Err(wrong("this sender encrypts nothing to a key of yours".into())),
        _ => {}
    }
    let keys = spec.decryption_keys.iter().enumerate();
    keys.map(|(index, text)| {
        DecryptionKey::parse(text).map_err(|problem| wrong(format!("key {} {problem}", index + 1)))
    })
    .collect()
}

/// Whether a secret is a certificate that fetched ones must lead to.
fn is_root(rules: &Rules, secret: &SecretString) -> bool {
    let chained = rules
        .key_source
        .as_ref()
        .is_some_and(|source| !source.subjects.is_empty());
    chained && !certificates(secret).is_empty()
}

/// What a fetched certificate must lead to, as DER.
pub(super) fn roots(spec: &ProviderSpec, rules: &Rules) -> Vec<Vec<u8>> {
    let secrets = spec.secrets.iter().filter(|secret| is_root(rules, secret));
    secrets.flat_map(certificates).collect()
}

fn certificates(secret: &SecretString) -> Vec<Vec<u8>> {
    let blocks = pem(secret.expose_secret()).into_iter();
    blocks
        .filter(|(label, _)| *label == "CERTIFICATE")
        .map(|(_, der)| der)
        .collect()
}

/// What answers of handshakes are keyed with.
pub(super) fn answer_macs(rules: &Rules, secrets: &[SecretString]) -> Option<[Digester; 2]> {
    let secret = secrets.first()?.expose_secret();
    let kind = rules
        .signatures
        .iter()
        .find(|rule| matches!(rule.scheme, Scheme::Hmac(_)))
        .map_or(&[KeyStep::Raw][..], |rule| &rule.key);
    let key = keys::decode(kind, secret).ok()?;
    Some([Hash::Sha1, Hash::Sha256].map(|hash| Digester::keyed(hash, &key)))
}

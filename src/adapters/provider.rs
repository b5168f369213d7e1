//! A registered provider: a name, an adapter with its overrides applied, secrets, options.

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use secrecy::SecretString;

use super::{
    adapter::Adapter,
    backfill::Backfill,
    compile_signature::tolerance,
    confirm::Calls,
    decrypt::CipherKey,
    digest::Digester,
    expr::Expr,
    fetched::KeyCache,
    jwe::DecryptionKey,
    keys::{Key, Material},
    lint, mistakes,
    normalize::Normalize,
    provider_keys::{answer_macs, ciphers, decryption_keys, make_keys, pinned, roots},
    registry::Registry,
    rules::{Rules, Signature},
    sender::Sender,
};
use crate::domain::{AdapterName, Answer, Rate};

/// What the operator says of a provider; secrets are resolved already.
#[derive(Debug, Clone, Default)]
pub struct ProviderSpec {
    /// The last part of its URL, `/webhooks/{name}`: `[a-z0-9_-]{1,64}`.
    pub name: String,
    /// The adapter's name; the provider's own name when absent.
    pub adapter: Option<String>,
    /// Newest first; any of them suffices.
    pub secrets: Vec<SecretString>,
    /// Private RSA keys (PEM) that the sender encrypts to; any of them suffices. Only where its adapter decrypts so.
    pub decryption_keys: Vec<SecretString>,
    /// Overrides every signature's tolerance: a duration, or `none`.
    pub tolerance: Option<String>,
    /// Scheme, host and port that senders call, without a trailing slash.
    pub public_url: String,
    /// Largest body in bytes.
    pub max_body: usize,
    /// The status of a conflict (same id, other body): 200 or 409.
    pub on_conflict: u16,
    /// Names of the signature rules that count; all when absent.
    pub accept: Option<Vec<String>>,
    /// `none` switches verification off.
    pub verify: Option<String>,
    /// Whether to call the URLs that confirm subscriptions; the adapter's choice when absent.
    pub confirm: Option<bool>,
    /// Values for `config:name`.
    pub options: BTreeMap<String, String>,
    /// Fields that override those of the adapter's signatures and event.
    pub signature: toml::Table,
    pub event: toml::Table,
    /// Requests in a time, at most; no limit when absent.
    pub rate_limit: Option<Rate>,
    /// Whether an event that is sent again gets its dead deliveries a new life; when absent, where the sender redelivers by
    /// hand.
    pub revive: Option<bool>,
}

/// A registered provider, ready to verify.
pub struct Provider {
    pub name: Arc<str>,
    pub adapter: AdapterName,
    pub public_url: String,
    pub max_body: usize,
    pub on_conflict: u16,
    pub rate_limit: Option<Rate>,
    /// Whether an event that is sent again gets its dead deliveries a new life.
    pub revive: bool,
    pub(crate) rules: Rules,
    /// Keys by signature rule; none for a rule that does not count.
    pub(crate) keys: Vec<Vec<Key>>,
    pub(crate) secrets: Vec<SecretString>,
    pub(crate) options: BTreeMap<String, String>,
    /// By secret, where bodies are encrypted; none where it has no part for that.
    pub(crate) ciphers: Vec<Option<CipherKey>>,
    /// That senders encrypt to.
    pub(crate) decryption_keys: Vec<DecryptionKey>,
    pub(super) normalize: Option<Arc<Normalize>>,
    pub(super) backfills: Arc<[Backfill]>,
    /// The keys of `[keys]` that are at hand.
    pub(crate) fetched: Arc<KeyCache>,
    pub(super) calls: Arc<Calls>,
    /// What a fetched certificate must lead to, as DER; none: the public roots.
    pub(crate) roots: Vec<Vec<u8>>,
    /// For `hmac_sha1(…)` and `hmac_sha256(…)` in answers of handshakes: keyed with the newest secret.
    pub(crate) answer_macs: Option<[Digester; 2]>,
    pub(super) warnings: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) sender: Sender,
}

/// Why a provider cannot be registered. No variant shows a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    #[error("provider `{name}`: the name must be 1 to 64 of a-z, 0-9, `-` and `_`")]
    Name { name: String },
    #[error("provider `{provider}`: there is no adapter `{adapter}`{}", hint(.similar.as_deref()))]
    UnknownAdapter {
        provider: String,
        adapter: String,
        similar: Option<String>,
    },
    #[error("provider `{provider}`: it has no secret, and `verify = \"none\"` is not written")]
    NoSecret { provider: String },
    #[error("provider `{provider}`: secret {number} {problem}")]
    Secret {
        provider: String,
        /// From 1, as listed.
        number: usize,
        problem: String,
    },
    #[error("provider `{provider}`: `{key}`: {problem}")]
    Setting {
        provider: String,
        key: String,
        problem: String,
    },
}

fn hint(similar: Option<&str>) -> String {
    let guess = similar.map_or_else(String::new, |name| format!("did you mean `{name}`? "));
    format!(" ({guess}`cerca providers list` names them all)")
}

impl Provider {
    /// Applies the overrides to the adapter, and makes the keys.
    ///
    /// # Errors
    /// [`ProviderError`], where anything would leave the provider unable to tell a true request from a false one.
    pub fn new(spec: ProviderSpec, registry: &Registry) -> Result<Self, ProviderError> {
        check_name(&spec.name)?;
        let adapter_name = spec.adapter.as_deref().unwrap_or(&spec.name);
        let adapter = registry
            .get(adapter_name)
            .ok_or_else(|| ProviderError::UnknownAdapter {
                provider: spec.name.clone(),
                adapter: adapter_name.to_owned(),
                similar: registry.similar(adapter_name),
            })?;
        let mut rules = rules(&spec, adapter)?;
        if let Some(source) = &mut rules.key_source {
            source.fix(&spec.options);
        }
        let counts = accepted(&spec, &rules)?;
        if let Some(text) = &spec.tolerance {
            let tolerance = tolerance(text).map_err(|problem| setting(&spec, "tolerance", problem))?;
            if !set_tolerance(&mut rules, tolerance) && tolerance.is_some() {
                let problem = "no signature of the adapter signs a time".to_owned();
                return Err(setting(&spec, "tolerance", problem));
            }
        }
        let keys = make_keys(&spec, &rules, &counts)?;
        let ciphers = ciphers(&spec, &rules)?;
        let decryption_keys = decryption_keys(&spec, &rules)?;
        let mut warnings = lint::provider(&spec, adapter, &rules.with_options(&spec.options));
        warnings.extend(pinned(&rules, &keys));
        let notes = mistakes::notes(&spec, adapter, &rules);
        let roots = roots(&spec, &rules);
        Ok(Self {
            name: spec.name.as_str().into(),
            adapter: adapter.name.clone(),
            public_url: spec.public_url.trim_end_matches('/').to_owned(),
            max_body: spec.max_body,
            on_conflict: spec.on_conflict,
            rate_limit: spec.rate_limit,
            revive: spec
                .revive
                .unwrap_or_else(|| adapter.sender().redelivers.as_deref() == Some("manual")),
            answer_macs: answer_macs(&rules, &spec.secrets),
            rules,
            keys,
            ciphers,
            decryption_keys,
            fetched: Arc::default(),
            calls: Arc::default(),
            roots,
            secrets: spec.secrets,
            options: spec.options,
            normalize: adapter.normalize().cloned(),
            backfills: Arc::clone(adapter.backfills()),
            warnings,
            notes,
            sender: adapter.sender().clone(),
        })
    }

    /// What is allowed but deserves a look, for people.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What is right and looks odd, for people.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What is known of how its sender delivers.
    #[must_use]
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The field of form-encoded bodies that carries the JSON.
    #[must_use]
    pub fn form_field(&self) -> Option<&str> {
        match &self.rules.body_from {
            Some(Expr::Form(name)) => Some(name),
            _ => None,
        }
    }

    /// How its events are said in common words.
    #[must_use]
    pub fn normalize(&self) -> Option<&Arc<Normalize>> {
        self.normalize.as_ref()
    }

    /// How past events are listed at the sender's API; empty where that is not known.
    #[must_use]
    pub fn backfills(&self) -> &[Backfill] {
        &self.backfills
    }

    /// What this sender wants to read after an event.
    #[must_use]
    pub fn response(&self) -> &Answer {
        &self.rules.response
    }

    /// The name of a signature rule, by the index in [`crate::ingest::Verified`].
    #[must_use]
    pub fn signature_name(&self, index: usize) -> Option<&str> {
        Some(&self.rules.signatures.get(index)?.name)
    }

    /// Whether its events name what they are ordered by.
    #[must_use]
    pub fn orders(&self) -> bool {
        !self.rules.event.ordering.is_empty()
    }

    /// Whether a rule that counts wants the sender's keys fetched.
    #[must_use]
    pub fn fetches_keys(&self) -> bool {
        let mut keys = self.keys.iter().flatten();
        keys.any(|key| matches!(key.material, Material::Fetched))
    }

    /// Takes over the fetched keys, and the calls that wait, of the provider that this one replaces.
    #[must_use]
    pub fn with_keys_of(mut self, other: &Self) -> Self {
        self.fetched = Arc::clone(&other.fetched);
        self.calls = Arc::clone(&other.calls);
        self
    }

    /// Notes that a key must be fetched, as [`crate::ingest::Rejection::CannotVerifyNow`] says.
    pub fn want_key(&self, url: &str) {
        self.fetched.want(url);
    }

    /// The URLs whose keys are to be fetched now. Each is given once; all are https, on hosts that the adapter names.
    #[must_use]
    pub fn due_keys(&self, now: Timestamp) -> Vec<String> {
        let source = self.rules.key_source.as_ref();
        source.map_or_else(Vec::new, |source| self.fetched.due(source, now).into_iter().collect())
    }

    /// Keeps what a URL of [`Provider::due_keys`] gave.
    ///
    /// # Errors
    /// A sentence, where it holds no key. What was known before stays.
    pub fn put_keys(&self, url: &str, text: &[u8], now: Timestamp) -> Result<(), String> {
        match &self.rules.key_source {
            Some(source) => self.fetched.put(source, url, text, now),
            None => Err("the adapter fetches no keys".into()),
        }
    }

    /// Whether requests are verified at all.
    #[must_use]
    pub fn verifies(&self) -> bool {
        self.rules.verify
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.name)
            .field("adapter", &self.adapter)
            .field("secrets", &self.secrets.len())
            .finish_non_exhaustive()
    }
}

/// Whether a text may name a provider or an adapter.
pub(super) fn is_name(name: &str) -> bool {
    let fine = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    (1..=64).contains(&name.len()) && name.bytes().all(fine)
}

fn check_name(name: &str) -> Result<(), ProviderError> {
    match is_name(name) {
        true => Ok(()),
        false => Err(ProviderError::Name { name: name.to_owned() }),
    }
}

fn rules(spec: &ProviderSpec, adapter: &Adapter) -> Result<Rules, ProviderError> {
    let mut rules = adapter
        .with_overrides(&spec.signature, &spec.event)
        .map_err(|problem| setting(spec, "signature, event", problem))?;
    if let Some(call) = spec.confirm {
        let mut any = false;
        for handshake in rules
            .handshakes
            .iter_mut()
            .filter(|handshake| handshake.confirm.is_some())
        {
            any = true;
            handshake.call = call && handshake.signed;
        }
        if call && !any {
            let problem = "the adapter knows no URL that confirms a subscription".to_owned();
            return Err(setting(spec, "confirm", problem));
        }
    }
    match spec.verify.as_deref() {
        None => {}
        Some("none") => rules.verify = false,
        Some(_) => {
            return Err(setting(spec, "verify", "expected `none`, or no such key".into()));
        }
    }
    Ok(rules)
}

/// Which rules count, by index.
fn accepted(spec: &ProviderSpec, rules: &Rules) -> Result<Vec<bool>, ProviderError> {
    let counts = |rule: &Signature| !rule.waits(&spec.options);
    let Some(names) = &spec.accept else {
        return Ok(rules.signatures.iter().map(counts).collect());
    };
    let known = |name: &str| rules.signatures.iter().any(|rule| rule.name == name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        return Err(setting(
            spec,
            "accept",
            format!("the adapter has no signature `{name}`"),
        ));
    }
    if names.is_empty() {
        return Err(setting(
            spec,
            "accept",
            "the list is empty, so no request could verify".into(),
        ));
    }
    let named = |rule: &Signature| names.contains(&rule.name) && counts(rule);
    Ok(rules.signatures.iter().map(named).collect())
}

/// Sets the tolerance of all rules that sign a time; false where there is none.
fn set_tolerance(rules: &mut Rules, tolerance: Option<i64>) -> bool {
    let mut any = false;
    for rule in &mut rules.signatures {
        if rule.timestamp.is_some() || rule.captures_time() {
            rule.tolerance = tolerance;
            any = true;
        }
    }
    any
}

fn setting(spec: &ProviderSpec, key: &str, problem: String) -> ProviderError {
    ProviderError::Setting {
        provider: spec.name.clone(),
        key: key.to_owned(),
        problem,
    }
}

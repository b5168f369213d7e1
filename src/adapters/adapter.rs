//! One adapter: its folder, read and checked.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    backfill::{Backfill, backfills},
    choices::{Choice, Choices},
    compile::{RuleError, compile},
    coverage::{Uncovered, uncovered},
    decrypt::Decrypt,
    lint,
    manifest::{Manifest, Sender},
    mistakes,
    needs::{Needs, needs},
    normalize::{Normalize, normalize},
    provider::is_name,
    rules::{KeyStep, Rules},
};
use crate::domain::AdapterName;

/// How one kind of sender signs, names and shapes its events.
#[derive(Debug)]
pub struct Adapter {
    pub name: AdapterName,
    pub(crate) manifest: Manifest,
    pub(crate) rules: Rules,
    normalize: Option<Arc<Normalize>>,
    backfills: Arc<[Backfill]>,
    folder: String,
    source: String,
    samples: BTreeMap<String, Vec<u8>>,
    /// Names of samples whose normalised form is beside them.
    expectations: Vec<String>,
    /// Files that are not read, relative to the folder.
    strays: Vec<String>,
    vectors: Option<String>,
}

/// What is wrong with an adapter, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}{message}", key_prefix(.key))]
pub struct AdapterError {
    pub file: String,
    /// From 1.
    pub line: usize,
    /// Such as `signature[0].message`; empty where it is the whole file.
    pub key: String,
    pub message: String,
}

fn key_prefix(key: &str) -> String {
    match key.is_empty() {
        true => String::new(),
        false => format!("`{key}`: "),
    }
}

/// The files of one folder, not yet read.
#[derive(Debug)]
pub(crate) struct Files {
    folder: String,
    files: BTreeMap<String, Vec<u8>>,
}

impl Files {
    pub(crate) fn new(folder: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            files: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, path: &str, content: Vec<u8>) {
        self.files.insert(path.to_owned(), content);
    }
}

impl Adapter {
    /// Reads an adapter from the text of its `adapter.toml` alone.
    ///
    /// # Errors
    /// [`AdapterError`], with the line and key.
    pub fn parse(name: &str, manifest: &str) -> Result<Self, AdapterError> {
        let mut files = Files::new(name);
        files.add("adapter.toml", manifest.as_bytes().to_vec());
        Self::load(name, files)
    }

    /// The same with files in `samples/`.
    #[cfg(test)]
    pub(crate) fn with_samples(name: &str, manifest: &str, samples: &[(&str, &str)]) -> Result<Self, AdapterError> {
        let mut files = Files::new(name);
        files.add("adapter.toml", manifest.as_bytes().to_vec());
        for (file, text) in samples {
            files.add(&format!("samples/{file}"), text.as_bytes().to_vec());
        }
        Self::load(name, files)
    }

    /// Reads a folder.
    pub(crate) fn load(name: &str, mut files: Files) -> Result<Self, AdapterError> {
        let file = format!("{}/adapter.toml", files.folder);
        check_name(name).map_err(|message| AdapterError {
            file: file.clone(),
            line: 1,
            key: String::new(),
            message,
        })?;
        let text = |bytes: Vec<u8>, file: &str| {
            String::from_utf8(bytes).map_err(|_| AdapterError {
                file: file.to_owned(),
                line: 1,
                key: String::new(),
                message: "the file is not UTF-8".into(),
            })
        };
        let source = text(files.files.remove("adapter.toml").unwrap_or_default(), &file)?;
        let vectors = match files.files.remove("vectors.jsonl") {
            Some(bytes) => Some(text(bytes, &format!("{}/vectors.jsonl", files.folder))?),
            None => None,
        };
        let (mut samples, mut expectations, mut strays) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (path, content) in std::mem::take(&mut files.files) {
            let sample = path.strip_prefix("samples/").unwrap_or_default();
            if let Some(name) = sample.strip_suffix(".http") {
                samples.insert(name.to_owned(), content);
            } else if let Some(name) = sample.strip_suffix(".normalized.json") {
                expectations.push(name.to_owned());
            } else {
                strays.push(path);
            }
        }
        let manifest = read(&source, &file)?;
        let rules = compile(&manifest).map_err(|error| locate(error, &source, &file))?;
        let normalize = normalize(&manifest).map_err(|error| locate(error, &source, &file))?;
        let backfills = backfills(&manifest).map_err(|error| locate(error, &source, &file))?;
        Ok(Self {
            name: name.into(),
            manifest,
            rules,
            normalize: normalize.map(Arc::new),
            backfills: backfills.into(),
            folder: files.folder,
            source,
            samples,
            expectations,
            strays,
            vectors,
        })
    }

    /// The rules with fields of a provider put over those of the manifest.
    ///
    /// # Errors
    /// A sentence, where the result is no adapter.
    pub(crate) fn with_overrides(&self, signature: &toml::Table, event: &toml::Table) -> Result<Rules, String> {
        if signature.is_empty() && event.is_empty() {
            return Ok(self.rules.clone());
        }
        let mut table: toml::Table = toml::from_str(&self.source).map_err(|error| error.to_string())?;
        let signature = &named_header(signature);
        if let Some(toml::Value::Array(rules)) = table.get_mut("signature") {
            let all_tokens = rules.iter().all(proves_by_token);
            for rule in rules {
                let skip = !all_tokens && proves_by_token(rule);
                let fields = signature
                    .iter()
                    .filter(|(key, _)| !skip || !SIGNING_KEYS.contains(&key.as_str()));
                if let Some(rule) = rule.as_table_mut() {
                    if signature.contains_key("source") {
                        rule.remove("header");
                    }
                    rule.extend(fields.map(|(key, value)| (key.clone(), value.clone())));
                }
            }
        } else if !signature.is_empty() {
            let rule = toml::Value::Table(signature.clone());
            table.insert("signature".into(), toml::Value::Array(vec![rule]));
            table.remove("verify");
        }
        if !event.is_empty() {
            let selectors = table
                .entry("event")
                .or_insert_with(|| toml::Value::Table(toml::Table::new()));
            if let Some(selectors) = selectors.as_table_mut() {
                selectors.extend(event.clone());
            }
        }
        // Written out and read again, because only a text has places that messages can name.
        let merged = toml::to_string(&table).map_err(|error| error.to_string())?;
        let manifest: Manifest = toml::from_str(&merged).map_err(|error| error.message().to_owned())?;
        compile(&manifest).map_err(|error| format!("`{}`: {}", error.key, error.message))
    }

    /// The sender's name, for people.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.manifest.title
    }

    /// The sender's own page about its webhooks.
    #[must_use]
    pub fn docs(&self) -> Option<&str> {
        self.manifest.docs.as_deref()
    }

    /// Where the secret is found.
    #[must_use]
    pub fn secret_hint(&self) -> Option<&str> {
        self.manifest.secret.hint.as_deref()
    }

    /// The shape of a right secret: prefixes, or one of `hex` and `base64`. Empty where nothing is known.
    #[must_use]
    pub fn secret_pattern(&self) -> &[String] {
        let pattern = self.manifest.secret.pattern.as_ref();
        pattern.map_or(&[], |texts| &texts.get_ref().0)
    }

    /// Prefixes of what is often registered in place of the secret, each with what it is.
    pub(crate) fn mistaken_secrets(&self) -> &BTreeMap<String, String> {
        &self.manifest.secret.mistaken
    }

    /// Whether it stands for no one sender, so that the registered provider says how it signs.
    pub(crate) fn is_generic(&self) -> bool {
        self.name.starts_with("generic_")
    }

    /// Whether one of its own rules decodes what follows `whsec_`.
    pub(crate) fn decodes_whsec(&self) -> bool {
        self.rules
            .signatures
            .iter()
            .any(|rule| rule.key.contains(&KeyStep::Whsec))
    }

    /// Where the sender's own id of an event is read from, as it is written.
    #[must_use]
    pub fn event_ids(&self) -> Vec<&str> {
        let choices = self.manifest.event.id.as_ref();
        written(choices)
    }

    /// What tells events apart where the id alone does not, as it is written.
    pub(crate) fn event_keys(&self) -> Vec<&str> {
        written(self.manifest.event.key.as_ref())
    }

    /// Where the type is read from, as it is written.
    pub(crate) fn event_types(&self) -> Vec<&str> {
        written(self.manifest.event.kind.as_ref())
    }

    /// What a signature rule signs, as it is written; empty where it is not.
    pub(crate) fn message(&self, index: usize) -> &str {
        let message = self
            .manifest
            .signature
            .get(index)
            .and_then(|table| table.message.as_ref());
        message.map_or("", |text| text.get_ref())
    }

    /// The names of the options that the registered provider sets, sorted.
    #[must_use]
    pub fn options(&self) -> Vec<&str> {
        mistakes::all_options(&self.rules).into_iter().collect()
    }

    /// Whether the sender encrypts to a key of the registered provider (`decryption_keys`).
    #[must_use]
    pub fn decrypts_first(&self) -> bool {
        self.rules.decrypt.as_ref().is_some_and(Decrypt::goes_first)
    }

    /// The form field that may carry the JSON body.
    #[must_use]
    pub fn form_field(&self) -> Option<&str> {
        self.manifest.body.form_field.as_deref()
    }

    /// What is known of how the sender delivers.
    #[must_use]
    pub fn sender(&self) -> &Sender {
        &self.manifest.sender
    }

    /// What a person does at the sender, step by step.
    #[must_use]
    pub fn setup(&self) -> &[String] {
        &self.manifest.setup.steps
    }

    /// What the sender wants to read after an event.
    #[must_use]
    pub fn response(&self) -> &crate::domain::Answer {
        &self.rules.response
    }

    /// The names of its signature rules, in order, each with its scheme.
    pub fn signatures(&self) -> impl Iterator<Item = (&str, &str)> {
        let tables = self.manifest.signature.iter();
        self.rules
            .signatures
            .iter()
            .zip(tables)
            .map(|(rule, table)| (rule.name.as_str(), table.scheme.get_ref().as_str()))
    }

    /// What its signatures leave open, rules that leave open the same together. Empty where nothing is verified.
    #[must_use]
    pub fn uncovered(&self) -> Vec<Uncovered> {
        let messages: Vec<_> = self
            .manifest
            .signature
            .iter()
            .map(|table| table.message.as_ref().map(|text| text.get_ref().as_str()))
            .collect();
        uncovered(&self.rules, &messages)
    }

    /// How its events are said in common words.
    #[must_use]
    pub fn normalize(&self) -> Option<&Arc<Normalize>> {
        self.normalize.as_ref()
    }

    /// How past events are listed at the sender's API; empty where that is not known.
    #[must_use]
    pub fn backfills(&self) -> &Arc<[Backfill]> {
        &self.backfills
    }

    /// Sample requests by name.
    #[must_use]
    pub fn samples(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.samples
    }

    /// The names of samples that have their normalised form beside them.
    pub(crate) fn expectations(&self) -> &[String] {
        &self.expectations
    }

    /// Files of the folder that nothing reads, relative to it.
    pub(crate) fn strays(&self) -> &[String] {
        &self.strays
    }

    /// The text of `vectors.jsonl`.
    #[must_use]
    pub fn vectors(&self) -> Option<&str> {
        self.vectors.as_deref()
    }

    /// The text of `adapter.toml`.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Where its files are; `providers/NAME` for one of the binary.
    pub(crate) fn folder(&self) -> &str {
        &self.folder
    }

    /// Whether requests are verified at all.
    pub(crate) fn verifies(&self) -> bool {
        self.rules.verify
    }

    /// Whether one of its rules judges a time.
    pub(crate) fn judges_time(&self) -> bool {
        self.rules.signatures.iter().any(|rule| rule.tolerance.is_some())
    }

    /// Whether the sender can send JSON in the place of a form, and should.
    pub(crate) fn prefers_json(&self) -> bool {
        self.manifest.body.json_instead
    }

    /// What a registered provider must be given.
    #[must_use]
    pub fn needs(&self) -> Needs {
        needs(self)
    }

    /// What is wrong though it can be read: the key, and why.
    pub(crate) fn faults(&self) -> Vec<(&'static str, &'static str)> {
        lint::faults(self)
    }

    /// What is allowed but deserves a look.
    #[must_use]
    pub fn lint(&self) -> Vec<String> {
        lint::adapter(self)
    }
}

/// Whether a folder can be an adapter's: its name is part of URLs, globs and files.
fn check_name(name: &str) -> Result<(), String> {
    match is_name(name) {
        true => Ok(()),
        false => Err(format!(
            "the folder's name must be 1 to 64 of a-z, 0-9, `-` and `_`, found `{}`",
            name.escape_debug()
        )),
    }
}

fn written(choices: Option<&Choices>) -> Vec<&str> {
    choices.map_or_else(Vec::new, |choices| {
        choices.get_ref().0.iter().map(Choice::written).collect()
    })
}

/// A registered provider may say `header = "X-Name"` for `source = "header:X-Name"`.
fn named_header(signature: &toml::Table) -> toml::Table {
    let mut signature = signature.clone();
    let name = signature.get("header").and_then(toml::Value::as_str);
    let source = name.map(|name| format!("header:{name}"));
    if let (Some(source), false) = (source, signature.contains_key("source")) {
        signature.remove("header");
        signature.insert("source".into(), source.into());
    }
    signature
}

/// Keys that only a scheme with a message has.
const SIGNING_KEYS: [&str; 4] = ["message", "key", "encoding", "tolerance"];

/// Whether a rule compares the secret itself, so that overrides of [`SIGNING_KEYS`] are not meant for it.
fn proves_by_token(rule: &toml::Value) -> bool {
    let scheme = rule.get("scheme").and_then(toml::Value::as_str);
    matches!(scheme, Some("token" | "basic"))
}

fn read(source: &str, file: &str) -> Result<Manifest, AdapterError> {
    toml::from_str(source).map_err(|error| AdapterError {
        file: file.to_owned(),
        line: line(source, error.span().map_or(0, |span| span.start)),
        key: String::new(),
        message: error.message().to_owned(),
    })
}

fn locate(error: RuleError, source: &str, file: &str) -> AdapterError {
    AdapterError {
        file: file.to_owned(),
        line: line(source, error.span.start),
        key: error.key,
        message: error.message,
    }
}

/// The line, from 1, that a byte lies in.
fn line(source: &str, at: usize) -> usize {
    1 + source.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

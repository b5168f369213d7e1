//! One adapter: its folder, read and checked.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    backfill::{Backfill, backfills},
    compile::{RuleError, compile},
    manifest::Manifest,
    normalize::{Normalize, normalize},
    provider::is_name,
    rules::Rules,
};
use crate::domain::AdapterName;

/// How one kind of sender signs, names and shapes its events.
#[derive(Debug)]
pub struct Adapter {
    pub name: AdapterName,
    pub(crate) manifest: Manifest,
    pub(crate) rules: Rules,
    pub(super) normalize: Option<Arc<Normalize>>,
    pub(super) backfills: Arc<[Backfill]>,
    pub(super) folder: String,
    pub(super) source: String,
    pub(super) samples: BTreeMap<String, Vec<u8>>,
    /// Names of samples whose normalised form is beside them.
    pub(super) expectations: Vec<String>,
    /// Files that are not read, relative to the folder.
    pub(super) strays: Vec<String>,
    pub(super) vectors: Option<String>,
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

//! References to secrets: `env:NAME`, `file:PATH`, or the value itself.

use std::{fmt, path::Path};

use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de};

use super::env::Environment;

/// A secret as the file writes it. Its `Debug` shows where a secret is, never what it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Reference(String);

/// Whether a text is the secret itself, and no reference to it.
#[must_use]
pub(super) fn is_literal(text: &str) -> bool {
    !text.starts_with("env:") && !text.starts_with("file:")
}

impl Reference {
    /// Whether the secret itself stands in the file.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        is_literal(&self.0)
    }

    /// Fetches the secret. A file's path is relative to `folder`; one trailing newline is not part of the secret.
    ///
    /// # Errors
    /// Says what is missing or empty; never any part of the value.
    pub fn resolve(&self, folder: &Path, environment: &Environment) -> Result<SecretString, String> {
        let value = if let Some(name) = self.0.strip_prefix("env:") {
            if name.trim().is_empty() {
                return Err("env: without a name; expected that of a variable, such as env:STRIPE_SECRET".to_owned());
            }
            let value = environment
                .get(name)
                .ok_or_else(|| format!("the environment variable {name} is not set"))?;
            if value.is_empty() {
                return Err(format!("the environment variable {name} is empty"));
            }
            value.to_owned()
        } else if let Some(path) = self.0.strip_prefix("file:") {
            if path.trim().is_empty() {
                return Err("file: without a path; expected one, such as file:stripe.secret".to_owned());
            }
            let path = folder.join(path);
            let text = std::fs::read_to_string(&path)
                .map_err(|error| format!("cannot read the secret in {}: {error}", path.display()))?;
            let value = text.strip_suffix('\n').unwrap_or(&text);
            let value = value.strip_suffix('\r').unwrap_or(value);
            if value.is_empty() {
                return Err(format!("the file {} is empty", path.display()));
            }
            value.to_owned()
        } else if self.0.is_empty() {
            return Err("an empty secret; expected env:NAME, file:PATH or the secret itself".to_owned());
        } else {
            self.0.clone()
        };
        Ok(value.into())
    }
}

impl From<&str> for Reference {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// The reference, or `(hidden)` in place of a literal secret.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_literal() { "(hidden)" } else { &self.0 })
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Not derived: serde's own messages repeat a value of the wrong type, and this one may be a secret.
impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => Ok(Self(text)),
            other => Err(de::Error::custom(format!(
                "expected a string such as env:NAME, found {}",
                article(other.type_str())
            ))),
        }
    }
}

/// A list of references; a single string is a list of one.
pub(super) fn references<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Reference>, D::Error> {
    let expected = "expected a list of strings such as [\"env:NAME\"]";
    match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) => Ok(vec![Reference(text)]),
        toml::Value::Array(items) => items
            .into_iter()
            .map(|item| match item {
                toml::Value::String(text) => Ok(Reference(text)),
                other => Err(de::Error::custom(format!(
                    "{expected}, found {} in it",
                    article(other.type_str())
                ))),
            })
            .collect(),
        other => Err(de::Error::custom(format!(
            "{expected}, found {}",
            article(other.type_str())
        ))),
    }
}

fn article(kind: &str) -> String {
    match kind {
        "integer" | "array" => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

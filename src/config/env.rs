//! Settings from the environment: `CERCA_SERVER__LISTEN=0.0.0.0:8080` is `listen` of `[server]`. Only names with two
//! underscores in a row are settings; `CERCA_ADMIN_TOKEN` and the like are free for `env:` references.

use std::{borrow::Cow, collections::BTreeMap, ffi::OsString};

use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

use super::error::{ConfigError, Problem};

/// The variables of the process, read once.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The real ones. Variables that are not UTF-8 are left out.
    #[must_use]
    pub fn of_process() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
        )
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All of them, for programs that are started.
    #[must_use]
    pub fn pairs(&self) -> Vec<(OsString, OsString)> {
        self.0.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Whole,
    /// Values separated by commas.
    List,
}

/// Every setting that a variable can override: all keys of the plain tables. A test holds it against the structs.
const SETTINGS: &[(&str, &str, Kind)] = &[
    ("server", "listen", Kind::Text),
    ("server", "public_url", Kind::Text),
    ("server", "max_body", Kind::Text),
    ("server", "body_timeout", Kind::Text),
    ("server", "trusted_proxies", Kind::List),
    ("server", "workers", Kind::Whole),
    ("server", "max_connections", Kind::Whole),
    ("server", "max_wait", Kind::Text),
    ("server", "shutdown_timeout", Kind::Text),
    ("admin", "listen", Kind::Text),
    ("admin", "token", Kind::Text),
    ("store", "url", Kind::Text),
    ("store", "seal_key", Kind::Text),
    ("worker", "concurrency", Kind::Whole),
    ("worker", "lease", Kind::Text),
    ("retention", "done", Kind::Text),
    ("retention", "failed", Kind::Text),
    ("retention", "dedupe", Kind::Text),
    ("retention", "quarantine", Kind::Text),
    ("retention", "idempotency_keys", Kind::Text),
    ("quarantine", "rows", Kind::Whole),
    ("quarantine", "bytes", Kind::Text),
    ("quarantine", "rate", Kind::Whole),
    ("outbox", "poll", Kind::Text),
    ("log", "format", Kind::Text),
    ("log", "level", Kind::Text),
];

/// One variable that overrides one setting.
#[derive(Clone)]
pub(super) struct Override {
    pub(super) variable: String,
    section: &'static str,
    key: &'static str,
    kind: Kind,
    value: String,
}

impl Override {
    pub(super) fn path(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// Puts the value into `root`, with `at` as its position.
    pub(super) fn lay_over<'s>(&'s self, root: &mut DeTable<'s>, at: usize) -> Result<(), String> {
        let value = match self.kind {
            Kind::Text => DeValue::String(Cow::Borrowed(&self.value)),
            Kind::Whole => match DeValue::parse(self.value.trim()).map(Spanned::into_inner) {
                Ok(value @ DeValue::Integer(_)) => value,
                _ => return Err(format!("`{}` is not a whole number", self.value)),
            },
            Kind::List => {
                let mut items = DeArray::new();
                for item in self.value.split(',').map(str::trim).filter(|item| !item.is_empty()) {
                    items.push(Spanned::new(at..at, DeValue::String(Cow::Borrowed(item))));
                }
                DeValue::Array(items)
            }
        };
        let section = root
            .entry(Spanned::new(at..at, Cow::Borrowed(self.section)))
            .or_insert_with(|| Spanned::new(at..at, DeValue::Table(DeTable::new())));
        let DeValue::Table(table) = section.get_mut() else {
            return Err(format!("`{}` in the file is not a table", self.section));
        };
        // Removed first: inserting over an equal key would keep the old key's position.
        table.remove(self.key);
        table.insert(
            Spanned::new(at..at, Cow::Borrowed(self.key)),
            Spanned::new(at..at, value),
        );
        Ok(())
    }
}

/// All overrides, or every variable that looks like one and is none.
pub(super) fn overrides(environment: &Environment) -> Result<Vec<Override>, ConfigError> {
    let mut found = Vec::new();
    let mut problems = Vec::new();
    for (variable, value) in &environment.0 {
        let Some((section, key)) = variable.strip_prefix("CERCA_").and_then(|name| name.split_once("__")) else {
            continue;
        };
        let known = SETTINGS.iter().find(|(s, k, _)| name_of(s, k) == *variable);
        match known {
            Some(&(section, key, kind)) => found.push(Override {
                variable: variable.clone(),
                section,
                key,
                kind,
                value: value.clone(),
            }),
            None => problems.push(unknown(variable, section, key)),
        }
    }
    // Last, so that the short name wins over the long one.
    if let Some(level) = environment.get("CERCA_LOG").filter(|level| !level.is_empty()) {
        found.push(Override {
            variable: "CERCA_LOG".to_owned(),
            section: "log",
            key: "level",
            kind: Kind::Text,
            value: level.to_owned(),
        });
    }
    if problems.is_empty() {
        Ok(found)
    } else {
        Err(ConfigError(problems))
    }
}

fn name_of(section: &str, key: &str) -> String {
    format!("CERCA_{}__{}", section.to_uppercase(), key.to_uppercase())
}

fn unknown(variable: &str, section: &str, key: &str) -> Problem {
    let of_section = SETTINGS.iter().filter(|(s, _, _)| s.eq_ignore_ascii_case(section));
    let mut names: Vec<String> = of_section.map(|(s, k, _)| name_of(s, k)).collect();
    if names.is_empty() {
        names = SETTINGS.iter().map(|(s, k, _)| name_of(s, k)).collect();
    }
    let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
    let message = match super::near(variable, &borrowed) {
        _ if matches!(section, "PROVIDER" | "HANDLER") => format!(
            "no such setting; [[{}]] is set in the file, only plain tables have variables",
            section.to_lowercase()
        ),
        Some(near) => format!("no such setting; did you mean {near}?"),
        None => format!(
            "no such setting (key {}); expected one of {}",
            key.to_lowercase(),
            names.join(", ")
        ),
    };
    Problem::new(variable, "", message)
}

#[cfg(test)]
pub(super) fn settings() -> Vec<(String, String)> {
    SETTINGS
        .iter()
        .map(|(s, k, _)| ((*s).to_owned(), (*k).to_owned()))
        .collect()
}

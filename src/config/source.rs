//! The text of the configuration with the position of every key, so that an error found long after parsing still names
//! its line. Overrides from the environment are laid over it as values whose position is the variable's name.

use std::{borrow::Cow, path::Path};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    env::Override,
    error::{ConfigError, Problem},
    words,
};

/// A parsed file with its overrides.
pub(super) struct Source {
    /// How messages call it: the path as given, or `defaults`.
    name: String,
    text: String,
    overrides: Vec<Override>,
}

impl Source {
    /// Parses `text` and lays `overrides` over it.
    pub(super) fn new(path: Option<&Path>, text: String, overrides: Vec<Override>) -> Result<Self, ConfigError> {
        let name = path.map_or_else(|| "defaults".to_owned(), |path| path.display().to_string());
        let source = Self { name, text, overrides };
        source.tree()?;
        Ok(source)
    }

    /// Parses anew: positions are asked for when something is wrong, so holding the tree would only cost a lifetime.
    pub(super) fn tree(&self) -> Result<Spanned<DeTable<'_>>, Problem> {
        let mut root = DeTable::parse(&self.text).map_err(|error| self.unparsable(&error))?;
        for (index, entry) in self.overrides.iter().enumerate() {
            // Past the end of the text, where no position of the file can be.
            let at = self.text.len() + 1 + index;
            entry
                .lay_over(root.get_mut(), at)
                .map_err(|message| Problem::new(entry.variable.clone(), &entry.path(), message))?;
        }
        Ok(root)
    }

    /// Text that is no TOML. A key that is there twice is named, with the place where it was before.
    fn unparsable(&self, error: &toml::de::Error) -> Problem {
        let span = error.span().unwrap_or_default();
        let place = self.place_of(span.start);
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        let Some(key) = self.text.get(span.clone()).filter(|_| message == "duplicate key") else {
            return Problem::new(place, "", message);
        };
        let mut first = None;
        let (tree, _) = DeTable::parse_recoverable(&self.text);
        last_before(tree.get_ref(), key.trim_matches(['"', '\'']), span.start, &mut first);
        let before = first.map_or_else(String::new, |at| {
            format!("; it is in line {} already", line_and_column(&self.text, at).0)
        });
        Problem::new(place, "", format!("the key \"{key}\" is there twice{before}"))
    }

    /// A problem with the value at `path`, such as `provider[0].tolerance`. A path that the file does not have points to
    /// its nearest ancestor that it does have.
    pub(super) fn problem(&self, path: &str, message: impl Into<String>) -> Problem {
        Problem::new(self.place(path), path, message)
    }

    /// Turns what serde says into words about keys.
    pub(super) fn explain(&self, error: &toml::de::Error) -> Problem {
        let message = error.message();
        let Some(span) = error.span() else {
            return Problem::new(self.name.clone(), "", message);
        };
        let mut best = None;
        if let Ok(tree) = self.tree() {
            innermost(tree.get_ref(), span.start, String::new(), &mut best);
        }
        let path = best.map(|(_, path)| path).unwrap_or_default();
        let place = self.place_of(span.start);
        if let Some(rest) = message.strip_prefix("unknown field ") {
            return unknown_key(place, &path, rest);
        }
        if let Some(field) = message.strip_prefix("missing field ") {
            return Problem::new(place, &path, format!("the key {} is missing", quoted(field)));
        }
        Problem::new(place, &path, words::plain(&path, message))
    }

    /// Where the value at `path` was said, for people: `cerca.toml:12`, a variable's name, or `None` for a default.
    pub(super) fn origin(&self, path: &str) -> Option<String> {
        let (found, at) = self.position(path)?;
        (found == path).then(|| match self.variable(at) {
            Some(variable) => variable.to_owned(),
            None => format!("{}:{}", self.name, line_and_column(&self.text, at).0),
        })
    }

    /// Whether the value at `path` is in the file, and not only in the environment.
    pub(super) fn is_in_file(&self, path: &str) -> bool {
        let position = self.position(path);
        position.is_some_and(|(found, at)| found == path && self.variable(at).is_none())
    }

    fn place(&self, path: &str) -> String {
        match self.position(path) {
            Some((_, at)) => self.place_of(at),
            None => self.name.clone(),
        }
    }

    fn place_of(&self, at: usize) -> String {
        if let Some(variable) = self.variable(at) {
            return variable.to_owned();
        }
        let (line, column) = line_and_column(&self.text, at);
        format!("{}:{line}:{column}", self.name)
    }

    fn variable(&self, at: usize) -> Option<&str> {
        let index = at.checked_sub(self.text.len() + 1)?;
        self.overrides.get(index).map(|entry| entry.variable.as_str())
    }

    /// Follows `path` as far as it goes: the part that exists and its position.
    fn position<'p>(&self, path: &'p str) -> Option<(&'p str, usize)> {
        let tree = self.tree().ok()?;
        let mut table = tree.get_ref();
        let mut found = None;
        let mut end = 0;
        for part in path.split('.') {
            let (key, index) = match part.split_once('[') {
                Some((key, rest)) => (key, rest.trim_end_matches(']').parse::<usize>().ok()),
                None => (part, None),
            };
            let Some((_, mut value)) = table.iter().find(|(name, _)| name.get_ref().as_ref() == key) else {
                break;
            };
            if let Some(index) = index {
                let Some(item) = value.get_ref().as_array().and_then(|items| items.get(index)) else {
                    break;
                };
                value = item;
            }
            end += part.len() + usize::from(end > 0);
            found = Some((&path[..end], value.span().start));
            match value.get_ref() {
                DeValue::Table(inner) => table = inner,
                _ => break,
            }
        }
        found
    }
}

/// The last place before `end` where a key of this name stands: that of the same table, unless tables are mixed.
fn last_before(table: &DeTable<'_>, name: &str, end: usize, found: &mut Option<usize>) {
    for (key, value) in table {
        let at = key.span().start;
        if key.get_ref() == name && at < end && found.is_none_or(|found| found < at) {
            *found = Some(at);
        }
        let tables: Vec<&DeTable<'_>> = match value.get_ref() {
            DeValue::Table(inner) => vec![inner],
            DeValue::Array(items) => items.iter().filter_map(|item| item.get_ref().as_table()).collect(),
            _ => Vec::new(),
        };
        for inner in tables {
            last_before(inner, name, end, found);
        }
    }
}

/// The path whose key or value holds the byte at `at`, most closely. Every branch is looked at, because the span of a
/// table of its own covers only its header.
fn innermost(table: &DeTable<'_>, at: usize, prefix: String, best: &mut Option<(usize, String)>) {
    for (key, value) in table {
        let path = if prefix.is_empty() {
            key.get_ref().to_string()
        } else {
            format!("{prefix}.{}", key.get_ref())
        };
        offer(&key.span(), at, &path, best);
        descend(value, at, path, best);
    }
}

fn descend(value: &Spanned<DeValue<'_>>, at: usize, path: String, best: &mut Option<(usize, String)>) {
    offer(&value.span(), at, &path, best);
    match value.get_ref() {
        DeValue::Table(inner) => innermost(inner, at, path, best),
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                descend(item, at, format!("{path}[{index}]"), best);
            }
        }
        _ => {}
    }
}

fn offer(span: &std::ops::Range<usize>, at: usize, path: &str, best: &mut Option<(usize, String)>) {
    let holds = span.start <= at && at < span.end.max(span.start + 1);
    if holds && best.as_ref().is_none_or(|(length, _)| span.len() <= *length) {
        *best = Some((span.len(), path.to_owned()));
    }
}

/// `` `listn`, expected one of `listen`, `workers` `` as a sentence with a suggestion.
fn unknown_key(place: String, path: &str, rest: &str) -> Problem {
    let names: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let (key, expected) = names
        .split_first()
        .map_or(("", [].as_slice()), |(key, rest)| (*key, rest));
    let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
    let table = if parent.is_empty() {
        String::new()
    } else {
        format!(" in [{parent}]")
    };
    let guess = super::near(key, expected)
        .map(|near| format!("; did you mean \"{near}\"?"))
        .unwrap_or_default();
    let expected = expected.join(", ");
    Problem::new(
        place,
        "",
        format!("unknown key \"{key}\"{table}{guess}; expected one of {expected}"),
    )
}

fn quoted(field: &str) -> Cow<'_, str> {
    Cow::Owned(field.replace('`', "\""))
}

/// Line and column from 1 of a byte offset; columns count characters.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

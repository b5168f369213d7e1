//! What can be wrong with a configuration: each problem on a line of its own, with its place, key and expectation.

use std::fmt;

/// One mistake, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `cerca.toml:14:13`, or the name of an environment variable.
    pub place: String,
    /// `provider[0].tolerance`; empty where the message says it.
    pub key: String,
    /// What is wrong and what was expected. Never the value of a secret.
    pub message: String,
}

impl Problem {
    pub(super) fn new(place: impl Into<String>, key: &str, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            key: key.to_owned(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "{}: {}", self.place, self.message),
            key => write!(f, "{}: {key}: {}", self.place, self.message),
        }
    }
}

/// Everything that is wrong, in the order of the file as far as it could be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError(pub Vec<Problem>);

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

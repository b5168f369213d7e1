//! The settings in force, for people: each with where it was said. Secrets are hidden.

use std::fmt::Write as _;

use secrecy::ExposeSecret as _;

use super::{Config, LogFormat};
use crate::units::{format_duration, format_size};

impl Config {
    /// The plain tables as TOML, each key with its origin as a comment.
    #[must_use]
    pub fn effective(&self) -> String {
        let mut out = String::new();
        for (table, keys) in self.settings() {
            let _ = writeln!(out, "[{table}]");
            for (key, value) in keys {
                let line = format!("{key} = {value}");
                let origin = self.source.origin(&format!("{table}.{key}"));
                let _ = match origin {
                    Some(origin) => writeln!(out, "{line:<44} # {origin}"),
                    None => writeln!(out, "{line}"),
                };
            }
            out.push('\n');
        }
        out.pop();
        out
    }

    pub(super) fn settings(&self) -> Vec<(&'static str, Vec<(&'static str, String)>)> {
        let text = |value: &str| toml::Value::from(value).to_string();
        let time = |value| format!("\"{}\"", format_duration(value));
        let proxies: Vec<String> = self
            .server
            .trusted_proxies
            .iter()
            .map(|net| format!("\"{net}\""))
            .collect();
        let public_url = self.server.public_url.clone();
        vec![
            (
                "server",
                vec![
                    ("listen", text(&self.server.listen.to_string())),
                    (
                        "public_url",
                        text(&public_url.unwrap_or_else(|| format!("http://{}", self.server.listen))),
                    ),
                    ("max_body", text(&format_size(self.server.max_body))),
                    ("body_timeout", time(self.server.body_timeout)),
                    ("trusted_proxies", format!("[{}]", proxies.join(", "))),
                    ("workers", self.server.workers.to_string()),
                    ("max_connections", self.server.max_connections.to_string()),
                    ("max_wait", time(self.server.max_wait)),
                    ("shutdown_timeout", time(self.server.shutdown_timeout)),
                ],
            ),
            (
                "admin",
                vec![
                    ("listen", text(&self.admin.listen.to_string())),
                    ("token", text(if self.admin.token.is_some() { "(hidden)" } else { "" })),
                ],
            ),
            (
                "store",
                vec![
                    ("url", text(&self.store.redacted())),
                    (
                        "seal_key",
                        text(if self.store.seal_key.is_some() { "(hidden)" } else { "" }),
                    ),
                ],
            ),
            (
                "worker",
                vec![
                    ("concurrency", self.worker.concurrency.to_string()),
                    ("lease", time(self.worker.lease)),
                ],
            ),
            (
                "retention",
                vec![
                    ("done", time(self.retention.done)),
                    ("failed", time(self.retention.failed)),
                    ("dedupe", time(self.retention.dedupe)),
                    ("quarantine", time(self.retention.quarantine)),
                    ("idempotency_keys", time(self.retention.idempotency_keys)),
                ],
            ),
            (
                "quarantine",
                vec![
                    ("rows", self.quarantine.rows.to_string()),
                    ("bytes", text(&format_size(self.quarantine.bytes))),
                    ("rate", self.quarantine.rate.to_string()),
                ],
            ),
            ("outbox", vec![("poll", time(self.outbox.poll))]),
            (
                "log",
                vec![
                    (
                        "format",
                        text(match self.log.format {
                            LogFormat::Auto => "auto",
                            LogFormat::Pretty => "pretty",
                            LogFormat::Json => "json",
                        }),
                    ),
                    ("level", text(&self.log.level)),
                ],
            ),
        ]
    }
}

impl super::StoreUrl {
    /// The URL without its password.
    #[must_use]
    pub fn redacted(&self) -> String {
        redact_url(self.url.expose_secret())
    }
}

/// A URL with its password replaced, whatever its form: everything between the first `:` after the scheme and the last
/// `@`, and a `password` in the query.
#[must_use]
pub fn redact_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (rest, query) = rest
        .split_once('?')
        .map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let hidden = match rest.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{user}:***@{host}"),
            None => rest.to_owned(),
        },
        None => rest.to_owned(),
    };
    let query = query.map(|query| {
        let parts = query.split('&').map(|part| match part.split_once('=') {
            Some((name, _)) if name.contains("password") => format!("{name}=***"),
            _ => part.to_owned(),
        });
        format!("?{}", parts.collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}://{hidden}{}", query.unwrap_or_default())
}

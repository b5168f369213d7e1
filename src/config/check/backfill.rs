//! What a provider says of fetching past events.

use std::time::Duration;

use super::{
    super::{BackfillConfig, file::ProviderTable, secret::Reference},
    Pass,
};
use crate::units::format_duration;

/// No API likes to be asked more often.
const MIN_BACKFILL: Duration = Duration::from_secs(60);
const MIN_WINDOW: Duration = Duration::from_secs(3600);

impl Pass<'_> {
    pub(super) fn backfill(&mut self, path: &str, table: &ProviderTable) -> BackfillConfig {
        let at = |key: &str| format!("{path}.{key}");
        if table.api_key.as_ref().is_some_and(Reference::is_literal) {
            self.warn(&at("api_key"), "the key stands in the file; use env:NAME or file:PATH");
        }
        let api_key = table.api_key.as_ref().and_then(|key| self.secret(&at("api_key"), key));
        let api_url = table
            .api_url
            .as_deref()
            .and_then(|text| self.api_url(&at("api_url"), text));
        if table.api_key.is_none() && (table.backfill.is_some() || api_url.is_some()) {
            let key = if table.backfill.is_some() {
                "backfill"
            } else {
                "api_url"
            };
            self.wrong(
                &at(key),
                "needs `api_key`, that of the sender's own API, such as env:STRIPE_API_KEY",
            );
        }
        if let Some(every) = table.backfill.filter(|every| *every < MIN_BACKFILL) {
            let (every, least) = (format_duration(every), format_duration(MIN_BACKFILL));
            self.wrong(&at("backfill"), format!("{every} is more often than every {least}"));
        }
        let every = table.backfill.unwrap_or_default();
        let window = table.backfill_window.unwrap_or_else(|| (every * 2).max(MIN_WINDOW));
        if window < every {
            self.wrong(
                &at("backfill_window"),
                "is shorter than `backfill`, so there would be gaps",
            );
        }
        BackfillConfig {
            api_key,
            api_url,
            every: table.backfill,
            window,
            derived: table.backfill_derived,
        }
    }

    /// The key must not travel in the clear.
    fn api_url(&mut self, path: &str, text: &str) -> Option<reqwest::Url> {
        let expected = "expected the address of the sender's API, such as https://api.example.com";
        match reqwest::Url::parse(text) {
            Ok(url) if url.scheme() == "https" && url.has_host() && url.query().is_none() => Some(url),
            Ok(url)
                if url.scheme() == "http" && matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")) =>
            {
                Some(url)
            }
            Ok(_) => {
                self.wrong(path, format!("is not https; {expected}"));
                None
            }
            Err(error) => {
                self.wrong(path, format!("is no address ({error}); {expected}"));
                None
            }
        }
    }
}

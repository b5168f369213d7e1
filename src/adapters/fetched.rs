//! Keys that the sender publishes and that must be fetched: where they are, and the ones at hand. Nothing is fetched
//! in here; [`super::Refresher`] does that, outside of any request.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use jiff::Timestamp;

use super::{
    pins::{host_of, is_pinned},
    public_key::{KeySet, pem},
    template::Template,
};
use crate::json;
use crate::json::Wanted;

/// Most texts that are kept. A sender has one or two; whoever invents URLs on its host must not fill the memory.
const MOST_ENTRIES: usize = 32;
/// Most URLs that wait to be fetched.
const MOST_WANTED: usize = 8;
/// How old a set must be before an unknown key id is a reason to fetch it again, in seconds.
const REFETCH_AFTER: i64 = 300;

/// Where keys are fetched.
#[derive(Debug, Clone)]
pub(crate) struct KeySource {
    pub(crate) url: Template,
    /// The URL, where the request has no say in it.
    pub(crate) fixed: Option<String>,
    /// Which hosts a URL may have; see [`super::pins`].
    pub(crate) hosts: Vec<String>,
    pub(crate) format: KeyFormat,
    /// Where in a JSON text the keys lie.
    pub(crate) pointer: Option<Wanted>,
    /// How long fetched keys are used, in seconds.
    pub(crate) cache: i64,
    /// The names of which the certificate must have one, chained to a root; none: the host vouches for it.
    pub(crate) subjects: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyFormat {
    X509,
    Jwks,
    Pem,
}

/// What one URL gave.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) keys: KeySet,
    /// Certificates as DER, the sender's own first.
    pub(crate) certificates: Vec<Vec<u8>>,
    pub(crate) at: Timestamp,
}

/// The keys at hand, by URL. Readers share one map, which is replaced as a whole.
#[derive(Debug, Default)]
pub(crate) struct KeyCache {
    entries: RwLock<Arc<HashMap<String, Arc<Fetched>>>>,
    wanted: Mutex<BTreeSet<String>>,
}

impl KeySource {
    /// Resolves a URL that only the provider's options have a say in, so that it is fetched before a request asks.
    pub(crate) fn fix(&mut self, options: &BTreeMap<String, String>) {
        let url = self.fixed.take().or_else(|| self.url.over_options(options));
        if let (Some(url), true) = (&url, self.hosts.is_empty()) {
            self.hosts.push(host_of(url).to_owned());
        }
        self.fixed = url.filter(|url| is_pinned(url, &self.hosts));
    }

    /// Reads what was fetched.
    ///
    /// # Errors
    /// A sentence.
    fn read(&self, text: &[u8], at: Timestamp) -> Result<Fetched, String> {
        let place = match &self.pointer {
            None => None,
            Some(wanted) => {
                let found = json::scan(text, wanted).map_err(|error| error.to_string())?;
                let value = found.slice(text, 0).and_then(json::text::value);
                Some(value.ok_or("there is nothing at `keys.pointer`")?)
            }
        };
        let text = std::str::from_utf8(place.as_deref().unwrap_or(text)).map_err(|_| "it is not UTF-8")?;
        let mut keys = KeySet::parse(text)?;
        let mut certificates = Vec::new();
        if self.format == KeyFormat::X509 {
            let blocks = pem(text).into_iter().filter(|(label, _)| *label == "CERTIFICATE");
            certificates.extend(blocks.map(|(_, der)| der));
            // The others only lead to the root.
            keys.keys.truncate(1);
        }
        match self.format {
            KeyFormat::X509 if certificates.is_empty() => Err("it is no certificate".into()),
            KeyFormat::Jwks if !text.trim_start().starts_with('{') => Err("it is no set of keys".into()),
            _ => Ok(Fetched { keys, certificates, at }),
        }
    }
}

impl Fetched {
    /// Whether the text may be used still.
    pub(crate) fn is_fresh(&self, source: &KeySource, now: Timestamp) -> bool {
        now.duration_since(self.at).as_secs() <= source.cache
    }

    /// Whether a key that is not in it may have been added since.
    pub(crate) fn may_lack(&self, now: Timestamp) -> bool {
        now.duration_since(self.at).as_secs() > REFETCH_AFTER
    }
}

impl KeyCache {
    pub(crate) fn get(&self, url: &str) -> Option<Arc<Fetched>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(url).cloned()
    }

    /// Keeps what was fetched; the oldest goes where there is no room.
    ///
    /// # Errors
    /// A sentence, where the text holds no key. What was known before stays.
    pub(crate) fn put(&self, source: &KeySource, url: &str, text: &[u8], at: Timestamp) -> Result<(), String> {
        let fetched = Arc::new(source.read(text, at)?);
        self.lock_wanted().remove(url);
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = HashMap::clone(&entries);
        next.insert(url.to_owned(), fetched);
        if next.len() > MOST_ENTRIES {
            let oldest = next.iter().min_by_key(|(_, entry)| entry.at);
            if let Some(oldest) = oldest.map(|(url, _)| url.clone()) {
                next.remove(&oldest);
            }
        }
        *entries = Arc::new(next);
        Ok(())
    }

    /// Notes a URL that a request could not be verified without.
    pub(crate) fn want(&self, url: &str) {
        let mut wanted = self.lock_wanted();
        if wanted.len() < MOST_WANTED {
            wanted.insert(url.to_owned());
        }
    }

    /// What is to be fetched: what requests asked for (once), what is fixed and not at hand, and what ends soon.
    pub(crate) fn due(&self, source: &KeySource, now: Timestamp) -> BTreeSet<String> {
        let mut due = std::mem::take(&mut *self.lock_wanted());
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let ends = |at: Timestamp| now.duration_since(at).as_secs() > source.cache / 2;
        if let Some(url) = &source.fixed
            && entries.get(url).is_none_or(|entry| ends(entry.at))
        {
            due.insert(url.clone());
        }
        due
    }

    fn lock_wanted(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

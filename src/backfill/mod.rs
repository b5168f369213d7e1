//! Fetches from the sender's own API what never arrived as a webhook. It asks for nothing that is stored already, so it
//! may be ended at any time and run again; what it stores goes the way of every other event, under the webhook's id.

mod fetch;
mod page;
mod shape;

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use crate::{
    adapters::{Backfill, Provider},
    domain::NewEvent,
    store::{Accepted, EventFilter, Store, StoreError},
};

use fetch::Fetcher;
use page::Pages;
use shape::Shaper;

pub use fetch::Patience;

/// Pages of one run, at most.
const MOST_PAGES: u64 = 10_000;

/// Events of derived identity that are looked for in memory, at most.
const MOST_DERIVED: usize = 2_000_000;

/// How much earlier than the period a webhook of derived identity may have arrived.
const EARLIER: SignedDuration = SignedDuration::from_hours(24);

/// Failures that are told in words; the others are only counted.
const TOLD: usize = 20;

/// Events stored in one go.
const CHUNK: usize = 100;

/// Which handlers want an event of this provider, adapter and type: their names joined by commas.
pub type Router = Arc<dyn Fn(&str, &str, Option<&str>) -> Arc<str> + Send + Sync>;

/// What a backfill works with.
pub struct Backfiller {
    pub provider: Arc<Provider>,
    pub api_key: SecretString,
    /// Takes the place of scheme, host and port of every address of the adapter.
    pub api_url: Option<Url>,
    pub router: Router,
    /// Whether a header of a webhook may be stored, by its name in lower case.
    pub keeps_header: fn(&str) -> bool,
    pub patience: Patience,
}

/// What to fetch.
#[derive(Debug, Clone)]
pub struct Order {
    /// The sender's own time of the events: at or after.
    pub since: Timestamp,
    /// Before.
    pub until: Timestamp,
    /// Only report.
    pub dry_run: bool,
    /// Store also what gets an id of ours, because the API does not say the webhook's.
    pub derived: bool,
}

/// What was found so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// Events that the sender lists in the period.
    pub seen: u64,
    /// Stored before.
    pub known: u64,
    /// Not stored before.
    pub missing: u64,
    /// Of the missing: stored now.
    pub stored: u64,
    /// Of the missing: not stored, because only an id of ours could be given.
    pub held_back: u64,
    /// Of the missing: could not be read or stored.
    pub failed: u64,
    pub pages: u64,
    /// The ids of what is missing, the first ones.
    pub missing_ids: Vec<String>,
    /// What failed, in words, the first ones.
    pub failures: Vec<String>,
}

impl Report {
    fn fail(&mut self, id: &str, why: impl std::fmt::Display) {
        self.failed += 1;
        if self.failures.len() < TOLD {
            self.failures.push(format!("{id}: {why}"));
        }
    }

    fn miss(&mut self, id: &str) {
        self.missing += 1;
        if self.missing_ids.len() < TOLD {
            self.missing_ids.push(id.to_owned());
        }
    }
}

/// Why a backfill ended before its end. What it stored stays; run it again to go on.
#[derive(Debug, thiserror::Error)]
pub enum BackfillError {
    #[error("the adapter {0} does not say how past events are listed")]
    NotKnown(String),
    #[error("the adapter needs the option `{0}` of the provider to list past events")]
    MissingOption(String),
    #[error("the sender's API at {host}: {problem}")]
    Api { host: String, problem: String },
    #[error("the list at {0} does not end: {1}")]
    Endless(String, &'static str),
    #[error("more than {MOST_DERIVED} events are stored in this period; ask for a shorter one")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("stopped")]
    Stopped,
}

/// Where an order stands; given to the caller at every page, and at the end, also where that is an error.
pub type Progress<'a> = &'a mut (dyn FnMut(&Report) + Send);

impl Backfiller {
    /// Goes through every list of the adapter.
    ///
    /// # Errors
    /// [`BackfillError`], where it ended early; `progress` was told how far it came.
    pub async fn run(
        &self,
        store: &dyn Store,
        order: &Order,
        stop: &CancellationToken,
        progress: Progress<'_>,
    ) -> Result<Report, BackfillError> {
        let lists = self.provider.backfills();
        if lists.is_empty() {
            return Err(BackfillError::NotKnown(self.provider.adapter.to_string()));
        }
        let mut run = Run {
            of: self,
            fetcher: Fetcher::new(self, stop)?,
            store,
            order,
            told: Told::default(),
            report: Report::default(),
        };
        for list in lists {
            let done = run.list(list, progress).await;
            progress(&run.report);
            done?;
        }
        Ok(run.report)
    }
}

/// One run: what it works with, and how far it is.
struct Run<'a> {
    of: &'a Backfiller,
    fetcher: Fetcher<'a>,
    store: &'a dyn Store,
    order: &'a Order,
    told: Told,
    report: Report,
}

impl Run<'_> {
    async fn list(&mut self, list: &Backfill, progress: Progress<'_>) -> Result<(), BackfillError> {
        let shaper = Shaper::new(self.of, list)?;
        let mut pages = Pages::new(self.of, list, self.order)?;
        while let Some(url) = pages.next_url()? {
            if self.report.pages >= MOST_PAGES {
                return Err(BackfillError::Endless(fetch::shown(&url), "too many pages"));
            }
            let answer = self.fetcher.get(list, &url).await?;
            self.report.pages += 1;
            let items = page::items(&answer.body, &list.items);
            let items = items.map_err(|problem| self.fetcher.wrong(&url, problem))?;
            let mut wanted = Vec::with_capacity(items.len());
            let mut is_over = false;
            for item in &items {
                let item = &answer.body[item.clone()];
                if let Some(at) = shaper.time(item) {
                    is_over |= list.newest_first && at < self.order.since;
                    if at < self.order.since || at >= self.order.until {
                        continue;
                    }
                }
                wanted.push(item);
            }
            let fresh = if list.id.is_some() {
                self.read_named(&shaper, wanted).await?
            } else {
                self.read(&shaper, wanted).await?
            };
            let missing = self.missing(list, fresh).await?;
            self.save_missing(list, missing).await?;
            progress(&self.report);
            if is_over {
                break;
            }
            pages.learn(&answer, &items)?;
        }
        Ok(())
    }

    /// The events of items whose ids the list says: what is known costs no further request.
    async fn read_named(&mut self, shaper: &Shaper<'_>, items: Vec<&[u8]>) -> Result<Vec<NewEvent>, BackfillError> {
        let mut named: Vec<(String, &[u8])> = Vec::with_capacity(items.len());
        for item in items {
            match shaper.id(item) {
                Some(id) if self.told.ids.insert(id.clone()) => named.push((id, item)),
                Some(_) => {}
                None => {
                    self.report.seen += 1;
                    self.report.missing += 1;
                    self.report.fail("an item of the list", "it has no id");
                }
            }
        }
        self.report.seen += named.len() as u64;
        let ids = named.iter().map(|(id, _)| id.clone()).collect();
        let known = self.store.known(&self.of.provider.name, ids).await?;
        let mut events = Vec::new();
        for ((id, item), known) in named.iter().zip(known) {
            if known {
                self.report.known += 1;
                continue;
            }
            match shaper.events(&self.fetcher, item).await? {
                Ok(read) => events.extend(read),
                Err(problem) => {
                    self.report.missing += 1;
                    self.report.fail(id, problem);
                }
            }
        }
        Ok(events)
    }

    /// The events of items whose ids come out of the webhook that is made of them.
    async fn read(&mut self, shaper: &Shaper<'_>, items: Vec<&[u8]>) -> Result<Vec<NewEvent>, BackfillError> {
        let mut events = Vec::new();
        for item in items {
            match shaper.events(&self.fetcher, item).await? {
                Ok(read) => {
                    for event in read {
                        if self.told.ids.insert(event.provider_event_id.clone()) {
                            self.report.seen += 1;
                            events.push(event);
                        }
                    }
                }
                Err(problem) => {
                    self.report.seen += 1;
                    self.report.missing += 1;
                    self.report.fail("an item of the list", problem);
                }
            }
        }
        Ok(events)
    }

    /// The events that are not stored.
    async fn missing(&mut self, list: &Backfill, events: Vec<NewEvent>) -> Result<Vec<NewEvent>, BackfillError> {
        let ids = events.iter().map(|event| event.provider_event_id.clone()).collect();
        let known = self.store.known(&self.of.provider.name, ids).await?;
        let mut missing = Vec::new();
        for (event, known) in events.into_iter().zip(known) {
            if known || (list.is_derived && self.is_derived_known(&event).await?) {
                self.report.known += 1;
            } else {
                missing.push(event);
            }
        }
        Ok(missing)
    }

    async fn save_missing(&mut self, list: &Backfill, missing: Vec<NewEvent>) -> Result<(), BackfillError> {
        for event in &missing {
            self.report.miss(&event.provider_event_id);
        }
        if list.is_derived && !self.order.derived {
            self.report.held_back += missing.len() as u64;
            return Ok(());
        }
        if self.order.dry_run {
            return Ok(());
        }
        for chunk in missing.chunks(CHUNK) {
            save(self.store, chunk.to_vec(), &mut self.report).await?;
        }
        Ok(())
    }

    /// Whether an event of this type and ordering key is stored, about the period.
    async fn is_derived_known(&mut self, event: &NewEvent) -> Result<bool, BackfillError> {
        let (Some(kind), Some(ordering_key)) = (&event.event_type, &event.ordering_key) else {
            return Ok(false);
        };
        if !self.told.types.contains(kind) {
            let filter = EventFilter {
                provider: Some(self.of.provider.name.to_string()),
                event_type: Some(kind.clone()),
                since: self.order.since.checked_sub(EARLIER).ok(),
                ..EventFilter::default()
            };
            let mut cursor = None;
            loop {
                let page = self.store.events(filter.clone(), cursor, 500).await?;
                let keys = page.events.iter().filter_map(|row| row.ordering_key.as_deref());
                self.told.derived.extend(keys.map(|key| hash(kind, key)));
                if self.told.derived.len() > MOST_DERIVED {
                    return Err(BackfillError::TooMany);
                }
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            self.told.types.insert(kind.clone());
        }
        Ok(self.told.derived.contains(&hash(kind, ordering_key)))
    }
}

/// What a run has met.
#[derive(Default)]
struct Told {
    /// Lists repeat items when something is added meanwhile, and redeliveries.
    ids: HashSet<String>,
    /// Types whose stored events were read, and those by type and ordering key.
    types: HashSet<String>,
    derived: HashSet<u64>,
}

fn hash(kind: &str, key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (kind, key).hash(&mut hasher);
    hasher.finish()
}

/// Stores events through the inbox; what its queue has no room for waits.
async fn save(store: &dyn Store, events: Vec<NewEvent>, report: &mut Report) -> Result<(), BackfillError> {
    let mut left = 50;
    let accepted = loop {
        match store.accept(events.clone()).await {
            Ok(accepted) => break accepted,
            Err(StoreError::Full) if left > 0 => {
                left -= 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            // One event spoils the others: each alone.
            Err(StoreError::Refused(_)) if events.len() > 1 => {
                for event in events {
                    Box::pin(save(store, vec![event], report)).await?;
                }
                return Ok(());
            }
            Err(StoreError::Refused(why)) => {
                let id = events.first().map(|event| event.provider_event_id.clone());
                report.fail(&id.unwrap_or_default(), why);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    };
    for one in accepted {
        match one {
            Accepted::Stored => report.stored += 1,
            // Its webhook came meanwhile.
            Accepted::Duplicate | Accepted::Conflict => {
                report.missing -= 1;
                report.known += 1;
            }
        }
    }
    Ok(())
}

//! Which handlers want an event. Asked for every event on its way in, so answers are kept.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use globset::{GlobBuilder, GlobMatcher};

use super::{HandlerSpec, build::HandlerError};

/// Answers kept, over all providers. Types come from outside: without a bound a sender could make the process grow.
const KEPT: usize = 8_192;
/// Longer types are matched each time.
const LONGEST_KEPT_TYPE: usize = 200;

/// The `events` patterns of all handlers.
///
/// A pattern is `provider:type`, both globs (`*`, `?`, `[ab]`, `{a,b}`), split at the first colon. The left side may name the
/// provider or its adapter. Without a colon it stands for every type of that provider, so `*` alone is everything. An
/// event without a type has the empty type, which only `*` matches.
pub struct Router {
    routes: Vec<(String, Vec<Pattern>)>,
    kept: RwLock<Kept>,
}

struct Pattern {
    sender: GlobMatcher,
    event_type: GlobMatcher,
}

impl Pattern {
    fn is_of(&self, provider: &str, adapter: &str) -> bool {
        self.sender.is_match(provider) || self.sender.is_match(adapter)
    }
}

#[derive(Default)]
struct Kept {
    /// By provider; the adapter stands beside it because a provider may be registered anew with another one.
    providers: HashMap<Arc<str>, (Arc<str>, ByType)>,
    count: usize,
}

type ByType = HashMap<Box<str>, Arc<str>>;

impl Router {
    /// # Errors
    /// A handler without patterns, or with one that is no glob.
    pub fn new(specs: &[HandlerSpec]) -> Result<Self, HandlerError> {
        let routes = specs
            .iter()
            .map(|spec| {
                let patterns = patterns(&spec.events).map_err(|problem| HandlerError {
                    handler: spec.name.clone(),
                    problem,
                })?;
                Ok((spec.name.clone(), patterns))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            routes,
            kept: RwLock::default(),
        })
    }

    /// The names of the handlers that want it, joined by commas in the order configured; empty when none does.
    #[must_use]
    pub fn routes(&self, provider: &str, adapter: &str, event_type: Option<&str>) -> Arc<str> {
        let event_type = event_type.unwrap_or_default();
        if let Some(routes) = self.recall(provider, adapter, event_type) {
            return routes;
        }
        let routes = self.match_all(provider, adapter, event_type);
        if event_type.len() <= LONGEST_KEPT_TYPE {
            self.keep(provider, adapter, event_type, routes.clone());
        }
        routes
    }

    /// Whether this handler may want an event of that sender, whatever its type.
    #[must_use]
    pub fn hears(&self, handler: &str, provider: &str, adapter: &str) -> bool {
        self.routes
            .iter()
            .filter(|(name, _)| name == handler)
            .flat_map(|(_, patterns)| patterns)
            .any(|pattern| pattern.is_of(provider, adapter))
    }

    fn recall(&self, provider: &str, adapter: &str, event_type: &str) -> Option<Arc<str>> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let (of_adapter, types) = kept.providers.get(provider)?;
        (**of_adapter == *adapter).then(|| types.get(event_type).cloned())?
    }

    fn keep(&self, provider: &str, adapter: &str, event_type: &str, routes: Arc<str>) {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        if kept.count >= KEPT {
            *kept = Kept::default();
        }
        kept.count += 1;
        let entry = kept.providers.entry(provider.into());
        let (of_adapter, types) = entry.or_insert_with(|| (adapter.into(), HashMap::new()));
        if **of_adapter != *adapter {
            (*of_adapter, *types) = (adapter.into(), HashMap::new());
        }
        types.insert(event_type.into(), routes);
    }

    fn match_all(&self, provider: &str, adapter: &str, event_type: &str) -> Arc<str> {
        let wants = |p: &Pattern| p.is_of(provider, adapter) && p.event_type.is_match(event_type);
        let names: Vec<&str> = self
            .routes
            .iter()
            .filter(|(_, patterns)| patterns.iter().any(wants))
            .map(|(name, _)| name.as_str())
            .collect();
        names.join(",").into()
    }
}

fn patterns(events: &[String]) -> Result<Vec<Pattern>, String> {
    if events.is_empty() {
        return Err("`events` is empty; \"*\" is everything".into());
    }
    let glob = |text: &str, whole: &str| {
        GlobBuilder::new(text)
            .build()
            .map(|glob| glob.compile_matcher())
            .map_err(|e| {
                format!(
                    "`events`: \"{whole}\" is not a pattern such as \"stripe:invoice.*\": {}",
                    e.kind()
                )
            })
    };
    events
        .iter()
        .map(|text| {
            let (sender, event_type) = text.split_once(':').unwrap_or((text, "*"));
            if sender.is_empty() || event_type.is_empty() {
                return Err(format!(
                    "`events`: \"{text}\" lacks a side; write \"stripe:invoice.*\" or \"stripe:*\""
                ));
            }
            Ok(Pattern {
                sender: glob(sender, text)?,
                event_type: glob(event_type, text)?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(handlers: &[(&str, &[&str])]) -> Result<Router, HandlerError> {
        let specs: Vec<HandlerSpec> = handlers
            .iter()
            .map(|(name, events)| {
                toml::from_str(&format!("name = {name:?}\nkind = \"log\"\nevents = {events:?}")).unwrap()
            })
            .collect();
        Router::new(&specs)
    }

    #[test]
    fn patterns_name_providers_or_adapters_and_types() {
        let router = router(&[
            ("all", &["*"]),
            ("invoices", &["stripe:invoice.*"]),
            ("brazil", &["stripe-br:*"]),
            ("pushes", &["github:push", "gitlab:{Push,Tag} Hook"]),
            ("asaas", &["asaas"]),
        ])
        .unwrap();
        for (provider, adapter, event_type, expected) in [
            ("stripe", "stripe", Some("invoice.paid"), "all,invoices"),
            ("stripe-br", "stripe", Some("invoice.paid"), "all,invoices,brazil"),
            ("stripe-br", "stripe", Some("charge"), "all,brazil"),
            ("stripe-br", "stripe", None, "all,brazil"),
            ("stripe", "stripe", None, "all"),
            ("github", "github", Some("push"), "all,pushes"),
            ("github", "github", Some("Push"), "all"),
            ("g", "gitlab", Some("Tag Hook"), "all,pushes"),
            ("asaas", "asaas", Some("a:b/c\nd"), "all,asaas"),
            ("asaas", "asaas", None, "all,asaas"),
        ] {
            // The second time from memory.
            for _ in 0..2 {
                assert_eq!(
                    &*router.routes(provider, adapter, event_type),
                    expected,
                    "{provider} {event_type:?}"
                );
            }
        }
    }

    #[test]
    fn nothing_wanted_is_empty_and_a_new_adapter_is_asked_anew() {
        let router = router(&[("h", &["stripe:*"])]).unwrap();
        assert_eq!(&*router.routes("pay", "paypal", Some("x")), "");
        assert_eq!(&*router.routes("pay", "stripe", Some("x")), "h");
        assert_eq!(&*router.routes("pay", "paypal", Some("x")), "");
    }

    #[test]
    fn endless_types_do_not_make_it_grow() {
        let router = router(&[("h", &["*:a*"])]).unwrap();
        for n in 0..2 * KEPT {
            assert_eq!(&*router.routes("p", "p", Some(&format!("a{n}"))), "h");
        }
        assert_eq!(&*router.routes("p", "p", Some(&"a".repeat(10_000))), "h");
        let kept = router.kept.read().unwrap();
        assert!(kept.providers["p"].1.len() <= KEPT);
    }

    #[test]
    fn bad_patterns_are_explained() {
        for bad in [&[][..], &["a:[b"], &[":x"], &["stripe:"]] {
            let error = router(&[("h", bad)]).err().unwrap().to_string();
            assert!(error.starts_with("handler `h`: `events`"), "{error}");
        }
    }
}

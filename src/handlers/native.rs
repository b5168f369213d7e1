//! Handlers written in Rust, in a program that uses Cerca as a library. One trait with a choice: what a handler returns
//! says whether anything is still to be done in the transaction that settles the delivery.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;

use super::{Call, Failure, HandlerSpec, Kind, RetrySpec};
use crate::{
    domain::{RetryPolicy, StoredEvent},
    store::{InTransaction, SqlError, Transaction},
};

/// A business effect in Rust. Every `async fn(Call) -> Result<_, Failure>` is one, where `_` is `()` or [`Done`].
///
/// An attempt that panics, or takes longer than the handler's timeout, has failed. The future is dropped at the timeout,
/// and when another worker has taken the delivery over; it must not block its thread.
pub trait NativeHandler: Send + Sync + 'static {
    /// Tries the delivery once. What it does outside of the store is at least once: make it safe to repeat, under
    /// [`Call::idempotency_key`] and with [`Call::step`].
    ///
    /// # Errors
    /// A [`Failure`] says whether another try can help.
    fn handle(&self, call: Call) -> impl Future<Output = Result<Done, Failure>> + Send;
}

impl<F, Fut, D> NativeHandler for F
where
    F: Fn(Call) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<D, Failure>> + Send,
    D: Into<Done>,
{
    async fn handle(&self, call: Call) -> Result<Done, Failure> {
        self(call).await.map(Into::into)
    }
}

/// A handler has done its part.
#[derive(Clone, Default)]
pub struct Done {
    within: Option<Within>,
}

type Within = Arc<dyn Fn(&mut Transaction) -> Result<(), Failure> + Send + Sync>;

impl Done {
    /// Nothing is left but to settle the delivery. The same as `()`.
    #[must_use]
    pub fn plain() -> Self {
        Self::default()
    }

    /// The delivery is settled in a transaction of the store in which this code runs first: what it does happens exactly
    /// once, because it is committed together with the end of the delivery. If the claim has ended meanwhile, it does
    /// not run at all. An error or a panic undoes everything and is a failed attempt.
    ///
    /// The code is not async, because nothing outside may be waited for while a transaction is open. It has what is left
    /// of the handler's timeout, at least a second; on SQLite, where it holds the only writer, never more than 5 s. It may
    /// run more than once, after a deadlock for example; only the run that is committed counts.
    pub fn within(code: impl Fn(&mut Transaction) -> Result<(), Failure> + Send + Sync + 'static) -> Self {
        Self {
            within: Some(Arc::new(code)),
        }
    }

    /// The code for the store, and where its failure can be found afterwards.
    pub(crate) fn into_work(self) -> Option<(InTransaction, Arc<LastFailure>)> {
        let code = self.within?;
        let last = Arc::new(LastFailure::default());
        let kept = Arc::clone(&last);
        let work: InTransaction = Arc::new(move |transaction| {
            kept.set(None);
            code(transaction).map_err(|failure| {
                let text = failure.to_string();
                kept.set(Some(failure));
                text
            })
        });
        Some((work, last))
    }
}

impl From<()> for Done {
    fn from((): ()) -> Self {
        Self::plain()
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.within.is_some() {
            "Done::within"
        } else {
            "Done::plain"
        })
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Retry(error.to_string())
    }
}

/// The store knows failures as texts; the kind waits here.
#[derive(Default)]
pub(crate) struct LastFailure(Mutex<Option<Failure>>);

impl LastFailure {
    fn set(&self, failure: Option<Failure>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// The failure with this text, or one that another try can help.
    pub(crate) fn take(&self, text: String) -> Failure {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match last {
            Some(failure) if failure.to_string() == text => failure,
            _ => Failure::Retry(text),
        }
    }
}

/// A handler as it is run.
#[derive(Clone)]
pub struct NativeAction {
    run: Arc<Erased>,
    setup: Option<InTransaction>,
}

type Erased = dyn Fn(Call) -> BoxFuture<'static, Result<Done, Failure>> + Send + Sync;

impl NativeAction {
    fn new(handler: impl NativeHandler) -> Self {
        let handler = Arc::new(handler);
        Self {
            run: Arc::new(move |call| {
                let handler = Arc::clone(&handler);
                Box::pin(async move { handler.handle(call).await })
            }),
            setup: None,
        }
    }

    pub(crate) fn run(&self, call: Call) -> BoxFuture<'static, Result<Done, Failure>> {
        (self.run)(call)
    }

    /// What it wants done in the store before its first event.
    pub(crate) fn setup(&self) -> Option<InTransaction> {
        self.setup.clone()
    }
}

impl fmt::Debug for NativeAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NativeAction")
    }
}

/// A handler by its name. Which events it gets is said by the configuration's `[[handler]]` of that name with
/// `kind = "native"`, or here by [`Native::events`].
#[derive(Debug, Clone)]
pub struct Native {
    name: String,
    action: NativeAction,
    events: Vec<String>,
    policy: Policy,
}

/// What was said in code; the usual where nothing was.
#[derive(Debug, Clone, Copy, Default)]
struct Policy {
    retry: Option<RetryPolicy>,
    concurrency: Option<usize>,
    timeout: Option<Duration>,
}

impl Native {
    /// `name` is `[a-z0-9_-]{1,64}` and part of the idempotency key, so renaming a handler makes it a new one.
    pub fn new(name: impl Into<String>, handler: impl NativeHandler) -> Self {
        Self {
            name: name.into(),
            action: NativeAction::new(handler),
            events: Vec::new(),
            policy: Policy::default(),
        }
    }

    /// A handler that only works in the store: this code runs in the transaction that settles the delivery, as in
    /// [`Done::within`].
    pub fn within(
        name: impl Into<String>,
        code: impl Fn(&StoredEvent, &mut Transaction) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        let code = Arc::new(code);
        Self::new(name, move |call: Call| {
            let code = Arc::clone(&code);
            std::future::ready(Ok::<_, Failure>(Done::within(move |transaction| {
                code(call.event(), transaction)
            })))
        })
    }

    /// `provider:type` patterns of the events it gets, as in the configuration: `stripe:invoice.*`, `github:*`, `*`.
    #[must_use]
    pub fn events<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.events = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// Code for a transaction of the store, at every start and in `cerca migrate`, before the first event is taken in or
    /// handled: for the tables that the handler writes to. It is left out where migrations are (`--no-migrate`). On SQLite
    /// it may take 5 s at most.
    #[must_use]
    pub fn setup(mut self, code: impl Fn(&mut Transaction) -> Result<(), Failure> + Send + Sync + 'static) -> Self {
        self.action.setup = Some(Arc::new(move |transaction| {
            code(transaction).map_err(|failure| failure.to_string())
        }));
        self
    }

    /// How often and when a failed attempt is made again. Without this: 15 attempts over about four hours and a half.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.policy.retry = Some(policy);
        self
    }

    /// Deliveries in flight at once, at most. Without this: 16.
    #[must_use]
    pub fn concurrency(mut self, most: usize) -> Self {
        self.policy.concurrency = Some(most);
        self
    }

    /// How long one attempt may take. Without this: 30 s.
    #[must_use]
    pub fn timeout(mut self, longest: Duration) -> Self {
        self.policy.timeout = Some(longest);
        self
    }

    /// Puts handlers where the configuration names them, or adds them to it.
    ///
    /// # Errors
    /// Says what does not fit together.
    pub(crate) fn attach(natives: &[Self], specs: &mut Vec<HandlerSpec>) -> Result<(), String> {
        for native in natives {
            let name = &native.name;
            let known = specs.iter_mut().find(|spec| spec.name == *name);
            match (known, native.is_routed()) {
                (Some(spec), _) if spec.native.is_some() => {
                    return Err(format!(
                        "two native handlers are called `{name}`; each needs its own name"
                    ));
                }
                (Some(spec), false) if spec.kind == Kind::Native => spec.native = Some(native.action.clone()),
                (Some(spec), false) => {
                    return Err(format!(
                        "the native handler `{name}` is kind = \"{}\" in the configuration; write kind = \"native\"",
                        spec.kind.as_str()
                    ));
                }
                (Some(_), true) => {
                    return Err(format!(
                        "the handler `{name}` is set up in code and in the configuration; take one of the two away"
                    ));
                }
                (None, true) => specs.push(native.spec()),
                (None, false) => {
                    return Err(format!(
                        "the native handler `{name}` gets no events: call `events` on it, or add a [[handler]] with \
                         name = \"{name}\" and kind = \"native\" to the configuration"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether anything was said about it in code.
    fn is_routed(&self) -> bool {
        let Policy {
            retry,
            concurrency,
            timeout,
        } = self.policy;
        !self.events.is_empty() || retry.is_some() || concurrency.is_some() || timeout.is_some()
    }

    fn spec(&self) -> HandlerSpec {
        let mut spec = HandlerSpec::new(&self.name, Kind::Native, self.events.clone());
        spec.native = Some(self.action.clone());
        if let Some(policy) = self.policy.retry {
            spec.retry = RetrySpec {
                attempts: policy.attempts,
                base: policy.base,
                cap: policy.cap,
            };
        }
        spec.concurrency = self.policy.concurrency.unwrap_or(spec.concurrency);
        spec.timeout = self.policy.timeout.unwrap_or(spec.timeout);
        spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(name: &str) -> Native {
        Native::new(name, async |_: Call| Ok(()))
    }

    fn configured(text: &str) -> Vec<HandlerSpec> {
        #[derive(serde::Deserialize)]
        struct File {
            handler: Vec<HandlerSpec>,
        }
        toml::from_str::<File>(text).unwrap().handler
    }

    #[test]
    fn handlers_are_put_where_the_configuration_names_them_or_added() {
        let mut specs = configured("[[handler]]\nname = \"a\"\nkind = \"native\"\nevents = [\"x:*\"]\nconcurrency = 3");
        let natives = [native("a"), native("b").events(["y:*"]).timeout(Duration::from_secs(1))];
        Native::attach(&natives, &mut specs).unwrap();
        assert!(specs.iter().all(|spec| spec.native.is_some()));
        assert_eq!((specs[0].concurrency, &*specs[0].events[0]), (3, "x:*"));
        assert_eq!(
            (specs[1].timeout, &*specs[1].events[0]),
            (Duration::from_secs(1), "y:*")
        );
    }

    #[test]
    fn what_does_not_fit_together_is_explained() {
        let file = "[[handler]]\nname = \"a\"\nkind = \"log\"\nevents = [\"*\"]";
        for (natives, expected) in [
            (vec![native("a")], "write kind = \"native\""),
            (vec![native("a").events(["*"])], "in code and in the configuration"),
            (vec![native("b")], "gets no events"),
            (
                vec![native("b").events(["*"]), native("b").events(["*"])],
                "two native handlers",
            ),
        ] {
            let error = Native::attach(&natives, &mut configured(file)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_kind_of_a_failure_survives_the_store() {
        let done = Done::within(|_| Err(Failure::GiveUp("never".into())));
        let (work, last) = done.into_work().unwrap();
        let text = work(&mut Transaction::nowhere()).unwrap_err();
        assert_eq!(last.take(text), Failure::GiveUp("never".into()));
        assert_eq!(last.take("a deadlock".into()), Failure::Retry("a deadlock".into()));
        assert!(Done::from(()).into_work().is_none());
    }
}

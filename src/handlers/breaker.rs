//! A circuit breaker for each destination: a target that does not answer is left alone for a while, and its deliveries wait
//! without using attempts up. Each process has its own view of a destination, which all its handlers share.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::BreakerSpec;

/// How long others wait while one attempt looks whether the destination is back, at most.
const LOOKING: Duration = Duration::from_secs(1);

/// The breakers of a configuration, by destination.
#[derive(Default)]
pub(super) struct Breakers(BTreeMap<String, Arc<Breaker>>);

impl Breakers {
    /// The breaker of `host:port`.
    ///
    /// # Errors
    /// Another handler of that destination has other settings.
    pub(super) fn of(&mut self, destination: String, spec: BreakerSpec) -> Result<Arc<Breaker>, String> {
        match self.0.entry(destination) {
            Entry::Occupied(known) if known.get().spec != spec => Err(format!(
                "`breaker` is one for all handlers of {}, and another handler of it has other settings",
                known.key()
            )),
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(free) => {
                let breaker = Arc::new(Breaker::new(free.key().clone(), spec));
                Ok(free.insert(breaker).clone())
            }
        }
    }
}

pub(super) struct Breaker {
    destination: String,
    spec: BreakerSpec,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
enum State {
    /// Attempts flow; so many in a row had no answer.
    Closed { failures: u32 },
    /// None is made until then.
    Open { until: Instant },
    /// One is under way, to see whether the destination is back.
    HalfOpen,
}

impl Breaker {
    fn new(destination: String, spec: BreakerSpec) -> Self {
        Self {
            destination,
            spec,
            state: Mutex::new(State::Closed { failures: 0 }),
        }
    }

    /// The right to make one attempt. An attempt that ends without [`Pass::answered`] had no answer.
    ///
    /// # Errors
    /// Not now: how long to wait.
    pub(super) fn pass(self: &Arc<Self>) -> Result<Pass, Duration> {
        let mut state = self.state();
        match *state {
            State::Closed { .. } => {}
            State::HalfOpen => return Err(self.spec.pause.min(LOOKING)),
            State::Open { until } => {
                let left = until.saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    return Err(left);
                }
                self.change(&mut state, State::HalfOpen);
            }
        }
        Ok(Pass {
            breaker: self.clone(),
            is_answered: false,
        })
    }

    /// How many attempts it would let through now.
    pub(super) fn room(&self) -> usize {
        match *self.state() {
            State::Closed { .. } => usize::MAX,
            State::HalfOpen => 0,
            State::Open { until } => usize::from(until <= Instant::now()),
        }
    }

    pub(super) fn destination(&self) -> &str {
        &self.destination
    }

    fn settle(&self, is_answered: bool) {
        let mut state = self.state();
        let next = match (*state, is_answered) {
            (State::Closed { .. } | State::HalfOpen, true) => State::Closed { failures: 0 },
            (State::Closed { failures }, false) => match failures.saturating_add(1) {
                failures if failures < self.spec.failures || self.spec.failures == 0 => State::Closed { failures },
                _ => self.opened(),
            },
            (State::HalfOpen, false) => self.opened(),
            // One that was sent before it opened says nothing new, unless that the destination is there.
            (State::Open { .. }, true) => State::Closed { failures: 0 },
            (open @ State::Open { .. }, false) => open,
        };
        self.change(&mut state, next);
    }

    fn opened(&self) -> State {
        State::Open {
            until: Instant::now() + self.spec.pause,
        }
    }

    fn change(&self, state: &mut State, next: State) {
        let number = |state: &State| match state {
            State::Closed { .. } => 0_u8,
            State::HalfOpen => 1,
            State::Open { .. } => 2,
        };
        let (before, after) = (number(state), number(&next));
        *state = next;
        if before == after {
            return;
        }
        metrics::gauge!("cerca_breaker_state", "destination" => self.destination.clone()).set(f64::from(after));
        match after {
            2 => tracing::warn!(
                destination = %self.destination,
                pause_seconds = self.spec.pause.as_secs_f64(),
                "a destination does not answer and is left alone for a while"
            ),
            0 => tracing::info!(destination = %self.destination, "a destination answers again"),
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One attempt on its way.
pub(super) struct Pass {
    breaker: Arc<Breaker>,
    is_answered: bool,
}

impl Pass {
    /// The destination is there.
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }
}

/// Also where the attempt was dropped at its timeout.
impl Drop for Pass {
    fn drop(&mut self) {
        self.breaker.settle(self.is_answered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker(failures: u32) -> Arc<Breaker> {
        let pause = Duration::from_secs(10);
        let spec = BreakerSpec { failures, pause };
        Breakers::default().of("example.com:443".into(), spec).unwrap()
    }

    fn wait(breaker: &Arc<Breaker>) -> Option<u64> {
        breaker.pass().err().map(|left| left.as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_open_it_and_one_attempt_looks_again() {
        let breaker = breaker(3);
        for _ in 0..2 {
            drop(breaker.pass().unwrap());
        }
        breaker.pass().unwrap().answered();
        for _ in 0..3 {
            assert_eq!(breaker.room(), usize::MAX);
            drop(breaker.pass().unwrap());
        }
        assert_eq!((breaker.room(), wait(&breaker)), (0, Some(10)));

        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(breaker.room(), 1);
        let look = breaker.pass().unwrap();
        assert_eq!((breaker.room(), wait(&breaker)), (0, Some(1)), "only one looks");
        drop(look);
        assert_eq!(wait(&breaker), Some(10), "it is open again");

        tokio::time::advance(Duration::from_secs(10)).await;
        breaker.pass().unwrap().answered();
        assert_eq!(breaker.room(), usize::MAX);
        for _ in 0..2 {
            drop(breaker.pass().unwrap());
        }
        assert_eq!(wait(&breaker), None, "it counts from the beginning");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_it_never_opens() {
        let breaker = breaker(0);
        for _ in 0..100 {
            drop(breaker.pass().unwrap());
        }
        assert_eq!(breaker.room(), usize::MAX);
    }

    #[test]
    fn a_destination_has_one_breaker_with_one_setting() {
        let mut breakers = Breakers::default();
        let spec = BreakerSpec::default();
        let first = breakers.of("a:1".into(), spec).unwrap();
        assert!(Arc::ptr_eq(&first, &breakers.of("a:1".into(), spec).unwrap()));
        assert!(!Arc::ptr_eq(&first, &breakers.of("a:2".into(), spec).unwrap()));
        let error = breakers
            .of("a:1".into(), BreakerSpec { failures: 1, ..spec })
            .err()
            .unwrap();
        assert!(error.starts_with("`breaker` is one for all handlers of a:1"), "{error}");
    }
}

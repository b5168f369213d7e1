//! A circuit breaker for each address of a handler: a target that does not answer is left alone for a while, and its
//! deliveries wait without using attempts up. Handlers share none, although they may have a host in common: one path that
//! hangs says nothing of the others, and a host that is gone costs each handler a few attempts. Each process has its own view.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{BreakerSpec, BreakerState};

/// How long others wait while one attempt looks whether the target is back, at most.
const LOOKING: Duration = Duration::from_secs(1);

pub(super) struct Breaker {
    handler: String,
    /// `host:port`, for people. The whole URL may hold a secret.
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
    /// One is under way, to see whether the target is back. Where it takes long, another may look from `next` on: what
    /// hangs may be its event's fault.
    HalfOpen { next: Instant },
}

impl Breaker {
    pub(super) fn new(handler: &str, destination: String, spec: BreakerSpec) -> Arc<Self> {
        Arc::new(Self {
            handler: handler.to_owned(),
            destination,
            spec,
            state: Mutex::new(State::Closed { failures: 0 }),
        })
    }

    /// The right to make one attempt. An attempt that ends without [`Pass::answered`] had no answer.
    ///
    /// # Errors
    /// Not now: how long to wait.
    pub(super) fn pass(self: &Arc<Self>) -> Result<Pass, Duration> {
        let mut state = self.state();
        let (until, longest) = match *state {
            State::Closed { .. } => return Ok(self.admitted()),
            State::Open { until } => (until, Duration::MAX),
            State::HalfOpen { next } => (next, LOOKING),
        };
        let now = Instant::now();
        let left = until.saturating_duration_since(now);
        if !left.is_zero() {
            return Err(left.min(longest));
        }
        *state = State::HalfOpen {
            next: now + self.spec.pause,
        };
        Ok(self.admitted())
    }

    fn admitted(self: &Arc<Self>) -> Pass {
        Pass {
            breaker: self.clone(),
            is_answered: false,
        }
    }

    /// How many attempts it would let through now.
    pub(super) fn room(&self) -> usize {
        match *self.state() {
            State::Closed { .. } => usize::MAX,
            State::Open { until } | State::HalfOpen { next: until } => usize::from(until <= Instant::now()),
        }
    }

    pub(super) fn destination(&self) -> &str {
        &self.destination
    }

    /// How it stands, for people; `None` where it is switched off.
    pub(super) fn shown(&self) -> Option<BreakerState> {
        (self.spec.failures > 0).then(|| match *self.state() {
            State::Closed { .. } => BreakerState::Closed,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
            State::Open { .. } => BreakerState::Open,
        })
    }

    fn settle(&self, is_answered: bool) {
        let mut state = self.state();
        let was_closed = matches!(*state, State::Closed { .. });
        *state = match (*state, is_answered) {
            // Also by one that was sent before it opened: the target is there.
            (_, true) => State::Closed { failures: 0 },
            (State::Closed { failures }, false) => match failures.saturating_add(1) {
                failures if failures < self.spec.failures || self.spec.failures == 0 => State::Closed { failures },
                _ => self.opened(),
            },
            (State::HalfOpen { .. }, false) => self.opened(),
            (open @ State::Open { .. }, false) => open,
        };
        match (was_closed, matches!(*state, State::Closed { .. })) {
            (true, false) => tracing::warn!(
                handler.name = self.handler,
                destination = %self.destination,
                pause_seconds = self.spec.pause.as_secs_f64(),
                "a target does not answer and is left alone for a while"
            ),
            (false, true) => tracing::info!(
                handler.name = self.handler, destination = %self.destination, "a target answers again"
            ),
            _ => {}
        }
    }

    fn opened(&self) -> State {
        State::Open {
            until: Instant::now() + self.spec.pause,
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
    /// The target is there.
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
        Breaker::new("h", "example.com:443".into(), spec)
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
        assert_eq!((breaker.room(), breaker.shown()), (usize::MAX, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_takes_long_does_not_keep_others_from_looking() {
        let breaker = breaker(1);
        assert_eq!(breaker.shown(), Some(BreakerState::Closed));
        drop(breaker.pass().unwrap());
        assert_eq!(breaker.shown(), Some(BreakerState::Open));
        tokio::time::advance(Duration::from_secs(10)).await;
        let hangs = breaker.pass().unwrap();
        assert_eq!(breaker.shown(), Some(BreakerState::HalfOpen));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!((breaker.room(), wait(&breaker)), (0, Some(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(breaker.room(), 1);
        breaker.pass().unwrap().answered();
        assert_eq!(
            breaker.shown(),
            Some(BreakerState::Closed),
            "the second look found it there"
        );
        let many: Vec<Pass> = (0..20).map(|_| breaker.pass().unwrap()).collect();
        drop(hangs);
        assert_eq!(breaker.room(), 0, "one failure in a row opens this one again");
        many.into_iter().for_each(Pass::answered);
        assert_eq!(breaker.room(), usize::MAX);
    }
}

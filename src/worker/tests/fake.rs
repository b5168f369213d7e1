//! A work list in memory, with the clock of the runtime, which tests may pause.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::time::Instant;

use crate::{
    domain::{Claim, NewEvent, Outcome, Settle, StoredEvent},
    handlers::testing,
    store::*,
};

#[derive(Default)]
pub(super) struct Fake {
    rows: Mutex<Vec<Row>>,
    settled: Mutex<Vec<Settle>>,
    pub(super) away: AtomicBool,
    /// What `apply` answers; done when there is nothing.
    pub(super) applied: Mutex<Option<Result<Applied, StoreError>>>,
    pub(super) claims: AtomicUsize,
    /// Those of them that were fair.
    pub(super) fair: AtomicUsize,
    pub(super) renewals: AtomicUsize,
    pub(super) flushes: AtomicUsize,
    tokens: AtomicUsize,
    pub(super) steps: Mutex<Vec<Step>>,
}

#[derive(Clone)]
pub(super) struct Row {
    event: Arc<StoredEvent>,
    pub(super) handler: Arc<str>,
    run_at: Instant,
    pub(super) attempts: u32,
    token: Option<i64>,
    lease_until: Instant,
    pub(super) dead: bool,
    /// Its last lease was lost.
    pub(super) is_suspect: bool,
}

impl Row {
    fn is(&self, event_id: i64, handler: &str, token: i64) -> bool {
        self.event.id == event_id && *self.handler == *handler && self.token == Some(token)
    }
}

impl Fake {
    /// Adds deliveries that are due.
    pub(super) fn add(&self, handler: &str, ids: impl IntoIterator<Item = usize>) {
        let rows = ids.into_iter().map(|id| self.row(handler, id));
        self.rows().extend(rows.collect::<Vec<_>>());
    }

    /// Adds deliveries that are due and whose last lease was lost.
    pub(super) fn add_suspects(&self, handler: &str, ids: impl IntoIterator<Item = usize>) {
        let rows = ids.into_iter().map(|id| Row {
            is_suspect: true,
            ..self.row(handler, id)
        });
        self.rows().extend(rows.collect::<Vec<_>>());
    }

    pub(super) fn suspects(&self) -> usize {
        self.rows().iter().filter(|row| row.is_suspect).count()
    }

    /// Adds deliveries that are claimed already, to be handed over.
    pub(super) fn add_claimed(
        &self,
        handler: &str,
        ids: impl IntoIterator<Item = usize>,
        lease: Duration,
    ) -> Vec<Claim> {
        let mut rows: Vec<Row> = ids.into_iter().map(|id| self.row(handler, id)).collect();
        let token = self.token();
        let claims = rows.iter_mut().map(|row| Self::claim_row(row, token, lease)).collect();
        self.rows().extend(rows);
        claims
    }

    fn row(&self, handler: &str, id: usize) -> Row {
        let event = testing::claim(&format!("evt_{id}"), "{\"id\":1}").event;
        let mut event = Arc::unwrap_or_clone(event);
        event.id = i64::try_from(id).unwrap();
        Row {
            event: Arc::new(event),
            handler: handler.into(),
            run_at: Instant::now(),
            attempts: 0,
            token: None,
            lease_until: Instant::now(),
            dead: false,
            is_suspect: false,
        }
    }

    /// One for all claims of a batch, as the real stores do.
    fn token(&self) -> i64 {
        i64::try_from(self.tokens.fetch_add(1, SeqCst)).unwrap()
    }

    fn claim_row(row: &mut Row, token: i64, lease: Duration) -> Claim {
        row.token = Some(token);
        row.lease_until = Instant::now() + lease;
        row.attempts += 1;
        Claim {
            event: row.event.clone(),
            handler: row.handler.clone(),
            attempt: row.attempts,
            token,
        }
    }

    /// Takes every claim of a handler away, as a sweep by another replica would.
    pub(super) fn steal_all(&self, handler: &str) {
        for row in self.rows().iter_mut().filter(|row| *row.handler == *handler) {
            row.token = None;
            row.run_at = Instant::now() + Duration::from_secs(100_000);
        }
    }

    /// Deliveries that are not done.
    pub(super) fn left(&self) -> Vec<Row> {
        self.rows().clone()
    }

    pub(super) fn claimed(&self) -> usize {
        self.rows().iter().filter(|row| row.token.is_some()).count()
    }

    pub(super) fn settled(&self) -> Vec<Settle> {
        self.settled.lock().unwrap().clone()
    }

    pub(super) fn outcomes(&self) -> Vec<Outcome> {
        self.settled().into_iter().map(|settle| settle.outcome).collect()
    }

    fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        self.rows.lock().unwrap()
    }

    fn holds(&self, claim: &Lease) -> bool {
        let mut rows = self.rows.lock().unwrap();
        rows.iter_mut()
            .any(|row| row.is(claim.event_id, &claim.handler, claim.token))
    }

    fn here(&self) -> Result<(), StoreError> {
        match self.away.load(SeqCst) {
            true => Err(StoreError::Unavailable("away".into())),
            false => Ok(()),
        }
    }

    fn claim_now(&self, request: &ClaimRequest) -> Result<Vec<Claim>, StoreError> {
        self.claims.fetch_add(1, SeqCst);
        self.fair.fetch_add(usize::from(request.fair), SeqCst);
        self.here()?;
        let (mut claims, token) = (Vec::new(), self.token());
        for (handler, want) in &request.wants {
            let mut rows = self.rows();
            let due = rows.iter_mut().filter(|r| {
                r.handler == *handler && !r.dead && !r.is_suspect && r.token.is_none() && r.run_at <= Instant::now()
            });
            claims.extend(
                due.take(*want as usize)
                    .map(|row| Self::claim_row(row, token, request.lease)),
            );
        }
        Ok(claims)
    }

    fn settle_now(&self, settle: Settle) {
        let mut rows = self.rows();
        let Some(at) = rows
            .iter()
            .position(|row| row.is(settle.event_id, &settle.handler, settle.token))
        else {
            return;
        };
        let row = &mut rows[at];
        row.token = None;
        row.is_suspect &= matches!(settle.outcome, Outcome::Released | Outcome::Postponed { .. });
        match &settle.outcome {
            Outcome::Done | Outcome::DoneEarlier { .. } | Outcome::Filtered { .. } => drop(rows.remove(at)),
            Outcome::Retry { after, .. } | Outcome::Unknown { after: Some(after), .. } => {
                row.run_at = Instant::now() + *after;
            }
            Outcome::Dead { .. } | Outcome::Unknown { after: None, .. } => row.dead = true,
            Outcome::Postponed { after, .. } => {
                row.run_at = Instant::now() + *after;
                row.attempts -= 1;
            }
            Outcome::Released => row.attempts -= 1,
        }
        drop(rows);
        self.settled.lock().unwrap().push(settle);
    }
}

impl Queue for Fake {
    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Vec<Claim>> {
        async move { self.claim_now(&request) }.boxed()
    }

    fn claim_suspect(&self, handlers: Vec<Arc<str>>, lease: Duration) -> StoreFuture<'_, Option<Claim>> {
        async move {
            self.here()?;
            let (mut rows, token) = (self.rows(), self.token());
            let due = |r: &&mut Row| {
                r.is_suspect
                    && !r.dead
                    && r.token.is_none()
                    && r.run_at <= Instant::now()
                    && handlers.contains(&r.handler)
            };
            Ok(rows.iter_mut().find(due).map(|row| Self::claim_row(row, token, lease)))
        }
        .boxed()
    }

    fn settle(&self, settle: Settle) -> BoxFuture<'_, ()> {
        async move { self.settle_now(settle) }.boxed()
    }

    fn settle_each(&self, _: Vec<Settle>) -> StoreFuture<'_, Vec<Settled>> {
        unimplemented!("the worker does not wait for a settle")
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        self.flushes.fetch_add(1, SeqCst);
        async move { self.here() }.boxed()
    }

    fn apply(&self, effect: Effect) -> StoreFuture<'_, Applied> {
        async move {
            let answer = self.applied.lock().unwrap().clone().unwrap_or(Ok(Applied::Done));
            if matches!(answer, Ok(Applied::Done)) {
                let claim = &effect.claim;
                self.rows()
                    .retain(|row| !row.is(claim.event.id, &claim.handler, claim.token));
            }
            answer
        }
        .boxed()
    }

    fn renew(&self, leases: Vec<Lease>, lease: Duration) -> StoreFuture<'_, Vec<bool>> {
        async move {
            self.here()?;
            self.renewals.fetch_add(1, SeqCst);
            let mut rows = self.rows();
            let mut renew = |claim: Lease| {
                let row = rows
                    .iter_mut()
                    .find(|row| row.is(claim.event_id, &claim.handler, claim.token));
                row.map(|row| row.lease_until = Instant::now() + lease).is_some()
            };
            Ok(leases.into_iter().map(&mut renew).collect())
        }
        .boxed()
    }

    fn sweep(&self, _: Vec<AttemptLimit>) -> StoreFuture<'_, Swept> {
        async move {
            self.here()?;
            let mut swept = Swept::default();
            for row in self.rows().iter_mut() {
                if row.token.is_some() && row.lease_until < Instant::now() {
                    row.token = None;
                    row.is_suspect = true;
                    swept.ready += 1;
                }
            }
            Ok(swept)
        }
        .boxed()
    }
}

impl Inbox for Fake {
    fn accept(&self, _: Vec<NewEvent>) -> StoreFuture<'static, Vec<Accepted>> {
        unimplemented!("the worker takes nothing in")
    }

    fn revive<'a>(&'a self, _: &'a str, _: &'a str, _: Who) -> StoreFuture<'a, u64> {
        unimplemented!("the worker takes nothing in")
    }

    fn set_handoff(&self, _: Arc<dyn Handoff>) {}
}

impl Store for Fake {}

impl Native for Fake {
    fn steps(&self, claim: Lease) -> StoreFuture<'_, Option<Vec<Step>>> {
        let held = self.holds(&claim);
        let steps = self.steps.lock().unwrap().clone();
        async move {
            self.here()?;
            Ok(held.then_some(steps))
        }
        .boxed()
    }

    fn record(&self, step: NewStep) -> StoreFuture<'_, bool> {
        async move {
            self.here()?;
            let held = self.holds(&step.claim);
            if held {
                self.steps.lock().unwrap().push(Step {
                    handler: step.claim.handler.to_string(),
                    name: step.name,
                    attempt: step.attempt,
                    recorded_at: jiff::Timestamp::now(),
                    result: step.result,
                });
            }
            Ok(held)
        }
        .boxed()
    }

    fn transact(&self, _: InTransaction, _: Duration) -> StoreFuture<'static, ()> {
        unimplemented!()
    }
}

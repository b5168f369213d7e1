//! The steps of native handlers: a task with a connection of its own, which reads and writes what is waiting in one
//! statement each.

use std::{collections::HashMap, sync::Arc};

use sqlx::{PgConnection, PgPool, postgres::PgBindIterExt as _};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{
    super::{Lease, NewStep, Step, StoreError, StoreFuture},
    actor::Closing,
    connect::Link,
    time,
};

/// Messages in one round, at most.
const BATCH: usize = 256;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

enum Message {
    List(Lease, Reply<Option<Vec<Step>>>),
    Record(NewStep, Reply<bool>),
}

/// Where steps are asked for.
pub(super) struct Steps(mpsc::UnboundedSender<Message>);

impl Steps {
    pub(super) fn start(link: Link, closing: &Closing) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        closing.tasks.spawn(run(receiver, link, closing.clone()));
        Self(sender)
    }

    pub(super) fn list(&self, claim: Lease) -> StoreFuture<'static, Option<Vec<Step>>> {
        self.ask(|reply| Message::List(claim, reply))
    }

    pub(super) fn record(&self, step: NewStep) -> StoreFuture<'static, bool> {
        self.ask(|reply| Message::Record(step, reply))
    }

    fn ask<T: Send + 'static>(&self, message: impl FnOnce(Reply<T>) -> Message) -> StoreFuture<'static, T> {
        let (reply, answer) = oneshot::channel();
        let sent = self.0.send(message(reply));
        Box::pin(async move {
            sent.map_err(|_| StoreError::Closed)?;
            answer.await.unwrap_or(Err(StoreError::Closed))
        })
    }
}

async fn run(mut queue: mpsc::UnboundedReceiver<Message>, mut link: Link, closing: Closing) {
    while let Some(first) = closing.next(&mut queue).await {
        let (mut lists, mut records) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::List(claim, reply) => lists.push((claim, reply)),
                Message::Record(step, reply) => records.push((step, reply)),
            }
            next = (lists.len() + records.len() < BATCH)
                .then(|| queue.try_recv().ok())
                .flatten();
        }
        answer_records(&mut link, records).await;
        answer_lists(&mut link, lists).await;
    }
}

async fn answer_records(link: &mut Link, asked: Vec<(NewStep, Reply<bool>)>) {
    let (steps, replies): (Vec<NewStep>, Vec<_>) = asked.into_iter().unzip();
    if steps.is_empty() {
        return;
    }
    match on(link, async |db| record(db, &steps).await).await {
        Ok(held) => {
            for (n, reply) in (1..).zip(replies) {
                let _ = reply.send(Ok(held.contains(&n)));
            }
        }
        Err(error) => refuse(replies, &error),
    }
}

async fn answer_lists(link: &mut Link, asked: Vec<(Lease, Reply<Option<Vec<Step>>>)>) {
    let (claims, replies): (Vec<Lease>, Vec<_>) = asked.into_iter().unzip();
    if claims.is_empty() {
        return;
    }
    match on(link, async |db| list(db, &claims).await).await {
        Ok(mut found) => {
            for (n, reply) in (1..).zip(replies) {
                let _ = reply.send(Ok(found.remove(&n)));
            }
        }
        Err(error) => refuse(replies, &error),
    }
}

fn refuse<T>(replies: Vec<Reply<T>>, error: &StoreError) {
    for reply in replies {
        let _ = reply.send(Err(error.clone()));
    }
}

async fn on<T>(link: &mut Link, work: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>) -> Result<T, StoreError> {
    let limit = link.limit();
    let db = link.get().await.map_err(|failed| failed.error)?;
    let result = timeout(limit, work(db)).await;
    link.end(result).map_err(|failed| failed.error)
}

/// Keeps the steps whose claims hold; gives the numbers of these, from 1. The lock keeps a claim from ending meanwhile.
async fn record(db: &mut PgConnection, steps: &[NewStep]) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar(
        "WITH held AS MATERIALIZED (
             SELECT a.* FROM (
                 SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::int4[], $6::text[])
                     WITH ORDINALITY AS a (event_id, handler, token, step, attempt, result, n)
                 ORDER BY event_id, handler
             ) a
             CROSS JOIN LATERAL (
                 SELECT 1 FROM deliveries
                 WHERE event_id = a.event_id AND handler = a.handler AND lease_token = a.token LIMIT 1 FOR SHARE
             ) d
         ),
         recorded AS (
             INSERT INTO steps (event_id, handler, step, attempt, result)
             SELECT event_id, handler, step, attempt, result FROM held
             ON CONFLICT DO NOTHING
         )
         SELECT n FROM held",
    )
    .bind(steps.iter().map(|s| s.claim.event_id).bind_iter())
    .bind(steps.iter().map(|s| &*s.claim.handler).bind_iter())
    .bind(steps.iter().map(|s| s.claim.token).bind_iter())
    .bind(steps.iter().map(|s| s.name.as_str()).bind_iter())
    .bind(
        steps
            .iter()
            .map(|s| i32::try_from(s.attempt).unwrap_or(i32::MAX))
            .bind_iter(),
    )
    .bind(steps.iter().map(|s| s.result.as_str()).bind_iter())
    .fetch_all(db)
    .await
}

type Found = (i64, Option<String>, Option<i32>, Option<time::Instant>, Option<String>);

/// The steps of the deliveries whose claims hold, by number, from 1.
async fn list(db: &mut PgConnection, claims: &[Lease]) -> sqlx::Result<HashMap<i64, Vec<Step>>> {
    let rows: Vec<Found> = sqlx::query_as(
        "SELECT a.n, s.step, s.attempt, s.recorded_at, s.result
         FROM unnest($1::bigint[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a (event_id, handler, token, n)
         CROSS JOIN LATERAL (
             SELECT 1 FROM deliveries
             WHERE event_id = a.event_id AND handler = a.handler AND lease_token = a.token LIMIT 1
         ) d
         LEFT JOIN LATERAL (
             SELECT step, attempt, recorded_at, result FROM steps WHERE event_id = a.event_id AND handler = a.handler
         ) s ON true
         ORDER BY s.recorded_at, s.step",
    )
    .bind(claims.iter().map(|c| c.event_id).bind_iter())
    .bind(claims.iter().map(|c| &*c.handler).bind_iter())
    .bind(claims.iter().map(|c| c.token).bind_iter())
    .fetch_all(db)
    .await?;
    let mut found: HashMap<i64, Vec<Step>> = HashMap::new();
    for (n, name, attempt, recorded_at, result) in rows {
        let steps = found.entry(n).or_default();
        let claim = usize::try_from(n - 1).ok().and_then(|at| claims.get(at));
        if let (Some(claim), Some(name), Some(attempt), Some(at), Some(result)) =
            (claim, name, attempt, recorded_at, result)
        {
            steps.push(step(
                Arc::clone(&claim.handler).to_string(),
                (name, attempt, at, result),
            ));
        }
    }
    Ok(found)
}

/// Forgets what was done of deliveries that are about to be given a new life: all handlers, or those that are named.
pub(super) async fn forget(db: &mut PgConnection, ids: &[i64], handlers: Option<&[String]>) -> sqlx::Result<()> {
    sqlx::query(
        "DELETE FROM steps s WHERE event_id = ANY ($1) AND ($2::text[] IS NULL OR handler = ANY ($2))
         AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = s.event_id AND d.handler = s.handler
                         AND d.state IN ('ready', 'claimed', 'blocked'))
         AND ($2::text[] IS NOT NULL
              OR EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = s.event_id AND d.handler = s.handler
                         AND d.state IN ('dead', 'discarded'))
              OR NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = s.event_id
                             AND d.state IN ('dead', 'discarded')))",
    )
    .bind(ids)
    .bind(handlers)
    .execute(db)
    .await?;
    Ok(())
}

/// The steps of all handlers of an event, for people.
pub(super) async fn of_event(db: &PgPool, event_id: i64) -> sqlx::Result<Vec<Step>> {
    let rows: Vec<(String, String, i32, time::Instant, String)> = sqlx::query_as(
        "SELECT handler, step, attempt, recorded_at, result FROM steps WHERE event_id = $1
         ORDER BY recorded_at, handler, step",
    )
    .bind(event_id)
    .fetch_all(db)
    .await?;
    let steps = rows
        .into_iter()
        .map(|(handler, name, attempt, at, result)| step(handler, (name, attempt, at, result)));
    Ok(steps.collect())
}

fn step(handler: String, (name, attempt, at, result): (String, i32, time::Instant, String)) -> Step {
    Step {
        handler,
        name,
        attempt: attempt.unsigned_abs(),
        recorded_at: at.0,
        result,
    }
}

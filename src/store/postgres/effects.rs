//! Runs the statements of sql handlers in the transaction that settles their deliveries: exactly once.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use jiff::Timestamp;
use sqlx::Arguments as _;
use sqlx::{
    AssertSqlSafe, Connection as _, Either, Executor as _, PgConnection, SqlSafeStr as _, Statement as _,
    postgres::{PgArguments, PgBindIterExt as _, PgTypeInfo},
};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::timeout,
};

use super::{
    super::{Applied, Effect, StoreError, statement::refuse_control},
    actor::Closing,
    connect::{Fault, Link, fault},
    time, values,
};

/// Effects in one transaction, at most: a slow statement holds up those beside it.
const BATCH: usize = 64;

/// Tries of an effect that met a deadlock.
const TRIES: u32 = 3;

pub(super) struct Waiting {
    pub(super) effect: Effect,
    pub(super) reply: oneshot::Sender<Result<Applied, StoreError>>,
}

/// One of the tasks that take turns at the queue.
pub(super) struct Applier {
    pub(super) queue: Arc<Mutex<mpsc::UnboundedReceiver<Waiting>>>,
    pub(super) link: Link,
    pub(super) closing: Closing,
}

impl Applier {
    pub(super) async fn run(mut self) {
        while let Some(waiting) = self.gather().await {
            let effects: Vec<&Effect> = waiting.iter().map(|w| &w.effect).collect();
            let results = match self.apply(&effects).await {
                Ok(results) => results.into_iter().map(Ok).collect(),
                // A deadlock of one ends the transaction of all: each by itself.
                Err((Fault::Again, _)) => self.one_by_one(&effects).await,
                Err((_, error)) => vec![Err(error); effects.len()],
            };
            for (waiting, result) in waiting.into_iter().zip(results) {
                let _ = waiting.reply.send(result);
            }
        }
    }

    async fn gather(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue.lock().await;
        let mut waiting = vec![self.closing.next(&mut queue).await?];
        while waiting.len() < BATCH {
            let Ok(next) = queue.try_recv() else { break };
            waiting.push(next);
        }
        Some(waiting)
    }

    async fn one_by_one(&mut self, effects: &[&Effect]) -> Vec<Result<Applied, StoreError>> {
        let mut results = Vec::with_capacity(effects.len());
        for effect in effects {
            let mut result = Ok(Applied::Failed("a deadlock, again and again".to_owned()));
            for _ in 0..TRIES {
                match self.apply(&[*effect]).await {
                    Ok(mut applied) => result = Ok(applied.pop().unwrap_or(Applied::Stale)),
                    Err((Fault::Again, _)) => continue,
                    Err((_, error)) => result = Err(error),
                }
                break;
            }
            results.push(result);
        }
        results
    }

    /// One transaction. An error leaves nothing behind, or its outcome is unknown; in both cases the fence keeps the
    /// effect from happening twice.
    async fn apply(&mut self, effects: &[&Effect]) -> Result<Vec<Applied>, (Fault, StoreError)> {
        // Each statement has its own limit at the server; the whole is bounded by their sum.
        let count = u32::try_from(effects.len()).unwrap_or(u32::MAX);
        let limit = self.link.limit().saturating_mul(count.saturating_add(1));
        let db = self.link.get().await.map_err(|failed| (failed.fault, failed.error))?;
        let result = timeout(limit, transaction(db, effects)).await;
        let result = self.link.end(result);
        result.map_err(|failed| {
            // The rest of a broken transaction is ended with its connection; this is the rare path.
            self.link.cut();
            (failed.fault, failed.error)
        })
    }
}

async fn transaction(db: &mut PgConnection, effects: &[&Effect]) -> sqlx::Result<Vec<Applied>> {
    let mut tx = db.begin().await?;
    let held = fence(&mut tx, effects).await?;
    let mut seen = HashSet::new();
    let mut results = Vec::with_capacity(effects.len());
    let mut types: HashMap<Arc<str>, Vec<PgTypeInfo>> = HashMap::new();
    let mut took = Vec::new();
    for effect in effects {
        let key = (effect.claim.event.id, &*effect.claim.handler);
        if !held.contains(&(key.0, key.1.to_owned())) || !seen.insert(key) {
            results.push(Applied::Stale);
            continue;
        }
        let applied = in_savepoint(&mut tx, effect, &mut types).await?;
        if applied == Applied::Done {
            took.push((*effect, Timestamp::now()));
        } else {
            // A second try of the same delivery in this batch may run: nothing was changed.
            seen.remove(&key);
        }
        results.push(applied);
    }
    finish(&mut tx, &took).await?;
    tx.commit().await?;
    Ok(results)
}

/// Locks the deliveries whose claims still hold; nobody else can take or settle them before the end of the transaction.
async fn fence(db: &mut PgConnection, effects: &[&Effect]) -> sqlx::Result<HashSet<(i64, String)>> {
    let rows: Vec<(i64, String)> = sqlx::query_as(
        "SELECT d.event_id, d.handler
         FROM (SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS e (event_id, handler, token)
               ORDER BY event_id, handler) e
         CROSS JOIN LATERAL (
             SELECT event_id, handler FROM deliveries
             WHERE event_id = e.event_id AND handler = e.handler AND lease_token = e.token LIMIT 1 FOR UPDATE
         ) d",
    )
    .bind(effects.iter().map(|e| e.claim.event.id).bind_iter())
    .bind(effects.iter().map(|e| &*e.claim.handler).bind_iter())
    .bind(effects.iter().map(|e| e.claim.token).bind_iter())
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().collect())
}

async fn in_savepoint(
    db: &mut PgConnection,
    effect: &Effect,
    types: &mut HashMap<Arc<str>, Vec<PgTypeInfo>>,
) -> sqlx::Result<Applied> {
    if let Err(why) = refuse_control(&effect.statement) {
        return Ok(Applied::Failed(why.to_owned()));
    }
    db.execute("SAVEPOINT effect").await?;
    let why = match run(db, effect, types).await {
        Ok(Ok(())) => {
            db.execute("RELEASE SAVEPOINT effect").await?;
            return Ok(Applied::Done);
        }
        Ok(Err(why)) => why,
        Err(error) => match fault(&error) {
            Fault::Data | Fault::Statement => error.to_string(),
            Fault::Again | Fault::Connection => return Err(error),
        },
    };
    db.execute("ROLLBACK TO SAVEPOINT effect").await?;
    Ok(Applied::Failed(why))
}

/// Runs the statement; the inner error is one of the parameters.
async fn run(
    db: &mut PgConnection,
    effect: &Effect,
    types: &mut HashMap<Arc<str>, Vec<PgTypeInfo>>,
) -> sqlx::Result<Result<(), String>> {
    let sql = || AssertSqlSafe(Arc::clone(&effect.statement)).into_sql_str();
    if !types.contains_key(&effect.statement) {
        // Prepared once for each connection; the extended protocol refuses several commands in one statement.
        let prepared = db.prepare(sql()).await?;
        let parameters = match prepared.parameters() {
            Some(Either::Left(parameters)) => parameters.to_vec(),
            _ => Vec::new(),
        };
        types.insert(Arc::clone(&effect.statement), parameters);
    }
    let parameters = types.get(&effect.statement).map_or(&[][..], Vec::as_slice);
    if parameters.len() != effect.params.len() {
        let (wants, has) = (parameters.len(), effect.params.len());
        return Ok(Err(format!(
            "the statement has {wants} parameters and the handler gives {has}"
        )));
    }
    let mut arguments = PgArguments::default();
    for (i, (ty, value)) in parameters.iter().zip(&effect.params).enumerate() {
        let bound = match values::bind(ty, value, i + 1) {
            Ok(bound) => bound,
            Err(why) => return Ok(Err(why)),
        };
        arguments.add(bound).map_err(sqlx::Error::Encode)?;
    }
    sqlx::query_with(sql(), arguments).execute(db).await?;
    Ok(Ok(()))
}

/// Takes the applied deliveries off the work list and writes their history.
async fn finish(db: &mut PgConnection, done: &[(&Effect, Timestamp)]) -> sqlx::Result<()> {
    if done.is_empty() {
        return Ok(());
    }
    let claims = || done.iter().map(|(effect, _)| &effect.claim);
    let millis =
        |(effect, end): &(&Effect, Timestamp)| (end.as_millisecond() - effect.started_at.as_millisecond()).max(0);
    sqlx::query(
        "WITH held AS MATERIALIZED (
             SELECT e.*, d.place
             FROM unnest($1::bigint[], $2::text[], $3::int4[], $4::timestamptz[], $5::bigint[])
                  AS e (event_id, handler, attempt, started_at, duration_ms)
             CROSS JOIN LATERAL (
                 SELECT ctid AS place FROM deliveries WHERE event_id = e.event_id AND handler = e.handler LIMIT 1
             ) d
         ),
         done AS (
             DELETE FROM deliveries d USING held e WHERE d.ctid = e.place
             RETURNING e.event_id, e.handler, e.attempt, e.started_at, e.duration_ms
         )
         INSERT INTO attempts (event_id, handler, attempt, started_at, duration_ms, outcome)
         SELECT *, 'done' FROM done",
    )
    .bind(claims().map(|c| c.event.id).bind_iter())
    .bind(claims().map(|c| &*c.handler).bind_iter())
    .bind(
        claims()
            .map(|c| i32::try_from(c.attempt).unwrap_or(i32::MAX))
            .bind_iter(),
    )
    .bind(
        done.iter()
            .map(|(effect, _)| time::Instant(effect.started_at))
            .bind_iter(),
    )
    .bind(done.iter().map(millis).bind_iter())
    .execute(db)
    .await?;
    Ok(())
}

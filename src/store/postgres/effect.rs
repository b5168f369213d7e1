//! One transaction with the effects of one handler.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use sqlx::Arguments as _;
use sqlx::{
    AssertSqlSafe, Connection as _, Either, Executor as _, PgConnection, SqlSafeStr as _, Statement as _,
    postgres::{PgArguments, PgBindIterExt as _, PgTypeInfo},
};

use super::{
    super::{
        Applied, Effect, Prepared, SqlValue, Work,
        ordering::Lane,
        statement::{refuse_control, took_longer, wrong_count},
    },
    code,
    connect::{Fault, fault, message},
    time, values,
};

/// A transaction that took longer takes no further effect; after an effect that did, the next ones come alone.
pub(super) const SLOW: Duration = Duration::from_millis(100);

/// What became of one effect.
pub(super) struct Ran {
    pub(super) applied: Applied,
    /// The statement itself is at fault, and fails each time.
    pub(super) is_mistake: bool,
    pub(super) is_slow: bool,
}

impl Ran {
    pub(super) fn stale() -> Self {
        Self {
            applied: Applied::Stale,
            is_mistake: false,
            is_slow: false,
        }
    }
}

/// Gives what became of the first effects, and leaves the rest when it takes long. Beside it the lanes of what is done.
/// Statements that are trusted go without savepoints, each of which takes two round trips; where one fails all the same,
/// nothing of that is left, and all are run again with them.
pub(super) async fn transaction(
    db: &mut PgConnection,
    effects: &[Effect],
    are_trusted: bool,
) -> sqlx::Result<(Vec<Ran>, Vec<Lane>)> {
    let is_statement = |effect: &Effect| matches!(effect.work, Work::Statement { .. });
    if are_trusted && effects.len() > 1 && effects.iter().all(is_statement) {
        match run_all(db, effects, false).await {
            Err(error) if !matches!(fault(&error), Fault::Again | Fault::Connection) => {}
            done => return done,
        }
    }
    run_all(db, effects, true).await
}

async fn run_all(
    db: &mut PgConnection,
    effects: &[Effect],
    with_savepoints: bool,
) -> sqlx::Result<(Vec<Ran>, Vec<Lane>)> {
    let start = Instant::now();
    let mut limit = effects.first().map(|effect| effect.limit).unwrap_or_default();
    let begin = format!("BEGIN; SET LOCAL statement_timeout = {}", millis(limit));
    let mut tx = db.begin_with(AssertSqlSafe(begin)).await?;
    let held = fence(&mut tx, effects).await?;
    let mut seen = HashSet::new();
    let mut results = Vec::with_capacity(effects.len());
    let mut types: HashMap<Arc<str>, Vec<PgTypeInfo>> = HashMap::new();
    let mut took = Vec::new();
    for effect in effects {
        let key = (effect.claim.event.id, effect.claim.token);
        if !held.contains(&key) || !seen.insert(key) {
            results.push(Ran::stale());
            continue;
        }
        if effect.limit != limit {
            limit = effect.limit;
            let set = format!("SET LOCAL statement_timeout = {}", millis(limit));
            tx.execute(AssertSqlSafe(set)).await?;
        }
        let begun = Instant::now();
        let (applied, is_mistake) = run_one(&mut tx, effect, &mut types, with_savepoints).await?;
        if applied == Applied::Done {
            took.push((effect, Timestamp::now()));
        } else {
            // A second try of the same delivery in this batch may run: nothing was changed.
            seen.remove(&key);
        }
        results.push(Ran {
            applied,
            is_mistake,
            is_slow: begun.elapsed() > SLOW,
        });
        if start.elapsed() > SLOW {
            break;
        }
    }
    let lanes = finish(&mut tx, &took).await?;
    tx.commit().await?;
    Ok((results, lanes))
}

/// No rehearsal holds the connection of people for longer.
const LONGEST_REHEARSAL: Duration = Duration::from_secs(5);

/// Runs the statement of an effect in a transaction that is undone.
pub(super) async fn rehearse(db: &mut PgConnection, effect: &Effect) -> sqlx::Result<Result<(), String>> {
    if let Work::Statement { sql, .. } = &effect.work
        && let Err(why) = refuse_control(sql)
    {
        return Ok(Err(why.to_owned()));
    }
    let limit = effect.limit.min(LONGEST_REHEARSAL);
    let begin = format!("BEGIN; SET LOCAL statement_timeout = {}", millis(limit));
    let mut tx = db.begin_with(AssertSqlSafe(begin)).await?;
    let start = Instant::now();
    let ran = match &effect.work {
        Work::Statement { sql, params } => run(&mut tx, (sql, params), &mut HashMap::new()).await,
        Work::Code(work) => code::run(&mut tx, work, limit).await,
    };
    let said = match ran {
        Ok(said) => said,
        Err(error) if fault(&error) == Fault::Connection => return Err(error),
        Err(error) => Err(describe(&error, start.elapsed(), limit)),
    };
    tx.rollback().await?;
    Ok(said)
}

/// At least one, because zero is no limit.
pub(super) fn millis(limit: Duration) -> i32 {
    i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1)
}

/// What PostgreSQL says of a statement before it runs.
pub(super) async fn prepare(db: &mut PgConnection, statement: &str, params: usize) -> sqlx::Result<Prepared> {
    if let Err(why) = refuse_control(statement) {
        return Ok(Prepared::Wrong(why.to_owned()));
    }
    match db.prepare(AssertSqlSafe(statement).into_sql_str()).await {
        Ok(prepared) => {
            let wants = prepared.parameters().map_or(0, |known| match known {
                Either::Left(types) => types.len(),
                Either::Right(count) => count,
            });
            Ok(wrong_count(wants, params).map_or(Prepared::Fine, Prepared::Wrong))
        }
        Err(error) if fault(&error) == Fault::Connection => Err(error),
        // A syntax error, several statements among them.
        Err(error) if is_code(&error, "42601") => Ok(Prepared::Wrong(message(&error, true))),
        Err(error) => Ok(Prepared::Doubtful(message(&error, true))),
    }
}

fn is_code(error: &sqlx::Error, begins: &str) -> bool {
    matches!(error, sqlx::Error::Database(error) if error.code().is_some_and(|code| code.starts_with(begins)))
}

/// Whether the statement as it is written is at fault: its syntax, or what it names.
pub(super) fn is_mistake(error: &sqlx::Error) -> bool {
    is_code(error, "42")
}

/// The error for the history.
pub(super) fn describe(error: &sqlx::Error, elapsed: Duration, limit: Duration) -> String {
    // A person may have ended it as well, before its time.
    if is_code(error, "57014") && elapsed >= limit.mul_f64(0.95) {
        return took_longer(limit);
    }
    message(error, true)
}

/// Locks the deliveries whose claims still hold; nobody else can take or settle them before the end of the transaction.
async fn fence(db: &mut PgConnection, effects: &[Effect]) -> sqlx::Result<HashSet<(i64, i64)>> {
    let rows: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT d.event_id, d.lease_token
         FROM (SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS e (event_id, handler, token)
               ORDER BY event_id, handler) e
         CROSS JOIN LATERAL (
             SELECT event_id, lease_token FROM deliveries
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

/// What became of one effect, and whether its statement is at fault. Without a savepoint a statement that fails ends the
/// transaction.
async fn run_one(
    db: &mut PgConnection,
    effect: &Effect,
    types: &mut HashMap<Arc<str>, Vec<PgTypeInfo>>,
    with_savepoint: bool,
) -> sqlx::Result<(Applied, bool)> {
    if let Work::Statement { sql, .. } = &effect.work
        && let Err(why) = refuse_control(sql)
    {
        return Ok((Applied::Failed(why.to_owned()), true));
    }
    if with_savepoint {
        db.execute("SAVEPOINT effect").await?;
    }
    let start = Instant::now();
    let (ran, is_statement) = match &effect.work {
        Work::Statement { sql, params } => (run(db, (sql, params), types).await, true),
        Work::Code(work) => (code::run(db, work, effect.limit).await, false),
    };
    let (why, is_mistake) = match ran {
        Ok(Ok(())) => {
            if with_savepoint {
                db.execute("RELEASE SAVEPOINT effect").await?;
            }
            return Ok((Applied::Done, false));
        }
        Ok(Err(why)) => (why, is_statement),
        Err(error) if !with_savepoint => return Err(error),
        Err(error) => match fault(&error) {
            Fault::Data | Fault::Statement | Fault::Locked => {
                (describe(&error, start.elapsed(), effect.limit), is_mistake(&error))
            }
            Fault::Again | Fault::Connection => return Err(error),
        },
    };
    // A value that does not fit its parameter has changed nothing.
    if with_savepoint {
        db.execute("ROLLBACK TO SAVEPOINT effect").await?;
    }
    Ok((Applied::Failed(why), is_mistake))
}

/// Runs the statement; the inner error is one of the parameters.
async fn run(
    db: &mut PgConnection,
    (statement, params): (&Arc<str>, &[SqlValue]),
    types: &mut HashMap<Arc<str>, Vec<PgTypeInfo>>,
) -> sqlx::Result<Result<(), String>> {
    let sql = || AssertSqlSafe(Arc::clone(statement)).into_sql_str();
    if !types.contains_key(statement) {
        // Prepared once for each connection; the extended protocol refuses several commands in one statement.
        let prepared = db.prepare(sql()).await?;
        let parameters = match prepared.parameters() {
            Some(Either::Left(parameters)) => parameters.to_vec(),
            _ => Vec::new(),
        };
        types.insert(Arc::clone(statement), parameters);
    }
    let parameters = types.get(statement).map_or(&[][..], Vec::as_slice);
    if let Some(why) = wrong_count(parameters.len(), params.len()) {
        return Ok(Err(why));
    }
    let mut arguments = PgArguments::default();
    for (i, (ty, value)) in parameters.iter().zip(params).enumerate() {
        let bound = match values::bind(ty, value, i + 1) {
            Ok(bound) => bound,
            Err(why) => return Ok(Err(why)),
        };
        arguments.add(bound).map_err(sqlx::Error::Encode)?;
    }
    sqlx::query_with(sql(), arguments).execute(db).await?;
    Ok(Ok(()))
}

/// Runs a statement of a handler in a database that is not the store's; values take the types of its parameters, as in the
/// store. The inner error is one of the parameters.
pub(crate) async fn run_elsewhere(
    db: &mut PgConnection,
    statement: &Arc<str>,
    params: &[SqlValue],
) -> sqlx::Result<Result<(), String>> {
    run(db, (statement, params), &mut HashMap::new()).await
}

/// Takes the applied deliveries off the work list and writes their history; gives their lanes.
async fn finish(db: &mut PgConnection, done: &[(&Effect, Timestamp)]) -> sqlx::Result<Vec<Lane>> {
    if done.is_empty() {
        return Ok(Vec::new());
    }
    let claims = || done.iter().map(|(effect, _)| &effect.claim);
    let millis =
        |(effect, end): &(&Effect, Timestamp)| (end.as_millisecond() - effect.started_at.as_millisecond()).max(0);
    sqlx::query_as(
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
             RETURNING e.event_id, e.handler, e.attempt, e.started_at, e.duration_ms, d.lane
         ),
         written AS (
             INSERT INTO attempts (event_id, handler, attempt, started_at, duration_ms, outcome)
             SELECT event_id, handler, attempt, started_at, duration_ms, 'done' FROM done
         )
         SELECT handler, lane FROM done WHERE lane IS NOT NULL",
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
    .fetch_all(db)
    .await
}

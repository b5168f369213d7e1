//! Serves the statements of code that runs in a transaction. The code has a thread of its own, this task the connection.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use sqlx::{
    Arguments as _, AssertSqlSafe, Column as _, Either, Executor as _, PgConnection, Row as _, SqlSafeStr as _,
    Statement as _, TypeInfo as _, ValueRef as _,
    postgres::{PgArguments, PgRow, PgTypeInfo, PgTypeKind},
    types::{BigDecimal, Uuid},
};
use tokio::{sync::mpsc, time::timeout_at};

use super::{
    super::{
        InTransaction, Row, SqlError, SqlValue,
        statement::{refuse_control, took_longer, wrong_count},
        thread::Runner,
        transaction::{Ask, Reply, Said},
    },
    connect::{Fault, fault},
    effect::describe,
    time, values,
};

/// Runs code in the transaction that is open. The inner error is the code's own: what it did must be undone.
pub(super) async fn run(
    db: &mut PgConnection,
    work: &InTransaction,
    limit: Duration,
) -> sqlx::Result<Result<(), String>> {
    let until = tokio::time::Instant::now() + limit;
    let (sender, mut said) = mpsc::unbounded_channel();
    // The thread ends with the code; a transaction costs more than a thread.
    Runner::default().start(work, move |said| drop(sender.send(said)));
    loop {
        match timeout_at(until, said.recv()).await {
            Ok(Some(Said::Ended(done))) => return Ok(done),
            Ok(Some(Said::Ask(ask))) => {
                let start = Instant::now();
                let answer = match answer(db, &ask).await {
                    Ok(answer) => answer,
                    Err(error) => match fault(&error) {
                        Fault::Data | Fault::Statement | Fault::Locked => {
                            Err(SqlError(describe(&error, start.elapsed(), limit)))
                        }
                        Fault::Again | Fault::Connection => return Err(error),
                    },
                };
                let _ = ask.reply.send(answer);
            }
            Ok(None) => return Ok(Err("the handler's thread could not be started".to_owned())),
            Err(_) => return Ok(Err(took_longer(limit))),
        }
    }
}

async fn answer(db: &mut PgConnection, ask: &Ask) -> sqlx::Result<Result<Reply, SqlError>> {
    if let Err(why) = refuse_control(&ask.sql) {
        return Ok(Err(SqlError(why.to_owned())));
    }
    // Kept by the connection, so that the second time costs nothing.
    let prepared = db.prepare(AssertSqlSafe(ask.sql.as_str()).into_sql_str()).await?;
    let types = match prepared.parameters() {
        Some(Either::Left(types)) => types.to_vec(),
        _ => Vec::new(),
    };
    drop(prepared);
    if let Some(why) = wrong_count(types.len(), ask.params.len()) {
        return Ok(Err(SqlError(why)));
    }
    let mut arguments = PgArguments::default();
    for (at, (ty, value)) in types.iter().zip(&ask.params).enumerate() {
        match values::bind(ty, value, at + 1) {
            Ok(bound) => arguments.add(bound).map_err(sqlx::Error::Encode)?,
            Err(why) => return Ok(Err(SqlError(why))),
        }
    }
    let (mut reply, mut columns, mut refused) = (Reply::default(), None, None);
    let mut rows = db.fetch_many(sqlx::query_with(AssertSqlSafe(ask.sql.as_str()), arguments));
    while let Some(next) = rows.try_next().await? {
        match next {
            Either::Left(done) => reply.changed = done.rows_affected(),
            // Read to the end in any case: what is left of an answer would be taken for that of the next statement.
            Either::Right(_) if refused.is_some() => {}
            Either::Right(found) => {
                let read = row(&found, &mut columns).and_then(|row| reply.push(row));
                refused = read.err();
            }
        }
    }
    Ok(refused.map_or(Ok(reply), Err))
}

fn row(found: &PgRow, columns: &mut Option<Arc<[String]>>) -> Result<Row, SqlError> {
    let names = columns.get_or_insert_with(|| found.columns().iter().map(|column| column.name().to_owned()).collect());
    let mut values = Vec::with_capacity(names.len());
    for (at, column) in found.columns().iter().enumerate() {
        let Some(value) = value(found, at, column.type_info()) else {
            let (name, ty) = (column.name(), column.type_info().name().to_ascii_lowercase());
            let why = format!("column `{name}` of type {ty} cannot be read; cast it: {name}::text");
            return Err(SqlError(why));
        };
        values.push(value);
    }
    Ok(Row {
        columns: Arc::clone(names),
        values,
    })
}

/// `None` where the type is one that we do not know, or the value one that has no digits (NaN, infinity).
fn value(row: &PgRow, at: usize, ty: &PgTypeInfo) -> Option<SqlValue> {
    let raw = row.try_get_raw(at).ok()?;
    if raw.is_null() {
        return Some(SqlValue::Null);
    }
    let bytes = raw.as_bytes().ok()?;
    let text = |bytes: &[u8]| SqlValue::Text(String::from_utf8_lossy(bytes).into_owned());
    Some(match base(ty) {
        "BOOL" => SqlValue::Bool(row.try_get_unchecked(at).ok()?),
        "INT2" => SqlValue::Int(row.try_get_unchecked::<i16, _>(at).ok()?.into()),
        "INT4" => SqlValue::Int(row.try_get_unchecked::<i32, _>(at).ok()?.into()),
        "INT8" => SqlValue::Int(row.try_get_unchecked(at).ok()?),
        "FLOAT4" => SqlValue::Number(format!("{:?}", row.try_get_unchecked::<f32, _>(at).ok()?)),
        "FLOAT8" => row.try_get_unchecked::<f64, _>(at).ok()?.into(),
        "NUMERIC" => {
            // After the number of digits, the weight and the sign comes how many stand behind the point.
            let scale = i16::from_be_bytes(bytes.get(6..8)?.try_into().ok()?);
            let number = row.try_get_unchecked::<BigDecimal, _>(at).ok()?;
            SqlValue::Number(number.with_scale(scale.into()).to_plain_string())
        }
        "UUID" => SqlValue::Text(row.try_get_unchecked::<Uuid, _>(at).ok()?.to_string()),
        "TIMESTAMPTZ" => SqlValue::Text(row.try_get_unchecked::<time::Instant, _>(at).ok()?.0.to_string()),
        "TEXT" | "VARCHAR" | "CHAR" | "BPCHAR" | "NAME" | "UNKNOWN" | "CITEXT" | "citext" | "JSON" => text(bytes),
        // One byte of version before the text.
        "JSONB" => text(bytes.get(1..)?),
        "BYTEA" => SqlValue::Bytes(Bytes::copy_from_slice(bytes)),
        // An answer of nothing, such as that of a function.
        "VOID" => SqlValue::Null,
        _ => return None,
    })
}

/// The name of the type below domains; the labels of an enum are text.
fn base(ty: &PgTypeInfo) -> &str {
    match ty.kind() {
        PgTypeKind::Domain(inner) => base(inner),
        PgTypeKind::Enum(_) => "TEXT",
        _ => ty.name(),
    }
}

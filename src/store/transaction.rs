//! A transaction of the store as code outside of it sees it: native handlers, handlers of an API, programs. The code runs
//! on a thread of its own (`thread`) and sends each statement to whoever owns the connection.

use std::{
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

use jiff::Timestamp;

use super::{SqlValue, StoreError};

/// How long the code of an API's handler may hold its transaction; on SQLite, where it holds the only writer, any code.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// Rows that one query may give: they are held in memory while the transaction is open.
const MOST_ROWS: usize = 10_000;

/// An open transaction of the store. What is done here commits together with what it belongs to, or not at all: the settle
/// of a delivery ([`Done::within`](crate::Done::within)), or the key and the answer of a request
/// ([`KeyTransaction`](crate::idempotency::KeyTransaction)).
///
/// It is not async, because nothing outside may be waited for while a transaction is open: on SQLite it holds the only
/// writer, and nothing is stored meanwhile. Ask the network before, and do here only what belongs together.
///
/// Statements are single ones, with parameters `$1`, `$2`, … on both engines; those that control the transaction or the
/// session are refused. After a statement has failed, the transaction can only be undone.
pub struct Transaction {
    pub(super) say: Box<dyn Fn(Said) + Send>,
    pub(super) failed: Option<SqlError>,
}

/// Why a statement failed, in the words of the database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SqlError(pub(super) String);

/// Why nothing was committed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransactionError {
    /// The code's own failure, a statement's, or a limit that it broke.
    #[error("{0}")]
    Failed(String),
    /// Its key was taken over by another meanwhile.
    #[error("the key is held by another")]
    Stale,
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for TransactionError {
    fn from(error: StoreError) -> Self {
        match error {
            // What is wrong with the code or its values would be wrong again.
            StoreError::Refused(why) => Self::Failed(why),
            error => Self::Store(error),
        }
    }
}

/// What code in a transaction leaves for who had it run; the last run is the one that counts.
pub(crate) struct Left<T>(Arc<Mutex<Option<T>>>);

impl<T> Left<T> {
    pub(crate) fn put(&self, value: Option<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T> Default for Left<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Left<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// One row of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub(super) columns: Arc<[String]>,
    pub(super) values: Vec<SqlValue>,
}

/// What the code says to the owner of the connection.
pub(super) enum Said {
    Ask(Ask),
    Ended(Result<(), String>),
}

/// A statement to run.
pub(super) struct Ask {
    pub(super) sql: String,
    pub(super) params: Vec<SqlValue>,
    pub(super) reply: mpsc::SyncSender<Result<Reply, SqlError>>,
}

#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) changed: u64,
    pub(super) rows: Vec<Row>,
}

impl Reply {
    /// Adds a row, unless there are too many.
    pub(super) fn push(&mut self, row: Row) -> Result<(), SqlError> {
        if self.rows.len() == MOST_ROWS {
            return Err(SqlError(format!("the query gives more than {MOST_ROWS} rows")));
        }
        self.rows.push(row);
        Ok(())
    }
}

#[cfg(test)]
impl Transaction {
    /// One whose statements all fail.
    pub(crate) fn nowhere() -> Self {
        Self {
            say: Box::new(drop),
            failed: None,
        }
    }
}

impl Transaction {
    /// Runs a statement; gives how many rows it inserted, changed or deleted (of a mere query: no particular number).
    ///
    /// # Errors
    /// What the database says. The transaction can only be undone then.
    pub fn execute(&mut self, sql: &str, params: &[SqlValue]) -> Result<u64, SqlError> {
        self.ask(sql, params).map(|reply| reply.changed)
    }

    /// Runs a statement; gives its rows, 10,000 at most.
    ///
    /// # Errors
    /// What the database says, also of a column whose type cannot be read. The transaction can only be undone then.
    pub fn query(&mut self, sql: &str, params: &[SqlValue]) -> Result<Vec<Row>, SqlError> {
        self.ask(sql, params).map(|reply| reply.rows)
    }

    /// The first failure of a statement, if one has failed.
    pub(crate) fn sound(&self) -> Result<(), SqlError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn ask(&mut self, sql: &str, params: &[SqlValue]) -> Result<Reply, SqlError> {
        if let Some(error) = &self.failed {
            return Err(SqlError(format!("an earlier statement failed: {error}")));
        }
        let (reply, answer) = mpsc::sync_channel(1);
        (self.say)(Said::Ask(Ask {
            sql: sql.to_owned(),
            params: params.to_vec(),
            reply,
        }));
        let answer = answer
            .recv()
            .unwrap_or_else(|_| Err(SqlError("the transaction has ended".to_owned())));
        if let Err(error) = &answer {
            self.failed = Some(error.clone());
        }
        answer
    }
}

impl Row {
    /// The value of a column, by its name.
    ///
    /// # Errors
    /// No column is called so, or its value does not fit the type.
    pub fn get<T: FromSql>(&self, column: &str) -> Result<T, SqlError> {
        let at = self.columns.iter().position(|name| name == column);
        let value = at.and_then(|at| self.values.get(at));
        let value = value.ok_or_else(|| SqlError(format!("no column is called `{column}`")))?;
        T::from_sql(value)
            .ok_or_else(|| SqlError(format!("column `{column}` does not fit the type that was asked for")))
    }

    /// The names of the columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The values, in the order of the columns.
    #[must_use]
    pub fn values(&self) -> &[SqlValue] {
        &self.values
    }
}

/// What a column can be read as.
pub trait FromSql: Sized {
    /// `None` when the value does not fit.
    fn from_sql(value: &SqlValue) -> Option<Self>;
}

impl FromSql for i64 {
    fn from_sql(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Int(int) => Some(*int),
            SqlValue::Number(text) => text.parse().ok(),
            _ => None,
        }
    }
}

impl FromSql for f64 {
    #[allow(clippy::cast_precision_loss, reason = "who asks for a double gets the nearest")]
    fn from_sql(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Int(int) => Some(*int as Self),
            SqlValue::Number(text) => text.parse().ok(),
            _ => None,
        }
    }
}

impl FromSql for bool {
    /// SQLite has no booleans: 0 and 1 are read as such.
    fn from_sql(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Bool(value) => Some(*value),
            SqlValue::Int(0) => Some(false),
            SqlValue::Int(1) => Some(true),
            _ => None,
        }
    }
}

impl FromSql for String {
    /// Numbers are given in their digits.
    fn from_sql(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Text(text) | SqlValue::Number(text) => Some(text.clone()),
            SqlValue::Int(int) => Some(int.to_string()),
            _ => None,
        }
    }
}

impl FromSql for Vec<u8> {
    fn from_sql(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Bytes(bytes) => Some(bytes.to_vec()),
            SqlValue::Text(text) => Some(text.clone().into_bytes()),
            _ => None,
        }
    }
}

impl<T: FromSql> FromSql for Option<T> {
    fn from_sql(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Null => Some(None),
            value => T::from_sql(value).map(Some),
        }
    }
}

macro_rules! into_value {
    ($($from:ty => |$value:ident| $into:expr),+ $(,)?) => {$(
        impl From<$from> for SqlValue {
            fn from($value: $from) -> Self {
                $into
            }
        }
    )+};
}

into_value! {
    bool => |value| Self::Bool(value),
    i64 => |value| Self::Int(value),
    i32 => |value| Self::Int(value.into()),
    u32 => |value| Self::Int(value.into()),
    f64 => |value| Self::Number(format!("{value:?}")),
    &str => |value| Self::Text(value.to_owned()),
    &String => |value| Self::Text(value.clone()),
    String => |value| Self::Text(value),
    Vec<u8> => |value| Self::Bytes(value.into()),
    bytes::Bytes => |value| Self::Bytes(value),
    Timestamp => |value| Self::Text(value.to_string()),
}

impl<T: Into<Self>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_what_is_asked_for() {
        let row = Row {
            columns: ["a", "b", "c"].map(str::to_owned).into_iter().collect(),
            values: vec![SqlValue::Int(1), SqlValue::Null, SqlValue::Number("1.50".into())],
        };
        assert_eq!(row.get::<i64>("a"), Ok(1));
        assert_eq!(row.get::<bool>("a"), Ok(true));
        assert_eq!(row.get::<Option<String>>("b"), Ok(None));
        assert_eq!(row.get::<String>("c"), Ok("1.50".to_owned()));
        assert!(row.get::<i64>("b").unwrap_err().to_string().contains("`b`"));
        assert!(row.get::<i64>("d").unwrap_err().to_string().contains("`d`"));
    }
}

//! Which schema a database has. Asked before it is opened for work, and nothing in it is changed.

use super::{StoreError, postgres, sqlite};

/// The schema of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    /// No tables of ours, or no file.
    Absent,
    /// Of an older program; [`Options::migrate`](super::Options::migrate) brings it up to date.
    Older,
    Current,
    /// Of a newer program; it cannot be migrated, only used as it is.
    Newer,
}

impl Schema {
    /// By the newest migration that ran, and the newest that this program has.
    pub(super) fn of(ran: Option<i64>, newest: Option<i64>) -> Self {
        match ran {
            None => Self::Absent,
            Some(_) if ran < newest => Self::Older,
            Some(_) if ran > newest => Self::Newer,
            Some(_) => Self::Current,
        }
    }

    /// Whether it can be used as it is.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where it must be migrated first.
    pub(super) fn usable(self) -> Result<(), StoreError> {
        let why = match self {
            Self::Absent => "the database has no tables of ours yet",
            Self::Older => "the database is older than this program",
            Self::Current | Self::Newer => return Ok(()),
        };
        Err(StoreError::Refused(format!("the schema: {why}; run `cerca migrate`")))
    }
}

/// The schema of the store that the URL names.
///
/// # Errors
/// [`StoreError::Refused`] when the URL is none of a store or the file no database, [`StoreError::Unavailable`] when the
/// database cannot be reached.
pub async fn schema(url: &str) -> Result<Schema, StoreError> {
    match url.split(':').next().unwrap_or_default() {
        "sqlite" => sqlite::schema(url).await,
        "postgres" | "postgresql" => postgres::schema(url).await,
        _ => Err(StoreError::Refused(
            "the store's URL must begin with sqlite: or postgres:".to_owned(),
        )),
    }
}

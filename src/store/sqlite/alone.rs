//! Commits effects apart from everything else, where a constraint of the user's tables may be deferred: such a one fails
//! at the commit, which would undo what others wrote in the same transaction, and nobody would know whose effect it was.

use std::time::Instant;

use rusqlite::{Connection, ErrorCode};

use super::{
    super::{Applied, LONGEST},
    connect::Deadline,
    effects::{self, Checked, GROUP, Waiting},
    lanes::Lanes,
};

/// Whether a constraint may be deferred. The tables are read when the schema has changed; a word in a comment costs speed only.
#[derive(Default)]
pub(super) struct Deferred {
    schema: Option<i64>,
    is_possible: bool,
    /// One was met that could not be seen beforehand.
    was_met: bool,
}

impl Deferred {
    pub(super) fn is_possible(&mut self, db: &Connection) -> rusqlite::Result<bool> {
        let schema = db
            .prepare_cached("SELECT schema_version FROM pragma_schema_version")?
            .query_row([], |row| row.get(0))?;
        if self.schema != Some(schema) {
            self.is_possible = db
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE sql LIKE '%deferred%')")?
                .query_row([], |row| row.get(0))?;
            self.schema = Some(schema);
        }
        Ok(self.is_possible || self.was_met)
    }

    /// Learns from a commit that failed.
    pub(super) fn learn(&mut self, error: &rusqlite::Error) {
        self.was_met |= is_constraint(error);
    }
}

/// Runs and commits effects until they have taken their time; gives what became of the first ones, at least of one. A
/// commit that fails is tried again by halves, until the effect that is at fault is alone.
pub(super) fn commit(
    db: &Connection,
    deadline: &Deadline,
    (checked, lanes): (&mut Checked, &Lanes),
    waiting: &[Waiting],
) -> rusqlite::Result<Vec<Applied>> {
    let start = Instant::now();
    let mut results = Vec::with_capacity(waiting.len());
    let mut most = waiting.len();
    while results.len() < waiting.len() && (results.is_empty() || start.elapsed() <= GROUP) {
        let group = &waiting[results.len()..];
        let group = &group[..most.min(group.len())];
        let ended = effects::begin(db, deadline, (&mut *checked, lanes), group).and_then(|applied| {
            let committed = db.prepare_cached("COMMIT")?.execute([]);
            Ok((applied, committed))
        });
        match ended {
            Ok((applied, Ok(_))) => results.extend(applied),
            Ok((applied, Err(error))) if is_constraint(&error) => {
                db.execute_batch("ROLLBACK")?;
                if applied.len() == 1 {
                    let why = effects::message(&error, LONGEST);
                    results.push(Applied::Failed(format!("{why}, deferred to the commit")));
                    most = waiting.len();
                } else {
                    most = applied.len() / 2;
                }
            }
            // What is committed is to be told; the rest finds the same error in its own turn.
            Ok((_, Err(_))) | Err(_) if !results.is_empty() && at_rest(db) => break,
            Ok((_, Err(error))) | Err(error) => return Err(error),
        }
    }
    Ok(results)
}

fn at_rest(db: &Connection) -> bool {
    db.is_autocommit() || db.execute_batch("ROLLBACK").is_ok()
}

fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

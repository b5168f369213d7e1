//! The file of operations. Every change is on disk before its call returns.

use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use sha2::{Digest as _, Sha256};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS operations (
        id          INTEGER PRIMARY KEY,
        key         TEXT NOT NULL UNIQUE,
        method      TEXT NOT NULL,
        url         TEXT NOT NULL,
        headers     TEXT NOT NULL,
        request     BLOB NOT NULL,
        input       BLOB NOT NULL,
        state       TEXT NOT NULL CHECK (state IN ('waiting', 'done', 'failed')),
        attempts    INTEGER NOT NULL DEFAULT 0,
        run_at      INTEGER NOT NULL DEFAULT 0,
        status      INTEGER,
        error       TEXT,
        created_at  INTEGER NOT NULL,
        finished_at INTEGER,
        body        BLOB NOT NULL
    ) STRICT;
    CREATE INDEX IF NOT EXISTS operations_waiting ON operations (id) WHERE state = 'waiting';
    CREATE INDEX IF NOT EXISTS operations_input ON operations (input) WHERE state = 'waiting';";

/// How long another process may hold the file.
const BUSY: Duration = Duration::from_secs(30);

/// Longest key.
const MAX_KEY: usize = 255;

/// What went wrong with the file.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("the spool {0} cannot be opened: {1}")]
    Open(PathBuf, String),
    #[error("the spool failed: {0}")]
    Database(#[from] rusqlite::Error),
    /// Another process sends from it.
    #[error("another process sends from the spool {0}")]
    Busy(PathBuf),
    #[error("the key `{0}` is not 1 to {MAX_KEY} printable characters")]
    Key(String),
    #[error("the key `{0}` belongs to another operation in the spool; a key never changes what it stands for")]
    Taken(String),
    /// From whoever gives the operations.
    #[error("{0}")]
    Input(String),
}

/// Something to send.
#[derive(Debug, Clone)]
pub struct NewOperation {
    /// `None`: a random one is made.
    pub key: Option<String>,
    pub method: String,
    pub url: String,
    /// A value `env:NAME` or `file:PATH` is a reference; it is resolved at each try, so that no secret is in the file.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// An operation in the spool.
#[derive(Debug, Clone)]
pub struct Operation {
    pub id: i64,
    pub key: String,
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// Empty in lists.
    pub body: Vec<u8>,
    pub state: State,
    pub attempts: u32,
    /// Not to be tried before.
    pub run_at: Timestamp,
    /// The last status that the server said.
    pub status: Option<u16>,
    pub error: Option<String>,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Waiting,
    Done,
    /// The server said that another try cannot help.
    Failed,
}

impl State {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    fn parse(text: &str) -> Self {
        match text {
            "done" => Self::Done,
            "failed" => Self::Failed,
            _ => Self::Waiting,
        }
    }
}

/// What became of an input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Added {
    /// Operations that are new.
    pub new: u64,
    /// Operations that were there already, by their keys.
    pub known: u64,
    /// The very same input is in the spool and not finished: it was left as it is, with its keys.
    pub is_resumed: bool,
}

/// Held by the one process that sends. Ends with the process, however that ends.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "held, not read")] File);

/// Operations on their way. Calls wait for the disk.
pub struct Spool {
    db: Connection,
    path: PathBuf,
}

impl Spool {
    /// Opens the file, or makes it so that only its owner can read it.
    ///
    /// # Errors
    /// [`SpoolError::Open`].
    pub fn open(path: &Path) -> Result<Self, SpoolError> {
        let wrong = |error: &dyn std::fmt::Display| SpoolError::Open(path.to_owned(), error.to_string());
        private(path).map_err(|error| wrong(&error))?;
        let open = || -> rusqlite::Result<Connection> {
            let db = Connection::open(path)?;
            db.busy_timeout(BUSY)?;
            db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
            db.pragma_update(None, "synchronous", "FULL")?;
            db.pragma_update(None, "fullfsync", true)?;
            db.execute_batch(SCHEMA)?;
            Ok(db)
        };
        Ok(Self {
            db: open().map_err(|error| wrong(&error))?,
            path: path.to_owned(),
        })
    }

    /// Makes this process the one that sends.
    ///
    /// # Errors
    /// [`SpoolError::Busy`] while another one does.
    pub fn lock(&self) -> Result<Lock, SpoolError> {
        let mut name = self.path.clone().into_os_string();
        name.push(".lock");
        let wrong = |error: io::Error| SpoolError::Open(self.path.clone(), error.to_string());
        let file = private(Path::new(&name)).map_err(wrong)?;
        match file.try_lock() {
            Ok(()) => Ok(Lock(file)),
            Err(std::fs::TryLockError::WouldBlock) => Err(SpoolError::Busy(self.path.clone())),
            Err(std::fs::TryLockError::Error(error)) => Err(wrong(error)),
        }
    }

    /// Puts an input into the spool, all of it or nothing, and gives each operation its key. An input that is there and not
    /// finished is not put in a second time: a command that was killed may be run again as it was.
    ///
    /// # Errors
    /// [`SpoolError::Key`], [`SpoolError::Taken`], or what the input or the file says; then nothing was added.
    pub fn add(
        &mut self,
        operations: impl IntoIterator<Item = Result<NewOperation, SpoolError>>,
    ) -> Result<Added, SpoolError> {
        let tx = self
            .db
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let now = Timestamp::now().as_microsecond();
        let mut input = Sha256::new();
        let mut added = Added::default();
        let mut ids = Vec::new();
        for operation in operations {
            let operation = operation?;
            let request = fingerprint(&operation);
            input.update(request);
            input.update(operation.key.as_deref().unwrap_or_default());
            let key = match operation.key {
                Some(key) if !is_key(&key) => return Err(SpoolError::Key(key)),
                Some(key) => key,
                None => random_key(),
            };
            let known: Option<Vec<u8>> = tx
                .prepare_cached("SELECT request FROM operations WHERE key = ?1")?
                .query_row([&key], |row| row.get(0))
                .optional()?;
            match known {
                Some(known) if known != request => return Err(SpoolError::Taken(key)),
                Some(_) => added.known += 1,
                None => {
                    let headers = serde_json::to_string(&operation.headers)
                        .map_err(|error| SpoolError::Input(error.to_string()))?;
                    tx.prepare_cached(
                        "INSERT INTO operations (key, method, url, headers, request, input, state, created_at, body)
                         VALUES (?1, ?2, ?3, ?4, ?5, x'', 'waiting', ?6, ?7)",
                    )?
                    .execute(params![
                        key,
                        operation.method,
                        operation.url,
                        headers,
                        &request[..],
                        now,
                        operation.body
                    ])?;
                    ids.push(tx.last_insert_rowid());
                    added.new += 1;
                }
            }
        }
        let input = input.finalize();
        let is_resumed: bool = tx.query_row(
            "SELECT EXISTS (SELECT 1 FROM operations WHERE input = ?1 AND state = 'waiting')",
            [&input[..]],
            |row| row.get(0),
        )?;
        if is_resumed {
            tx.rollback()?;
            return Ok(Added {
                is_resumed,
                ..Added::default()
            });
        }
        for id in ids {
            tx.prepare_cached("UPDATE operations SET input = ?2 WHERE id = ?1")?
                .execute(params![id, &input[..]])?;
        }
        tx.commit()?;
        Ok(added)
    }

    /// The oldest operation after `after` that waits, with its body. The error is the file's.
    pub fn next_waiting(&self, after: i64) -> Result<Option<Operation>, SpoolError> {
        let mut next = self.db.prepare_cached(
            "SELECT id, key, method, url, headers, state, attempts, run_at, status, error, created_at, finished_at, body
             FROM operations WHERE state = 'waiting' AND id > ?1 ORDER BY id LIMIT 1",
        )?;
        Ok(next.query_row([after], |row| read(row, row.get(12)?)).optional()?)
    }

    /// How many wait. The error is the file's.
    pub fn waiting(&self) -> Result<u64, SpoolError> {
        let count: i64 = self
            .db
            .query_row("SELECT count(*) FROM operations WHERE state = 'waiting'", [], |row| {
                row.get(0)
            })?;
        Ok(count.unsigned_abs())
    }

    /// Every operation, oldest first, without bodies.
    ///
    /// # Errors
    /// The file's, or the visitor's.
    pub fn each(&self, mut visit: impl FnMut(Operation) -> Result<(), SpoolError>) -> Result<(), SpoolError> {
        let mut all = self.db.prepare(
            "SELECT id, key, method, url, headers, state, attempts, run_at, status, error, created_at, finished_at
             FROM operations ORDER BY id",
        )?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            visit(read(row, Vec::new())?)?;
        }
        Ok(())
    }

    /// Writes down a try. The key is never touched.
    pub(super) fn tried(
        &self,
        id: i64,
        state: State,
        run_at: Timestamp,
        status: Option<u16>,
        error: Option<&str>,
    ) -> Result<(), SpoolError> {
        let finished = (state != State::Waiting).then(|| Timestamp::now().as_microsecond());
        self.db
            .prepare_cached(
                "UPDATE operations SET state = ?2, attempts = attempts + 1, run_at = ?3, status = ?4, error = ?5,
                        finished_at = ?6
                 WHERE id = ?1",
            )?
            .execute(params![
                id,
                state.as_str(),
                run_at.as_microsecond(),
                status,
                error,
                finished
            ])?;
        Ok(())
    }

    /// Lets the failed ones wait again, under the keys that they have. Gives their number.
    ///
    /// # Errors
    /// The file's.
    pub fn retry_failed(&self) -> Result<u64, SpoolError> {
        let changed = self.db.execute(
            "UPDATE operations SET state = 'waiting', run_at = 0, finished_at = NULL WHERE state = 'failed'",
            [],
        )?;
        Ok(changed as u64)
    }
}

fn read(row: &Row<'_>, body: Vec<u8>) -> rusqlite::Result<Operation> {
    let instant = |micros: i64| Timestamp::from_microsecond(micros).unwrap_or_default();
    Ok(Operation {
        id: row.get(0)?,
        key: row.get(1)?,
        method: row.get(2)?,
        url: row.get(3)?,
        headers: serde_json::from_str(&row.get::<_, String>(4)?).unwrap_or_default(),
        state: State::parse(&row.get::<_, String>(5)?),
        attempts: row.get(6)?,
        run_at: instant(row.get(7)?),
        status: row.get(8)?,
        error: row.get(9)?,
        created_at: instant(row.get(10)?),
        finished_at: row.get::<_, Option<i64>>(11)?.map(instant),
        body,
    })
}

/// What an operation asks for, apart from its key.
fn fingerprint(operation: &NewOperation) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(operation.method.as_bytes());
    part(operation.url.as_bytes());
    for (name, value) in &operation.headers {
        part(name.as_bytes());
        part(value.as_bytes());
    }
    part(&operation.body);
    hash.finalize().into()
}

fn is_key(key: &str) -> bool {
    (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|b| (0x21..0x7f).contains(&b))
}

/// A random UUID, version 4.
fn random_key() -> String {
    let mut bytes: [u8; 16] = rand::random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut key = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            key.push('-');
        }
        let _ = write!(key, "{byte:02x}");
    }
    key
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

//! Moves the write-ahead log into the database beside the writer, which would otherwise stop for it: copying 64 MiB of pages
//! and syncing them takes longer than any commit. What was appended meanwhile is little, and the writer moves that itself
//! between two transactions, so that its next commit begins the log anew.

use std::{
    cell::Cell,
    ffi::c_int,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
        mpsc,
    },
    thread::JoinHandle,
};

use rusqlite::{Connection, OpenFlags, hooks::Wal};

use super::connect::{self, PAGE_SIZE};

/// Rounds of one checkpoint: each leaves what the writer appended while it ran.
const ROUNDS: usize = 4;
/// Pages that the writer may move itself.
const REST: i64 = (2 << 20) / PAGE_SIZE;

/// Nothing to do.
const IDLE: u8 = 0;
/// The thread was told to begin.
const RUNNING: u8 = 1;
/// The rest is the writer's.
const HANDED: u8 = 2;

thread_local! {
    /// Pages in the log after the last commit of this thread.
    static PAGES: Cell<c_int> = const { Cell::new(0) };
}

fn note(_: &Wal, pages: c_int) -> rusqlite::Result<()> {
    PAGES.set(pages);
    Ok(())
}

/// The checkpoints of one writer. The thread ends when this is dropped.
pub(super) struct Checkpoints {
    state: Arc<AtomicU8>,
    wake: Option<mpsc::SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    every: c_int,
    /// Pages of the log at which the next one begins.
    due: c_int,
    last: c_int,
}

impl Checkpoints {
    /// `every`: pages of the log from which it is worth it.
    pub(super) fn start(file: &Path, every: c_int) -> std::io::Result<Self> {
        let state = Arc::new(AtomicU8::new(IDLE));
        let (wake, told) = mpsc::sync_channel(1);
        let (its_state, file) = (Arc::clone(&state), file.to_owned());
        let thread = std::thread::Builder::new()
            .name("cerca-checkpoint".to_owned())
            .spawn(move || run(&told, &file, &its_state))?;
        Ok(Self {
            state,
            wake: Some(wake),
            thread: Some(thread),
            every,
            due: every,
            last: 0,
        })
    }

    /// The connection no longer stops for checkpoints of its own.
    pub(super) fn take_over(db: &Connection) {
        db.wal_hook(Some(note));
    }

    /// To be called by the writer after each commit, outside of a transaction.
    pub(super) fn after_commit(&mut self, db: &Connection) {
        let pages = PAGES.get();
        if pages < self.last {
            self.due = self.every;
        }
        self.last = pages;
        match self.state.load(Ordering::Acquire) {
            IDLE if pages >= self.due => {
                self.state.store(RUNNING, Ordering::Release);
                let told = self.wake.as_ref().is_some_and(|wake| wake.try_send(()).is_ok());
                if !told {
                    self.state.store(HANDED, Ordering::Release);
                }
            }
            HANDED => {
                let _ = checkpoint(db);
                // A reader may keep the log from beginning anew: then not after every commit.
                self.due = pages.saturating_add(self.every / 2);
                self.state.store(IDLE, Ordering::Release);
            }
            _ => {}
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(told: &mpsc::Receiver<()>, file: &Path, state: &AtomicU8) {
    let mut db = None;
    while told.recv().is_ok() {
        // Where it cannot be opened, or fails, everything is the writer's, as without this thread.
        if db.is_none() {
            db = open(file).ok();
        }
        let is_fine = db.as_ref().is_some_and(|db| {
            (0..ROUNDS).try_for_each(|_| match checkpoint(db) {
                Ok(left) if left > REST => Ok(()),
                Ok(_) => Err(true),
                Err(_) => Err(false),
            }) != Err(false)
        });
        if !is_fine {
            db = None;
        }
        state.store(HANDED, Ordering::Release);
    }
}

fn open(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file, flags)?;
    db.busy_timeout(connect::BUSY_TIMEOUT)?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "fullfsync", true)?;
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    Ok(db)
}

/// Moves what no reader still needs, without waiting for anyone; gives how many pages are left.
fn checkpoint(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        Ok(row.get::<_, i64>(1)? - row.get::<_, i64>(2)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_begins_anew_without_the_writer_stopping_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        let (db, _) = connect::writer(&file).unwrap();
        db.execute_batch("CREATE TABLE t (x BLOB)").unwrap();
        Checkpoints::take_over(&db);
        let mut checkpoints = Checkpoints::start(&file, 20).unwrap();
        let (mut highest, mut resets) = (0, 0);
        for n in 0..5_000 {
            db.execute("INSERT INTO t VALUES (zeroblob(20000))", []).unwrap();
            let before = checkpoints.last;
            checkpoints.after_commit(&db);
            resets += u32::from(checkpoints.last < before);
            highest = highest.max(checkpoints.last);
            if resets > 3 && n > 200 {
                break;
            }
            std::thread::yield_now();
        }
        assert!(resets > 3, "{resets}, {highest}");
        drop(checkpoints);
        let checked: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(checked, "ok");
    }

    #[test]
    fn a_reader_holds_it_up_and_does_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        let (db, _) = connect::writer(&file).unwrap();
        db.execute_batch("CREATE TABLE t (x BLOB)").unwrap();
        Checkpoints::take_over(&db);
        let reader = open(&file).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM t;").unwrap();
        let mut checkpoints = Checkpoints::start(&file, 4).unwrap();
        for _ in 0..100 {
            db.execute("INSERT INTO t VALUES (zeroblob(20000))", []).unwrap();
            checkpoints.after_commit(&db);
        }
        assert!(checkpoints.last > 100, "the log cannot begin anew");
        let seen: i64 = reader
            .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
            .unwrap();
        assert_eq!(seen, 0);
        drop((checkpoints, reader));
        let stored: i64 = db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(stored, 100);
    }
}

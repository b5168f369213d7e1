-- Long jobs of people and the clock: what was asked, and how far it is, so that each can go on where it ended.

-- Reprocessing by filter, from the newest event that there was at its start down to the oldest. `cursor` is moved in the
-- transaction that makes the deliveries ready, so that a crash neither repeats nor skips.
CREATE TABLE reprocess_jobs (
    id         INTEGER PRIMARY KEY,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- Who runs it: `cli`, which stays, or `server`, which goes on with it after a restart.
    runner     TEXT NOT NULL CHECK (runner IN ('cli', 'server')),
    actor      TEXT NOT NULL,
    reason     TEXT,
    filter     TEXT NOT NULL,
    handlers   TEXT,
    -- Whether native handlers do their recorded steps again.
    forget_steps INTEGER NOT NULL DEFAULT 0,
    -- Events a second; none: as fast as it goes.
    rate       INTEGER CHECK (rate > 0),
    state      TEXT NOT NULL CHECK (state IN ('running', 'done', 'stopped')),
    -- Events below this are still to do.
    cursor     INTEGER NOT NULL,
    total      INTEGER NOT NULL,
    events     INTEGER NOT NULL DEFAULT 0,
    deliveries INTEGER NOT NULL DEFAULT 0,
    audit_id   INTEGER NOT NULL
) STRICT;

CREATE INDEX reprocess_jobs_running ON reprocess_jobs (id) WHERE state = 'running';

-- Until when the events of a provider were compared with its API, and since when that is being done.
CREATE TABLE backfills (
    provider      TEXT PRIMARY KEY,
    started_at    INTEGER NOT NULL,
    covered_until INTEGER
) STRICT, WITHOUT ROWID;

-- The audit takes any action from here on: each new one would need another table.
CREATE TABLE audit_any (
    id         INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL CHECK (length(action) > 0),
    target     TEXT NOT NULL,
    reason     TEXT,
    deliveries INTEGER NOT NULL
) STRICT;
INSERT INTO audit_any SELECT id, at, actor, action, target, reason, deliveries FROM audit;
DROP TABLE audit;
ALTER TABLE audit_any RENAME TO audit;

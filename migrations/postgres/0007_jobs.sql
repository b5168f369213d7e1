-- Long jobs of people and the clock: what was asked, and how far it is, so that each can go on where it ended.

-- Reprocessing by filter, from the newest event that there was at its start down to the oldest. `cursor` is moved in the
-- transaction that makes the deliveries ready, so that a crash neither repeats nor skips.
CREATE TABLE reprocess_jobs (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    -- Who runs it: `cli`, which stays, or `server`, which goes on with it after a restart.
    runner     text NOT NULL CHECK (runner IN ('cli', 'server')),
    actor      text NOT NULL,
    reason     text,
    filter     text NOT NULL,
    handlers   text,
    -- Whether native handlers do their recorded steps again.
    forget_steps boolean NOT NULL DEFAULT false,
    -- Events a second; none: as fast as it goes.
    rate       bigint CHECK (rate > 0),
    state      text NOT NULL CHECK (state IN ('running', 'done', 'stopped')),
    -- Events below this are still to do.
    cursor     bigint NOT NULL,
    total      bigint NOT NULL,
    events     bigint NOT NULL DEFAULT 0,
    deliveries bigint NOT NULL DEFAULT 0,
    audit_id   bigint NOT NULL
);

CREATE INDEX reprocess_jobs_running ON reprocess_jobs (id) WHERE state = 'running';

-- Until when the events of a provider were compared with its API, and since when that is being done.
CREATE TABLE backfills (
    provider      text COLLATE "C" PRIMARY KEY,
    started_at    timestamptz NOT NULL,
    covered_until timestamptz
);

-- The audit takes any action from here on.
ALTER TABLE audit DROP CONSTRAINT IF EXISTS audit_action_check;
ALTER TABLE audit ADD CONSTRAINT audit_action_check CHECK (length(action) > 0);

-- What native handlers have done of a delivery, step by step, so that a retry resumes after the last one. Rows are only
-- added; they go with the event's history, or when a reprocess asks for a clean slate.
CREATE TABLE steps (
    event_id    INTEGER NOT NULL,
    handler     TEXT NOT NULL,
    step        TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    result      TEXT NOT NULL,
    PRIMARY KEY (event_id, handler, step)
) STRICT, WITHOUT ROWID;

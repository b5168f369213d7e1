-- What native handlers have done of a delivery, step by step, so that a retry resumes after the last one. Rows are only
-- added; they go with the event's history, or when a reprocess asks for a clean slate. `text`, because `jsonb` cannot
-- hold every valid JSON.
CREATE TABLE steps (
    event_id    bigint NOT NULL,
    handler     text COLLATE "C" NOT NULL,
    step        text COLLATE "C" NOT NULL,
    attempt     integer NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    result      text COMPRESSION lz4 NOT NULL,
    PRIMARY KEY (event_id, handler, step)
);

-- What an application wants told to the world, written in its own transaction:
--     INSERT INTO outbox (idempotency_key, topic, payload) VALUES (…)
-- The relay makes an event of each row and removes it in one transaction, so the table is as long as the relay is
-- behind. `payload` takes a text or a blob, as it is. Applications bring a SQLite of their own: 3.37 is enough.
CREATE TABLE outbox (
    id              INTEGER PRIMARY KEY,
    idempotency_key TEXT NOT NULL UNIQUE
                    CHECK (length(CAST(idempotency_key AS BLOB)) BETWEEN 1 AND 2048 AND instr(CAST(idempotency_key AS BLOB), x'00') = 0),
    topic           TEXT NOT NULL
                    CHECK (length(CAST(topic AS BLOB)) BETWEEN 1 AND 1024 AND instr(CAST(topic AS BLOB), x'00') = 0),
    payload         ANY NOT NULL CHECK (typeof(payload) IN ('text', 'blob') AND length(CAST(payload AS BLOB)) <= 33554432),
    content_type    TEXT CHECK (length(CAST(content_type AS BLOB)) BETWEEN 1 AND 256),
    headers         TEXT CHECK (headers IS NULL OR length(CAST(headers AS BLOB)) <= 16384 AND json_valid(headers) AND json_type(headers) = 'object'),
    ordering_key    TEXT CHECK (length(CAST(ordering_key AS BLOB)) BETWEEN 1 AND 2048),
    -- Unix microseconds, to the millisecond; the relay keeps rows of one millisecond in the order of their ids.
    created_at      INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
    -- Why the relay cannot take the row; it is passed by until somebody corrects it and sets this to NULL.
    error           TEXT
) STRICT;

CREATE INDEX outbox_waiting ON outbox (id) WHERE error IS NULL;

-- Requests that were refused, kept for a while so that a person can see why, and take them in all the same.
-- Never holds a credential: headers are those that events are stored with, and signatures, which prove one body only.
CREATE TABLE quarantine (
    id           INTEGER PRIMARY KEY,
    at           INTEGER NOT NULL,
    provider     TEXT NOT NULL,
    reason       TEXT NOT NULL,
    detail       TEXT,
    -- Whether the sender was proved; what strangers sent goes first when there is no room.
    authentic    INTEGER NOT NULL CHECK (authentic IN (0, 1)),
    method       TEXT NOT NULL,
    -- Path and query as called; a query that may hold a credential is left out.
    target       TEXT NOT NULL,
    client       TEXT,
    headers      TEXT NOT NULL,
    -- What is not kept of the request, in words; such a request cannot be verified again.
    left_out     TEXT,
    size         INTEGER NOT NULL CHECK (size >= 0),
    body_sha256  BLOB NOT NULL CHECK (length(body_sha256) = 32),
    readmitted_at INTEGER,
    body         BLOB NOT NULL
) STRICT;

CREATE INDEX quarantine_room ON quarantine (authentic, id, size);

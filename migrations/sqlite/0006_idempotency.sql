-- Answers to requests that carried an Idempotency-Key. A row is reserved before its request runs, and completed with the
-- answer. `scope` is the SHA-256 of the principal (a credential as a rule, so it is never stored), in hexadecimal.
CREATE TABLE api_idempotency_keys (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    scope            TEXT NOT NULL,
    method           TEXT NOT NULL,
    route            TEXT NOT NULL,
    key              TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    request_hash     BLOB NOT NULL CHECK (length(request_hash) = 32),
    -- completed: it was answered; failed: with 5xx, or nobody knows how it ended (then there is no response_status).
    status           TEXT NOT NULL DEFAULT 'processing' CHECK (status IN ('processing', 'completed', 'failed')),
    -- reserved: nothing has happened yet; sent: it may have had its effect.
    recovery_point   TEXT NOT NULL DEFAULT 'reserved' CHECK (recovery_point IN ('reserved', 'sent')),
    lease_token      INTEGER NOT NULL,
    locked_until     INTEGER NOT NULL,
    response_status  INTEGER,
    -- [["name","value"], ...]; a byte of a value is the character of that number.
    response_headers TEXT,
    resource_id      TEXT,
    created_at       INTEGER NOT NULL,
    completed_at     INTEGER,
    expires_at       INTEGER NOT NULL,
    -- None with a response_status: it was too large to keep.
    response_body    BLOB,
    UNIQUE (scope, method, route, key),
    CHECK ((status = 'processing') = (completed_at IS NULL)),
    CHECK (status <> 'completed' OR response_status IS NOT NULL)
) STRICT;

CREATE INDEX api_idempotency_keys_created ON api_idempotency_keys (created_at);
CREATE INDEX api_idempotency_keys_locked ON api_idempotency_keys (locked_until) WHERE status = 'processing';

-- Answers to requests that carried an Idempotency-Key. A row is reserved before its request runs, and completed with the
-- answer. `scope` is the SHA-256 of the principal (a credential as a rule, so it is never stored), in hexadecimal.
CREATE TABLE api_idempotency_keys (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope            text COLLATE "C" NOT NULL,
    method           text COLLATE "C" NOT NULL,
    route            text COLLATE "C" NOT NULL,
    key              text COLLATE "C" NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    request_hash     bytea NOT NULL CHECK (length(request_hash) = 32),
    -- completed: it was answered; failed: with 5xx, or nobody knows how it ended (then there is no response_status).
    status           text COLLATE "C" NOT NULL DEFAULT 'processing'
                     CHECK (status IN ('processing', 'completed', 'failed')),
    -- reserved: nothing has happened yet; sent: it may have had its effect.
    recovery_point   text COLLATE "C" NOT NULL DEFAULT 'reserved' CHECK (recovery_point IN ('reserved', 'sent')),
    lease_token      bigint NOT NULL,
    locked_until     timestamptz NOT NULL,
    response_status  smallint,
    -- [["name","value"], ...]; a byte of a value is the character of that number.
    response_headers text,
    resource_id      text,
    created_at       timestamptz NOT NULL DEFAULT now(),
    completed_at     timestamptz,
    expires_at       timestamptz NOT NULL,
    -- None with a response_status: it was too large to keep.
    response_body    bytea COMPRESSION lz4,
    UNIQUE (scope, method, route, key),
    CHECK ((status = 'processing') = (completed_at IS NULL)),
    CHECK (status <> 'completed' OR response_status IS NOT NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX api_idempotency_keys_created ON api_idempotency_keys (created_at);
CREATE INDEX api_idempotency_keys_locked ON api_idempotency_keys (locked_until) WHERE status = 'processing';

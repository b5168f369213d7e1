-- Times are unix microseconds. The views show them as RFC 3339 text.

-- The ledger: written once; only retention touches a row again, to take its payload and headers away.
-- The payload is the last column: SQLite reads a row from the front, and lists must not walk through bodies.
CREATE TABLE webhook_events (
    id                INTEGER PRIMARY KEY,
    provider          TEXT NOT NULL,
    provider_event_id TEXT NOT NULL,
    event_type        TEXT,
    content_type      TEXT,
    size              INTEGER NOT NULL CHECK (size >= 0),
    body_sha256       BLOB NOT NULL CHECK (length(body_sha256) = 32),
    ordering_key      TEXT,
    occurred_at       INTEGER,
    routes            TEXT NOT NULL,
    created_at        INTEGER NOT NULL,
    headers           TEXT,
    payload           BLOB,
    UNIQUE (provider, provider_event_id)
) STRICT;

CREATE INDEX webhook_events_unrouted ON webhook_events (id) WHERE routes = '';

-- The work list: one row for each event and handler that is not done. A row leaves when it is done.
CREATE TABLE deliveries (
    event_id     INTEGER NOT NULL,
    handler      TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('ready', 'claimed', 'blocked', 'dead', 'discarded')),
    run_at       INTEGER NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    lease_token  INTEGER,
    lease_until  INTEGER,
    ordering_key TEXT,
    last_error   TEXT,
    PRIMARY KEY (event_id, handler),
    CHECK ((state = 'claimed') = (lease_token IS NOT NULL)),
    CHECK ((lease_token IS NULL) = (lease_until IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX deliveries_ready ON deliveries (handler, run_at, event_id) WHERE state = 'ready';
CREATE INDEX deliveries_leases ON deliveries (lease_until) WHERE state = 'claimed';
CREATE INDEX deliveries_dead ON deliveries (event_id, handler) WHERE state = 'dead';
CREATE INDEX deliveries_discarded ON deliveries (event_id, handler) WHERE state = 'discarded';

-- The history: append-only.
CREATE TABLE attempts (
    event_id    INTEGER NOT NULL,
    handler     TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    outcome     TEXT NOT NULL CHECK (outcome IN ('done', 'retry', 'dead', 'lost', 'unknown', 'filtered')),
    detail      TEXT
) STRICT;

CREATE INDEX attempts_event ON attempts (event_id);

-- Other bodies that came under the id of an event. The first body stays in the ledger.
CREATE TABLE conflicts (
    event_id    INTEGER NOT NULL,
    body_sha256 BLOB NOT NULL CHECK (length(body_sha256) = 32),
    first_seen  INTEGER NOT NULL,
    last_seen   INTEGER NOT NULL,
    seen        INTEGER NOT NULL CHECK (seen > 0),
    PRIMARY KEY (event_id, body_sha256)
) STRICT, WITHOUT ROWID;

-- Who reprocessed or discarded what.
CREATE TABLE audit (
    id         INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL CHECK (length(action) > 0),
    target     TEXT NOT NULL,
    reason     TEXT,
    deliveries INTEGER NOT NULL
) STRICT;

-- One branch for each status, each with its literal, so that `WHERE status = 'failed'` starts from the work list.
CREATE VIEW inbox AS
WITH
shown AS NOT MATERIALIZED (
    SELECT provider, provider_event_id, event_type, payload, id, size, content_type, ordering_key, routes,
           strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at,
           strftime('%Y-%m-%dT%H:%M:%S', occurred_at / 1000000, 'unixepoch') || printf('.%06dZ', occurred_at % 1000000) AS occurred_at,
           lower(hex(body_sha256)) AS body_sha256, headers
    FROM webhook_events
)
SELECT provider, provider_event_id, event_type, payload, 'pending' AS status, created_at, NULL AS processed_at,
       id, occurred_at, ordering_key, content_type, size, body_sha256, headers, routes
FROM shown e
WHERE e.id IN (SELECT event_id FROM deliveries WHERE state IN ('ready', 'claimed', 'blocked'))
UNION ALL
SELECT provider, provider_event_id, event_type, payload, 'failed', created_at, NULL,
       id, occurred_at, ordering_key, content_type, size, body_sha256, headers, routes
FROM shown e
WHERE e.id IN (SELECT event_id FROM deliveries WHERE state = 'dead')
  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.state IN ('ready', 'claimed', 'blocked'))
UNION ALL
SELECT provider, provider_event_id, event_type, payload, 'discarded', created_at, NULL,
       id, occurred_at, ordering_key, content_type, size, body_sha256, headers, routes
FROM shown e
WHERE e.id IN (SELECT event_id FROM deliveries WHERE state = 'discarded')
  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.state <> 'discarded')
UNION ALL
SELECT provider, provider_event_id, event_type, payload, 'unrouted', created_at, NULL,
       id, occurred_at, ordering_key, content_type, size, body_sha256, headers, routes
FROM shown e
WHERE e.routes = ''
  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id)
  AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id)
UNION ALL
SELECT provider, provider_event_id, event_type, payload, 'done', created_at,
       (SELECT strftime('%Y-%m-%dT%H:%M:%S', t / 1000000, 'unixepoch') || printf('.%06dZ', t % 1000000)
        FROM (SELECT max(a.started_at + a.duration_ms * 1000) AS t FROM attempts a
              WHERE a.event_id = e.id AND a.outcome IN ('done', 'filtered'))),
       id, occurred_at, ordering_key, content_type, size, body_sha256, headers, routes
FROM shown e
WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id)
  AND (e.routes <> '' OR EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id));

-- The payload as JSON text where it is JSON, else NULL; never an error.
CREATE VIEW inbox_json AS
SELECT provider, provider_event_id, event_type,
       CASE WHEN json_valid(CAST(payload AS TEXT)) THEN CAST(payload AS TEXT) END AS payload,
       status, created_at, processed_at, id, occurred_at, ordering_key, content_type, size, body_sha256, headers, routes
FROM inbox;

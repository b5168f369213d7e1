-- Texts compare by bytes: quicker, the same on both engines, and no index breaks with the system's collations.

-- The ledger: written once; only retention touches a row again, to take its payload and headers away.
CREATE TABLE webhook_events (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider          text COLLATE "C" NOT NULL,
    provider_event_id text COLLATE "C" NOT NULL,
    event_type        text COLLATE "C",
    content_type      text COLLATE "C",
    size              integer NOT NULL CHECK (size >= 0),
    body_sha256       bytea NOT NULL CHECK (length(body_sha256) = 32),
    ordering_key      text COLLATE "C",
    occurred_at       timestamptz,
    routes            text COLLATE "C" NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now(),
    headers           text,
    payload           bytea COMPRESSION lz4,
    UNIQUE (provider, provider_event_id)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

CREATE INDEX webhook_events_unrouted ON webhook_events (id) WHERE routes = '';

-- The work list: one row for each event and handler that is not done. A row leaves when it is done, so the table is
-- short and churns: vacuum it early and at full speed. No foreign key: the hot path pays for none.
CREATE TABLE deliveries (
    event_id     bigint NOT NULL,
    handler      text COLLATE "C" NOT NULL,
    state        text COLLATE "C" NOT NULL
                 CHECK (state IN ('ready', 'claimed', 'blocked', 'dead', 'discarded')),
    run_at       timestamptz NOT NULL DEFAULT now(),
    attempts     integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    lease_token  bigint,
    lease_until  timestamptz,
    ordering_key text COLLATE "C",
    last_error   text,
    PRIMARY KEY (event_id, handler),
    CHECK ((state = 'claimed') = (lease_token IS NOT NULL)),
    CHECK ((lease_token IS NULL) = (lease_until IS NULL))
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX deliveries_ready ON deliveries (handler, run_at, event_id) WHERE state = 'ready';
CREATE INDEX deliveries_leases ON deliveries (lease_until) WHERE state = 'claimed';
CREATE INDEX deliveries_dead ON deliveries (event_id, handler) WHERE state = 'dead';
CREATE INDEX deliveries_discarded ON deliveries (event_id, handler) WHERE state = 'discarded';

-- The history: append-only.
CREATE TABLE attempts (
    event_id    bigint NOT NULL,
    handler     text COLLATE "C" NOT NULL,
    attempt     integer NOT NULL,
    started_at  timestamptz NOT NULL,
    duration_ms bigint NOT NULL,
    outcome     text COLLATE "C" NOT NULL CHECK (outcome IN ('done', 'retry', 'dead', 'lost', 'unknown', 'filtered')),
    detail      text,
    written_at  timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX attempts_event ON attempts (event_id);

-- Other bodies that came under the id of an event. The first body stays in the ledger.
CREATE TABLE conflicts (
    event_id    bigint NOT NULL,
    body_sha256 bytea NOT NULL CHECK (length(body_sha256) = 32),
    first_seen  timestamptz NOT NULL DEFAULT now(),
    last_seen   timestamptz NOT NULL DEFAULT now(),
    seen        bigint NOT NULL CHECK (seen > 0),
    PRIMARY KEY (event_id, body_sha256)
);

-- Who reprocessed or discarded what.
CREATE TABLE audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    actor      text NOT NULL,
    action     text NOT NULL CHECK (length(action) > 0),
    target     text NOT NULL,
    reason     text,
    deliveries bigint NOT NULL
);

-- One branch for each status, each with its literal, so that `WHERE status = 'failed'` starts from the work list.
CREATE VIEW inbox AS
SELECT provider, provider_event_id, event_type, payload, 'pending'::text AS status, created_at,
       NULL::timestamptz AS processed_at, id, occurred_at, ordering_key, content_type, size, body_sha256, headers, routes
FROM webhook_events e
WHERE e.id IN (SELECT event_id FROM deliveries WHERE state IN ('ready', 'claimed', 'blocked'))
UNION ALL
SELECT provider, provider_event_id, event_type, payload, 'failed'::text, created_at,
       NULL::timestamptz, id, occurred_at, ordering_key, content_type, size, body_sha256, headers, routes
FROM webhook_events e
WHERE e.id IN (SELECT event_id FROM deliveries WHERE state = 'dead')
  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.state IN ('ready', 'claimed', 'blocked'))
UNION ALL
SELECT provider, provider_event_id, event_type, payload, 'discarded'::text, created_at,
       NULL::timestamptz, id, occurred_at, ordering_key, content_type, size, body_sha256, headers, routes
FROM webhook_events e
WHERE e.id IN (SELECT event_id FROM deliveries WHERE state = 'discarded')
  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.state <> 'discarded')
UNION ALL
SELECT provider, provider_event_id, event_type, payload, 'unrouted'::text, created_at,
       NULL::timestamptz, id, occurred_at, ordering_key, content_type, size, body_sha256, headers, routes
FROM webhook_events e
WHERE e.routes = ''
  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id)
  AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id)
UNION ALL
SELECT provider, provider_event_id, event_type, payload, 'done'::text, created_at,
       (SELECT max(a.started_at + a.duration_ms * interval '1 millisecond') FROM attempts a
        WHERE a.event_id = e.id AND a.outcome IN ('done', 'filtered')),
       id, occurred_at, ordering_key, content_type, size, body_sha256, headers, routes
FROM webhook_events e
WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id)
  AND (e.routes <> '' OR EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id));

-- Bytes as JSON where they are JSON, else NULL. `json`, because `jsonb` cannot hold every valid text.
CREATE FUNCTION cerca_json(payload bytea) RETURNS json LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN convert_from(payload, 'UTF8')::json;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

CREATE VIEW inbox_json AS
SELECT provider, provider_event_id, event_type, cerca_json(payload) AS payload, status, created_at, processed_at,
       id, occurred_at, ordering_key, content_type, size, body_sha256, headers, routes
FROM inbox;

-- ingest.sql for a batch with ordered deliveries: those of the handlers in $15 whose events have an ordering key join their
-- lane as blocked, and are advanced after the commit. $16: for each of these handlers, whether a dead one holds its lane.
WITH stored AS (
    INSERT INTO webhook_events (provider, provider_event_id, event_type, content_type, size, body_sha256,
                                ordering_key, occurred_at, routes, headers, payload)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int4[], $6::bytea[],
                         $7::text[], $8::timestamptz[], $9::text[], $10::text[], $11::bytea[])
    ON CONFLICT (provider, provider_event_id) DO NOTHING
    RETURNING id, provider, provider_event_id, routes, ordering_key, occurred_at, created_at
),
-- Deliveries of the handlers in $12 have a worker already: it gets them with their bytes still in memory.
routed AS MATERIALIZED (
    SELECT stored.*, r.handler, o.dead_holds,
           CASE WHEN o.handler IS NOT NULL THEN cerca_lane(stored.provider, stored.ordering_key) END AS lane,
           r.handler = ANY ($12) AS is_handed
    FROM stored
    CROSS JOIN LATERAL unnest(string_to_array(stored.routes, ',')) AS r (handler)
    LEFT JOIN unnest($15::text[], $16::boolean[]) AS o (handler, dead_holds) ON o.handler = r.handler
    WHERE stored.routes <> ''
),
listed AS (
    INSERT INTO deliveries (event_id, handler, state, attempts, lease_token, lease_until, ordering_key, share,
                            lane, lane_at, dead_holds)
    SELECT id, handler,
           CASE WHEN lane IS NOT NULL THEN 'blocked' WHEN is_handed THEN 'claimed' ELSE 'ready' END,
           CASE WHEN lane IS NULL AND is_handed THEN 1 ELSE 0 END,
           CASE WHEN lane IS NULL AND is_handed THEN $13::bigint END,
           CASE WHEN lane IS NULL AND is_handed THEN now() + $14::bigint * interval '1 microsecond' END,
           ordering_key,
           hashtext(provider) & -2,
           lane,
           CASE WHEN lane IS NOT NULL THEN coalesce(occurred_at, created_at) END,
           coalesce(dead_holds, false)
    FROM routed
)
SELECT id, provider, provider_event_id, created_at FROM stored

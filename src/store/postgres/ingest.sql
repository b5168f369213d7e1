-- Stores a batch of distinct events, sorted by key, with their deliveries. Gives the rows that are new.
WITH stored AS (
    INSERT INTO webhook_events (provider, provider_event_id, event_type, content_type, size, body_sha256,
                                ordering_key, occurred_at, routes, headers, payload)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int4[], $6::bytea[],
                         $7::text[], $8::timestamptz[], $9::text[], $10::text[], $11::bytea[])
    ON CONFLICT (provider, provider_event_id) DO NOTHING
    RETURNING id, provider, provider_event_id, routes, ordering_key, created_at
),
-- Deliveries of the handlers in $12 have a worker already: it gets them with their bytes still in memory.
listed AS (
    INSERT INTO deliveries (event_id, handler, state, attempts, lease_token, lease_until, ordering_key, share)
    SELECT stored.id, handler,
           CASE WHEN handler = ANY ($12) THEN 'claimed' ELSE 'ready' END,
           CASE WHEN handler = ANY ($12) THEN 1 ELSE 0 END,
           CASE WHEN handler = ANY ($12) THEN $13::bigint END,
           CASE WHEN handler = ANY ($12) THEN now() + $14::bigint * interval '1 microsecond' END,
           stored.ordering_key,
           hashtext(stored.provider) & -2
    FROM stored, unnest(string_to_array(stored.routes, ',')) AS handler
    WHERE stored.routes <> ''
)
SELECT id, provider, provider_event_id, created_at FROM stored

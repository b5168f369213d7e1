-- Gives deliveries of some events a new life. $2: the handlers asked for, or NULL. $3: only count.
-- The events are locked against a purge, because without its bytes an event cannot be delivered again.
WITH target AS MATERIALIZED (
    SELECT id, ordering_key, routes FROM webhook_events
    WHERE id = ANY ($1) AND payload IS NOT NULL ORDER BY id FOR SHARE
),
wanted AS MATERIALIZED (
    SELECT t.id, t.ordering_key, handler FROM target t, unnest($2::text[]) AS handler
    UNION
    -- Not told which: those that are dead or discarded,
    SELECT t.id, t.ordering_key, d.handler FROM target t JOIN deliveries d ON d.event_id = t.id
    WHERE $2 IS NULL AND d.state IN ('dead', 'discarded') AND d.handler <> '*'
    UNION
    -- or the routes at ingest, where none is.
    SELECT t.id, t.ordering_key, handler FROM target t, unnest(string_to_array(t.routes, ',')) AS handler
    WHERE $2 IS NULL AND t.routes <> ''
      AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = t.id AND d.state IN ('dead', 'discarded'))
),
-- The mark of an event that had no delivery and was given up.
unmarked AS (
    DELETE FROM deliveries d USING target t WHERE NOT $3 AND d.event_id = t.id AND d.handler = '*'
),
revived AS (
    INSERT INTO deliveries (event_id, handler, state, ordering_key)
    SELECT id, handler, 'ready', ordering_key FROM wanted WHERE NOT $3 ORDER BY id, handler
    ON CONFLICT (event_id, handler)
    DO UPDATE SET state = 'ready', run_at = now(), attempts = 0, last_error = NULL
    WHERE deliveries.state IN ('dead', 'discarded')
    RETURNING 1
)
SELECT (SELECT count(*) FROM target),
       CASE WHEN $3
           THEN (SELECT count(*) FROM wanted w WHERE NOT EXISTS (
                     SELECT 1 FROM deliveries d WHERE d.event_id = w.id AND d.handler = w.handler
                     AND d.state IN ('ready', 'claimed', 'blocked')))
           ELSE (SELECT count(*) FROM revived)
       END

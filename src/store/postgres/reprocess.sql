-- Gives deliveries of some events a new life. $2: the handlers asked for, or NULL. $3: only count. $4, $5: the ordered
-- handlers, and whether a dead delivery holds its lane; what is ordered joins its lane as blocked and is to be advanced.
-- The events are locked against a purge, because without its bytes an event cannot be delivered again.
WITH target AS MATERIALIZED (
    SELECT id, ordering_key, routes, provider, coalesce(occurred_at, created_at) AS at FROM webhook_events
    WHERE id = ANY ($1) AND payload IS NOT NULL ORDER BY id FOR SHARE
),
wanted AS MATERIALIZED (
    SELECT t.id, handler FROM target t, unnest($2::text[]) AS handler
    UNION
    -- Not told which: those that are dead or discarded,
    SELECT t.id, d.handler FROM target t JOIN deliveries d ON d.event_id = t.id
    WHERE $2 IS NULL AND (d.state IN ('dead', 'discarded') OR d.discard) AND d.handler <> '*'
    UNION
    -- or the routes at ingest, where none is.
    SELECT t.id, handler FROM target t, unnest(string_to_array(t.routes, ',')) AS handler
    WHERE $2 IS NULL AND t.routes <> ''
      AND NOT EXISTS (SELECT 1 FROM deliveries d
                      WHERE d.event_id = t.id AND (d.state IN ('dead', 'discarded') OR d.discard))
),
-- What waits or is in flight is left alone. That is judged here: an insert would wait for an effect in flight, find its
-- delivery gone, and have the effect done again.
given_up AS MATERIALIZED (
    SELECT w.id, w.handler, coalesce(d.discard, false) AS in_flight
    FROM wanted w
    LEFT JOIN LATERAL (
        SELECT state, discard FROM deliveries WHERE event_id = w.id AND handler = w.handler LIMIT 1
    ) d ON true
    WHERE d.state IS NULL OR d.state IN ('dead', 'discarded') OR d.discard
),
-- In flight, and not to be discarded after all.
kept AS (
    UPDATE deliveries d SET discard = false FROM given_up g
    WHERE NOT $3 AND g.in_flight AND d.event_id = g.id AND d.handler = g.handler AND d.discard
    RETURNING 1
),
-- The mark of an event that had no delivery and was given up.
unmarked AS (
    DELETE FROM deliveries d USING target t WHERE NOT $3 AND d.event_id = t.id AND d.handler = '*'
),
lined AS MATERIALIZED (
    SELECT g.id, g.handler, t.ordering_key, t.at, t.provider, coalesce(o.dead_holds, false) AS dead_holds,
           CASE WHEN o.handler IS NOT NULL THEN cerca_lane(t.provider, t.ordering_key) END AS lane
    FROM given_up g
    JOIN target t ON t.id = g.id
    LEFT JOIN unnest($4::text[], $5::boolean[]) AS o (handler, dead_holds) ON o.handler = g.handler
    WHERE NOT $3 AND NOT g.in_flight
),
-- What leaves a lane, because its handler is not ordered any more, leaves it to the others.
left_lane AS MATERIALIZED (
    SELECT d.handler, d.lane FROM lined l JOIN deliveries d ON d.event_id = l.id AND d.handler = l.handler
    WHERE d.lane IS NOT NULL
),
revived AS (
    INSERT INTO deliveries (event_id, handler, state, ordering_key, lane, lane_at, dead_holds, share)
    SELECT id, handler, CASE WHEN lane IS NULL THEN 'ready' ELSE 'blocked' END, ordering_key, lane,
           CASE WHEN lane IS NOT NULL THEN at END, dead_holds, hashtext(provider) | 1
    FROM lined ORDER BY id, handler
    ON CONFLICT (event_id, handler)
    DO UPDATE SET state = excluded.state, run_at = now(), attempts = 0, last_error = NULL, lost = 0,
                  lane = excluded.lane, lane_at = excluded.lane_at, dead_holds = excluded.dead_holds,
                  share = excluded.share
    WHERE deliveries.state IN ('dead', 'discarded')
    RETURNING handler, lane
),
lane AS (
    SELECT handler, lane FROM revived WHERE lane IS NOT NULL
    UNION
    SELECT handler, lane FROM left_lane
)
SELECT (SELECT count(*) FROM target),
       CASE WHEN $3 THEN (SELECT count(*) FROM given_up)
            ELSE (SELECT count(*) FROM revived) + (SELECT count(*) FROM kept) END,
       (SELECT coalesce(array_agg(handler), '{}') FROM lane),
       (SELECT coalesce(array_agg(lane), '{}') FROM lane)

-- Blocks what is ready and not the first of its line. What a claim has taken meanwhile is left alone.
WITH lane AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::bigint[]) AS l (handler, lane)
),
-- The first of each line: an open delivery, or a dead one that holds it.
first AS MATERIALIZED (
    SELECT l.handler, l.lane, f.event_id, f.state, f.place
    FROM lane l
    CROSS JOIN LATERAL (
        SELECT event_id, state, ctid AS place FROM deliveries
        WHERE handler = l.handler AND lane = l.lane AND lane IS NOT NULL AND state <> 'discarded'
          AND (state <> 'dead' OR dead_holds)
        ORDER BY lane_at, event_id LIMIT 1
    ) f
),
late AS MATERIALIZED (
    SELECT d.place
    FROM first f
    CROSS JOIN LATERAL (
        SELECT event_id, state, ctid AS place FROM deliveries
        WHERE handler = f.handler AND lane = f.lane AND lane IS NOT NULL AND state IN ('ready', 'claimed')
        LIMIT 1
    ) d
    WHERE d.state = 'ready' AND d.event_id <> f.event_id
)
UPDATE deliveries d SET state = 'blocked'
FROM late WHERE d.ctid = late.place AND d.state = 'ready'

-- Makes the first of each line ready where it is blocked and nothing of the lane is ready or claimed.
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
free AS MATERIALIZED (
    SELECT f.place
    FROM first f
    WHERE f.state = 'blocked'
      AND NOT EXISTS (SELECT 1 FROM deliveries d
                      WHERE d.handler = f.handler AND d.lane = f.lane AND d.lane IS NOT NULL
                        AND d.state IN ('ready', 'claimed'))
)
UPDATE deliveries d SET state = 'ready'
FROM free WHERE d.ctid = free.place AND d.state = 'blocked'

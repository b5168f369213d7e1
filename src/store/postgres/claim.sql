-- Takes due deliveries of several handlers, each oldest first, until their payloads reach $5 bytes; at least one.
-- Look-ups are lateral and changes go by place, so that no plan depends on statistics (see settle.sql).
WITH due AS MATERIALIZED (
    SELECT d.*
    FROM unnest($1::text[], $2::int4[]) AS want (handler, room)
    CROSS JOIN LATERAL (
        SELECT event_id, handler, run_at, ctid AS place
        FROM deliveries
        WHERE state = 'ready' AND handler = want.handler AND run_at <= now() AND lost = 0
        ORDER BY run_at, event_id
        LIMIT want.room
        FOR UPDATE SKIP LOCKED
    ) d
),
sized AS MATERIALIZED (
    SELECT due.place,
           sum(e.size) OVER arrival AS bytes,
           row_number() OVER arrival AS nth
    FROM due
    CROSS JOIN LATERAL (SELECT size FROM webhook_events WHERE id = due.event_id LIMIT 1) e
    WINDOW arrival AS (ORDER BY due.run_at, due.event_id, due.handler ROWS UNBOUNDED PRECEDING)
)
UPDATE deliveries d
SET state = 'claimed',
    attempts = d.attempts + 1,
    lease_token = $3,
    lease_until = now() + $4::bigint * interval '1 microsecond'
FROM sized s
WHERE (s.bytes <= $5 OR s.nth = 1) AND d.ctid = s.place
RETURNING d.event_id, d.handler, d.attempts

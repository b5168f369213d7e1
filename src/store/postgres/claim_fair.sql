-- Takes due deliveries of several handlers for a backlog: an equal part of each share, so that a flood of one provider, or
-- of failures, leaves room for the others. $1 to $5 as in claim.sql.
WITH RECURSIVE share AS (
    SELECT w.handler, w.room, s.share, 1 AS nth
    FROM unnest($1::text[], $2::int4[]) AS w (handler, room)
    CROSS JOIN LATERAL (
        SELECT d.share FROM deliveries d WHERE d.state = 'ready' AND d.handler = w.handler ORDER BY d.share LIMIT 1
    ) s
    UNION ALL
    SELECT p.handler, p.room, s.share, p.nth + 1
    FROM share p
    CROSS JOIN LATERAL (
        SELECT d.share FROM deliveries d
        WHERE d.state = 'ready' AND d.handler = p.handler AND d.share > p.share ORDER BY d.share LIMIT 1
    ) s
    WHERE p.nth < 1000
),
part AS MATERIALIZED (
    SELECT s.handler, s.share, (s.room + c.shares - 1) / c.shares AS room
    FROM share s
    CROSS JOIN LATERAL (SELECT count(*)::int4 AS shares FROM share o WHERE o.handler = s.handler) c
),
due AS MATERIALIZED (
    SELECT d.*, part.share
    FROM part
    CROSS JOIN LATERAL (
        SELECT event_id, handler, run_at, ctid AS place
        FROM deliveries
        WHERE state = 'ready' AND handler = part.handler AND share = part.share AND run_at <= now() AND lost = 0
        ORDER BY run_at, event_id
        LIMIT part.room
        FOR UPDATE SKIP LOCKED
    ) d
),
-- The first of each share, then the second of each: where bytes are short they are short for all.
turn AS MATERIALIZED (
    SELECT due.*, row_number() OVER (PARTITION BY handler, share ORDER BY run_at, event_id) AS nth FROM due
),
sized AS MATERIALIZED (
    SELECT t.place,
           sum(e.size) OVER arrival AS bytes,
           row_number() OVER arrival AS nth
    FROM turn t
    CROSS JOIN LATERAL (SELECT size FROM webhook_events WHERE id = t.event_id LIMIT 1) e
    WINDOW arrival AS (ORDER BY t.nth, t.run_at, t.event_id, t.handler ROWS UNBOUNDED PRECEDING)
)
UPDATE deliveries d
SET state = 'claimed',
    attempts = d.attempts + 1,
    lease_token = $3,
    lease_until = now() + $4::bigint * interval '1 microsecond'
FROM sized s
WHERE (s.bytes <= $5 OR s.nth = 1) AND d.ctid = s.place
RETURNING d.event_id, d.handler, d.attempts

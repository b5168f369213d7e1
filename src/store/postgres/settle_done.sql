-- Writes attempts that are done, as `settle.sql` does, which is for every outcome; most are this one, and here its cost is half.
WITH done AS (
    DELETE FROM deliveries d
    USING unnest($1::bigint[], $2::text[], $3::bigint[], $4::int4[], $5::timestamptz[], $6::bigint[]) WITH ORDINALITY
        AS s (event_id, handler, token, attempt, started_at, duration_ms, nth)
    -- Found by key and changed by place, as there.
    WHERE d.ctid = (
              SELECT ctid FROM deliveries
              WHERE event_id = s.event_id AND handler = s.handler AND lease_token = s.token
              LIMIT 1
          )
      AND d.lease_token = s.token
    RETURNING s.event_id, s.handler, s.attempt, s.started_at, s.duration_ms, s.nth, d.lane
),
written AS (
    INSERT INTO attempts (event_id, handler, attempt, started_at, duration_ms, outcome)
    SELECT event_id, handler, attempt, started_at, duration_ms, 'done' FROM done
)
SELECT nth, lane FROM done

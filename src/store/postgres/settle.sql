-- Writes the outcomes of attempts. A settle whose token is not that of the present claim finds no row and does nothing.
WITH settle AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::int4[], $5::timestamptz[], $6::bigint[],
                         $7::text[], $8::bigint[], $9::text[])
         AS s (event_id, handler, token, attempt, started_at, duration_ms, outcome, after_micros, detail)
),
-- What is done leaves the work list.
done AS (
    DELETE FROM deliveries d USING settle s
    WHERE s.outcome = 'done' AND d.event_id = s.event_id AND d.handler = s.handler
      AND d.lease_token = s.token AND d.state = 'claimed'
    RETURNING s.event_id, s.handler, s.attempt, s.started_at, s.duration_ms, s.outcome, s.detail
),
-- What is not done stays: to be tried again, dead, or given back as if it had never been claimed.
kept AS (
    UPDATE deliveries d
    SET state = CASE s.outcome WHEN 'dead' THEN 'dead' ELSE 'ready' END,
        run_at = CASE s.outcome WHEN 'retry' THEN now() + s.after_micros * interval '1 microsecond' ELSE d.run_at END,
        attempts = CASE s.outcome WHEN 'released' THEN greatest(d.attempts - 1, 0) ELSE d.attempts END,
        last_error = CASE s.outcome WHEN 'released' THEN d.last_error ELSE s.detail END,
        lease_token = NULL,
        lease_until = NULL
    FROM settle s
    WHERE s.outcome <> 'done' AND d.event_id = s.event_id AND d.handler = s.handler
      AND d.lease_token = s.token AND d.state = 'claimed'
    RETURNING s.event_id, s.handler, s.attempt, s.started_at, s.duration_ms, s.outcome, s.detail
),
written AS (
    INSERT INTO attempts (event_id, handler, attempt, started_at, duration_ms, outcome, detail)
    SELECT * FROM done
    UNION ALL
    SELECT * FROM kept WHERE outcome <> 'released'
)
SELECT (SELECT count(*) FROM done) + (SELECT count(*) FROM kept)

-- Writes the outcomes of attempts. A settle whose token is not that of the present claim finds no row and does nothing.
-- Gives the places of the others, and the lanes of those that are ordered. A claimed row is one with a token (the table checks it), so the state is not asked.
WITH settle AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::int4[], $5::timestamptz[], $6::bigint[],
                         $7::text[], $8::bigint[], $9::text[]) WITH ORDINALITY
         AS s (event_id, handler, token, attempt, started_at, duration_ms, outcome, after_micros, detail, nth)
),
-- Rows are found by key and changed by place. A plain join would be planned by the statistics of a table that was
-- perhaps empty when they were taken, and then read the whole index for each settle.
held AS MATERIALIZED (
    SELECT s.*, d.place
    FROM settle s
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM deliveries
        WHERE event_id = s.event_id AND handler = s.handler AND lease_token = s.token
        LIMIT 1
    ) d
),
-- What is done, or not wanted, leaves the work list.
done AS (
    DELETE FROM deliveries d USING held h
    WHERE h.outcome IN ('done', 'filtered') AND d.ctid = h.place AND d.lease_token = h.token
    RETURNING h.event_id, h.handler, h.attempt, h.started_at, h.duration_ms, h.outcome, h.detail, h.nth, d.lane
),
-- What is not done stays, discarded if a person said so meanwhile: to be tried again, dead (also what is unknown and has no time for another try), or given back
-- as if it had never been claimed. What is ordered goes back into its line, where an older one may stand by now.
kept AS (
    UPDATE deliveries d
    SET state = CASE WHEN d.discard THEN 'discarded'
                     WHEN h.outcome = 'dead' OR (h.outcome = 'unknown' AND h.after_micros IS NULL) THEN 'dead'
                     WHEN d.lane IS NULL THEN 'ready' ELSE 'blocked' END,
        run_at = coalesce(now() + h.after_micros * interval '1 microsecond', d.run_at),
        attempts = CASE WHEN h.outcome IN ('released', 'postponed') THEN greatest(d.attempts - 1, 0) ELSE d.attempts END,
        last_error = CASE h.outcome WHEN 'released' THEN d.last_error ELSE h.detail END,
        lost = CASE WHEN h.outcome IN ('released', 'postponed') THEN d.lost ELSE 0 END,
        share = CASE WHEN h.outcome IN ('released', 'postponed') THEN d.share ELSE d.share | 1 END,
        lease_token = NULL,
        lease_until = NULL,
        discard = false
    FROM held h
    WHERE h.outcome NOT IN ('done', 'filtered') AND d.ctid = h.place AND d.lease_token = h.token
    RETURNING h.event_id, h.handler, h.attempt, h.started_at, h.duration_ms, h.outcome, h.detail, h.nth, d.lane
),
written AS (
    INSERT INTO attempts (event_id, handler, attempt, started_at, duration_ms, outcome, detail)
    SELECT event_id, handler, attempt, started_at, duration_ms, outcome, detail FROM done
    UNION ALL
    SELECT event_id, handler, attempt, started_at, duration_ms, outcome, detail FROM kept
    WHERE outcome NOT IN ('released', 'postponed')
)
SELECT nth, lane FROM done
UNION ALL
SELECT nth, lane FROM kept

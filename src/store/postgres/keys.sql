-- Reserves new keys and takes the next step with held ones: one statement, one commit, for all that wait. Gives, for each
-- key that was new, its token and id; for each step that was taken, its place. No index names a column that a step changes.
WITH added AS (
    INSERT INTO api_idempotency_keys
        (scope, method, route, key, request_hash, lease_token, locked_until, expires_at)
    SELECT scope, method, route, key, request_hash, token,
           now() + lease * interval '1 microsecond', now() + expiry * interval '1 microsecond'
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::bigint[], $8::bigint[])
         AS n (scope, method, route, key, request_hash, token, lease, expiry)
    ON CONFLICT (key, scope, method, route) DO NOTHING
    RETURNING id, lease_token
),
held AS MATERIALIZED (
    SELECT s.*, k.place
    FROM unnest($9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::int4[], $14::text[], $15::text[],
                $16::bytea[]) WITH ORDINALITY
         AS s (id, token, step, key_status, response_status, response_headers, resource_id, response_body, nth)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM api_idempotency_keys
        WHERE id = s.id AND lease_token = s.token
        LIMIT 1
    ) k
),
released AS (
    DELETE FROM api_idempotency_keys k USING held h
    WHERE h.step = 'release' AND k.ctid = h.place AND k.lease_token = h.token AND k.status = 'processing'
    RETURNING h.nth
),
changed AS (
    UPDATE api_idempotency_keys k
    SET recovery_point = CASE h.step WHEN 'sent' THEN 'sent' WHEN 'return' THEN 'reserved' ELSE k.recovery_point END,
        locked_until = CASE WHEN h.step IN ('return', 'give_up', 'abandon') THEN now() ELSE k.locked_until END,
        status = CASE h.step WHEN 'complete' THEN h.key_status WHEN 'give_up' THEN 'failed' ELSE k.status END,
        completed_at = CASE WHEN h.step IN ('complete', 'give_up') THEN now() END,
        response_status = h.response_status,
        response_headers = h.response_headers,
        resource_id = h.resource_id,
        response_body = h.response_body
    FROM held h
    WHERE h.step <> 'release' AND k.ctid = h.place AND k.lease_token = h.token AND k.status = 'processing'
    RETURNING h.nth, h.step, h.id
),
noted AS (
    INSERT INTO api_idempotency_sent (key_ids)
    SELECT array_agg(id) FROM changed WHERE step = 'sent' HAVING count(*) > 0
)
SELECT true, lease_token, id FROM added
UNION ALL
SELECT false, nth, 0 FROM released
UNION ALL
SELECT false, nth, 0 FROM changed

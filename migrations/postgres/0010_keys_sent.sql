-- A step with a key is a HOT update (no index is written) if no index names a column that it changes, and if the new row
-- fits on the page of the old one.
DROP INDEX api_idempotency_keys_locked;
ALTER TABLE api_idempotency_keys SET (fillfactor = 35);

-- The key tells rows apart at the first comparison, and people look for keys by it.
ALTER TABLE api_idempotency_keys
    DROP CONSTRAINT api_idempotency_keys_scope_method_route_key_key,
    ADD UNIQUE (key, scope, method, route);

-- Which keys were sent, so that those whose end was never written are found without an index on their state: a row for
-- each batch, written with it. It goes when none of its keys is `processing` and `sent` any more.
CREATE TABLE api_idempotency_sent (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key_ids bigint[] NOT NULL
);

INSERT INTO api_idempotency_sent (key_ids) SELECT ARRAY[id] FROM api_idempotency_keys WHERE status = 'processing';

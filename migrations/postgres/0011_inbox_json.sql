-- NULL also where `->>` and `jsonb` would fail (`\u0000`, half of a surrogate pair, a number without end): one such body
-- made every query over the column fail. Not parallel safe, because a block with EXCEPTION is a subtransaction.
CREATE OR REPLACE FUNCTION cerca_json(payload bytea) RETURNS json LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE AS $$
BEGIN
    PERFORM convert_from(payload, 'UTF8')::jsonb;
    RETURN convert_from(payload, 'UTF8')::json;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- Lanes: deliveries of one handler and one ordering key, of which one runs at a time.

-- The lane of a provider's ordering key: the first 64 bits of a SHA-256, the same on every engine. Two keys in one lane
-- would only wait for each other.
CREATE FUNCTION cerca_lane(provider text, ordering_key text) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT ('x' || left(encode(sha256(convert_to(provider || ':' || ordering_key, 'UTF8')), 'hex'), 16))::bit(64)::bigint
$$;

ALTER TABLE deliveries
    -- NULL: not ordered.
    ADD COLUMN lane       bigint,
    -- The place in the lane: the provider's own time, else the time of arrival.
    ADD COLUMN lane_at    timestamptz,
    -- Whether the lane waits for this delivery when it is dead.
    ADD COLUMN dead_holds boolean NOT NULL DEFAULT false,
    -- Leases lost since the last attempt that ended; such a delivery is tried alone.
    ADD COLUMN lost       integer NOT NULL DEFAULT 0 CHECK (lost >= 0),
    -- Shares of one handler take turns when there is a backlog: one for each provider, and another for its deliveries that
    -- were tried before (the lowest bit).
    ADD COLUMN share      integer NOT NULL DEFAULT 0;

-- One at a time is what the database itself enforces.
CREATE UNIQUE INDEX deliveries_lane_active ON deliveries (handler, lane)
    WHERE lane IS NOT NULL AND state IN ('ready', 'claimed');
CREATE INDEX deliveries_lane ON deliveries (handler, lane, lane_at, event_id)
    WHERE lane IS NOT NULL AND state <> 'discarded';
CREATE INDEX deliveries_blocked ON deliveries (handler, lane) WHERE state = 'blocked';
CREATE INDEX deliveries_suspect ON deliveries (run_at, event_id) WHERE state = 'ready' AND lost > 0;
CREATE INDEX deliveries_share ON deliveries (handler, share, run_at, event_id) WHERE state = 'ready';

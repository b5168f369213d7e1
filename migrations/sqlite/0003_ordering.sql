-- Lanes: deliveries of one handler and one ordering key, of which one runs at a time.

-- The lane: the first 64 bits of a SHA-256 of provider and ordering key, the same on every engine; NULL: not ordered. Two
-- keys in one lane would only wait for each other.
ALTER TABLE deliveries ADD COLUMN lane INTEGER;
-- The place in the lane: the provider's own time, else the time of arrival.
ALTER TABLE deliveries ADD COLUMN lane_at INTEGER;
-- Whether the lane waits for this delivery when it is dead.
ALTER TABLE deliveries ADD COLUMN dead_holds INTEGER NOT NULL DEFAULT 0 CHECK (dead_holds IN (0, 1));
-- Leases lost since the last attempt that ended; such a delivery is tried alone.
ALTER TABLE deliveries ADD COLUMN lost INTEGER NOT NULL DEFAULT 0 CHECK (lost >= 0);
-- Shares of one handler take turns when there is a backlog: one for each provider, and another for its deliveries that were
-- tried before (the lowest bit).
ALTER TABLE deliveries ADD COLUMN share INTEGER NOT NULL DEFAULT 0;

-- One at a time is what the database itself enforces.
CREATE UNIQUE INDEX deliveries_lane_active ON deliveries (handler, lane)
    WHERE lane IS NOT NULL AND state IN ('ready', 'claimed');
CREATE INDEX deliveries_lane ON deliveries (handler, lane, lane_at, event_id)
    WHERE lane IS NOT NULL AND state <> 'discarded';
CREATE INDEX deliveries_blocked ON deliveries (handler, lane) WHERE state = 'blocked';
CREATE INDEX deliveries_suspect ON deliveries (run_at, event_id) WHERE state = 'ready' AND lost > 0;
CREATE INDEX deliveries_share ON deliveries (handler, share, run_at, event_id) WHERE state = 'ready';

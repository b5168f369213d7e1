-- Discarded while its attempt was in flight: it goes when that has ended, unless it is done.
ALTER TABLE deliveries ADD COLUMN discard INTEGER NOT NULL DEFAULT 0 CHECK (discard IN (0, 1));

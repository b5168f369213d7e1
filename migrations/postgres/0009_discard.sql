-- Discarded while its attempt was in flight: it goes when that has ended, unless it is done.
ALTER TABLE deliveries ADD COLUMN discard boolean NOT NULL DEFAULT false;

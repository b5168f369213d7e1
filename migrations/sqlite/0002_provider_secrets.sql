-- Secrets that senders handed over in a handshake, sealed. Append-only: a provider's newest generation counts, and one
-- without `sealed` says that the secret before it was removed. The key is what lets only one of two processes keep one.
CREATE TABLE provider_secrets (
    provider   TEXT NOT NULL,
    generation INTEGER NOT NULL CHECK (generation > 0),
    created_at INTEGER NOT NULL,
    source     TEXT NOT NULL,
    sealed     BLOB CHECK (length(sealed) > 0),
    PRIMARY KEY (provider, generation)
) STRICT, WITHOUT ROWID;

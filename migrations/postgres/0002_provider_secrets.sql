-- Secrets that senders handed over in a handshake, sealed. Append-only: a provider's newest generation counts, and one
-- without `sealed` says that the secret before it was removed. The key is what lets only one of two replicas keep one.
CREATE TABLE provider_secrets (
    provider   text COLLATE "C" NOT NULL,
    generation bigint NOT NULL CHECK (generation > 0),
    sealed     bytea CHECK (octet_length(sealed) > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    source     text NOT NULL,
    PRIMARY KEY (provider, generation)
);

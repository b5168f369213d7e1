-- Requests that were refused, kept for a while so that a person can see why, and take them in all the same.
-- Never holds a credential: headers are those that events are stored with, and signatures, which prove one body only.
CREATE TABLE quarantine (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL DEFAULT now(),
    provider     text COLLATE "C" NOT NULL,
    reason       text COLLATE "C" NOT NULL,
    detail       text,
    -- Whether the sender was proved; what strangers sent goes first when there is no room.
    authentic    boolean NOT NULL,
    method       text NOT NULL,
    -- Path and query as called; a query that may hold a credential is left out.
    target       text NOT NULL,
    client       text,
    headers      text NOT NULL,
    -- What is not kept of the request, in words; such a request cannot be verified again.
    left_out     text,
    size         bigint NOT NULL CHECK (size >= 0),
    body_sha256  bytea NOT NULL CHECK (length(body_sha256) = 32),
    readmitted_at timestamptz,
    body         bytea COMPRESSION lz4 NOT NULL
);

CREATE INDEX quarantine_room ON quarantine (authentic, id) INCLUDE (size);

-- First answers, kept under the keys that merchants gave: each row commits with the effect that it tells of.
--
-- A request that is still running has no row here: the lock on its key keeps repeats away, and where there is no
-- lock this primary key lets one of two equal requests commit, and rolls the other's effect back.

CREATE TABLE idempotency_keys (
    -- No foreign key: the effect in the same transaction has one.
    merchant_id   text COLLATE "C" NOT NULL,
    key           text COLLATE "C" NOT NULL,
    -- SHA-256 over the kind of credential, the method, the path and the body: what a repeat must equal.
    request_hash  bytea NOT NULL,
    -- The order that was acted on, for the timeline and the audit; other resources have none.
    order_no      text COLLATE "C",
    status        smallint NOT NULL,
    -- As it was sent, byte for byte.
    body          bytea NOT NULL,
    created_at    timestamptz NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (merchant_id, key),
    CONSTRAINT idempotency_keys_key_length CHECK (octet_length(key) BETWEEN 1 AND 255),
    CONSTRAINT idempotency_keys_request_hash_is_sha256 CHECK (octet_length(request_hash) = 32),
    -- Any other answer may become another one when the request is repeated.
    CONSTRAINT idempotency_keys_status_is_final CHECK (status BETWEEN 200 AND 299 OR status = 402)
);
-- The retention duty walks it by age; BRIN because rows arrive in that order.
CREATE INDEX idempotency_keys_by_age ON idempotency_keys USING brin (created_at);

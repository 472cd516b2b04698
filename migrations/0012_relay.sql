-- The relay: what the outbox holds goes to the merchants' endpoints and to the broker.

-- How many destinations have not got the event yet; NULL until the relay has looked where it goes. Events of before
-- this migration count as told: nobody was promised them then, and whoever wants them has them sent.
ALTER TABLE outbox ADD COLUMN open_deliveries smallint DEFAULT 0;
ALTER TABLE outbox ALTER COLUMN open_deliveries DROP DEFAULT;
-- That the last destination has got it is noted in place: no index names published_at.
ALTER TABLE outbox SET (fillfactor = 85);
DROP INDEX outbox_unpublished;
-- What the relay has not looked at yet.
CREATE INDEX outbox_new ON outbox (id) WHERE open_deliveries IS NULL;
-- Everything since an instant, for sending it once more; BRIN because rows arrive in that order.
CREATE INDEX outbox_by_age ON outbox USING brin (created_at);

-- One event on its way to one destination, with every try.
CREATE TABLE deliveries (
    event_id      bigint NOT NULL,
    kind          text COLLATE "C" NOT NULL,
    event         text NOT NULL,
    merchant_id   text COLLATE "C",
    order_no      text COLLATE "C",
    -- What it waits in: a slow or dead endpoint holds up its own lane and no other.
    lane          text COLLATE "C" NOT NULL,
    -- The order's own endpoint; NULL stands for whatever the merchant's is when it is sent.
    url           text,
    -- As it was first sent, and is sent each time.
    body          text NOT NULL,
    status        text NOT NULL,
    -- Tries since it was begun, or begun anew, that count.
    attempts      integer NOT NULL DEFAULT 0,
    due_at        timestamptz NOT NULL,
    -- Who holds it sends it; from then on it counts as dead.
    leased_until  timestamptz,
    last_error    text,
    -- The last tries: {at, url, status, latency_ms, error, answer}.
    log           jsonb NOT NULL DEFAULT '[]',
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    CONSTRAINT deliveries_pkey PRIMARY KEY (event_id, kind),
    CONSTRAINT deliveries_kind_is_known CHECK (kind IN ('REPLAY_CALLBACK', 'RESEND_EVENT')),
    CONSTRAINT deliveries_status_is_known CHECK (status IN ('PENDING', 'DELIVERED', 'DEAD', 'DROPPED'))
) WITH (fillfactor = 70); -- A lease is taken in place.
-- What is due, lane by lane. What came to an end leaves these two, so they stay small beside any number of rows.
CREATE INDEX deliveries_due ON deliveries (lane, due_at, event_id) WHERE status = 'PENDING';
-- What an event of an order must wait for.
CREATE INDEX deliveries_open_of_order ON deliveries (merchant_id, order_no, kind, event_id) WHERE status = 'PENDING';
-- The dead letters.
CREATE INDEX deliveries_dead ON deliveries (event_id) WHERE status = 'DEAD';
-- The retention duty walks it by age.
CREATE INDEX deliveries_by_age ON deliveries USING brin (created_at);

-- Secrets that were replaced and still sign, until their end.
CREATE TABLE retired_notify_secrets (
    merchant_id  text COLLATE "C" NOT NULL CONSTRAINT retired_notify_secrets_merchant_fkey REFERENCES merchants,
    sealed       bytea NOT NULL,
    expires_at   timestamptz NOT NULL
);
CREATE INDEX retired_notify_secrets_of_merchant ON retired_notify_secrets (merchant_id, expires_at);

-- Endpoints that answered 410: nothing goes there until the merchant's endpoint is saved anew.
CREATE TABLE disabled_endpoints (
    merchant_id  text COLLATE "C" NOT NULL CONSTRAINT disabled_endpoints_merchant_fkey REFERENCES merchants,
    url          text NOT NULL,
    reason       text NOT NULL,
    created_at   timestamptz NOT NULL,
    CONSTRAINT disabled_endpoints_pkey PRIMARY KEY (merchant_id, url)
);

ALTER TABLE exceptions
    DROP CONSTRAINT exceptions_kind_is_known,
    ADD CONSTRAINT exceptions_kind_is_known
        CHECK (kind IN ('AMOUNT_MISMATCH', 'STRAY_MONEY', 'UNKNOWN_ORDER', 'WRONG_ACCOUNT',
                        'UNREADABLE_CALLBACK', 'CONTRADICTION', 'DEAD_TASK', 'ENDPOINT_DISABLED')) NOT VALID;

UPDATE service_rules SET rights = '{SELECT, INSERT, UPDATE(open_deliveries), UPDATE(published_at)}'
WHERE table_name = 'public.outbox';
SELECT grant_service_rights();

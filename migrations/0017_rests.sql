-- The relay: endpoints that ask to be left alone, events that are sent again, and what operators look up.

-- Lanes whose endpoint asked for a pause (Retry-After): nothing is taken from them before its end.
CREATE TABLE resting_lanes (
    lane         text COLLATE "C" CONSTRAINT resting_lanes_pkey PRIMARY KEY,
    -- Whose: a merchant that saves its endpoint anew is told again at once.
    merchant_id  text COLLATE "C" NOT NULL,
    rests_until  timestamptz NOT NULL
);

-- What is sent again (open_deliveries is -1 until the relay has looked where it goes) waits in a row of its own, so
-- that new events, whose ids are higher, do not wait behind it.
CREATE INDEX outbox_again ON outbox (id) WHERE open_deliveries = -1;

-- The delivery that waits for longest. In words that no other statement uses: a look-up's plan must not walk here.
CREATE INDEX deliveries_open_by_age ON deliveries (created_at) WHERE coalesce(status, '') = 'PENDING';

-- What was done about a thing, past any number of tasks about others. Guards that nobody needed are deleted, not done,
-- and cost nothing here. In words of its own too: the retention goes by age.
CREATE INDEX compensations_done_by_subject ON compensations (subject) WHERE coalesce(status, '') = 'DONE';

SELECT grant_service_rights();

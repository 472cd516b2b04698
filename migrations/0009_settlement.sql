-- Commission settlement: what an order's user earns, by rules frozen at the moment of settling; once an order.
--
-- Rates have 8 places, factors 4: so every commission is computed exactly in whole numbers of 128 bits.

-- The share of an order's lines that is given back: of one thing, or (without a sku) of all of a merchant's others.
CREATE TABLE rebate_rules (
    merchant_id  text COLLATE "C" NOT NULL CONSTRAINT rebate_rules_merchant_fkey REFERENCES merchants,
    sku          text COLLATE "C",
    rate         numeric(9, 8) NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    CONSTRAINT rebate_rules_one_of_each UNIQUE NULLS NOT DISTINCT (merchant_id, sku),
    CONSTRAINT rebate_rules_sku_fkey FOREIGN KEY (merchant_id, sku) REFERENCES skus,
    CONSTRAINT rebate_rules_rate_is_a_share CHECK (rate BETWEEN 0 AND 1)
);

-- What a user's commissions are multiplied by; 1 for users without a level.
CREATE TABLE user_levels (
    merchant_id  text COLLATE "C" NOT NULL CONSTRAINT user_levels_merchant_fkey REFERENCES merchants,
    user_id      text COLLATE "C" NOT NULL,
    level        text NOT NULL,
    factor       numeric(6, 4) NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    CONSTRAINT user_levels_pkey PRIMARY KEY (merchant_id, user_id),
    CONSTRAINT user_levels_level_length CHECK (length(level) BETWEEN 1 AND 64),
    CONSTRAINT user_levels_factor_in_range CHECK (factor > 0 AND factor <= 10)
);

-- One an order: the key is the order's. No foreign key: a row is written by the statement that settles its order.
CREATE TABLE settlements (
    merchant_id  text COLLATE "C" NOT NULL,
    order_no     text COLLATE "C" NOT NULL,
    -- Who earns it.
    user_id      text COLLATE "C" NOT NULL,
    -- What had not gone back by then.
    base_amount  bigint NOT NULL,
    -- Over all lines, by their amounts; the part behind the last place is cut off.
    rate         numeric(9, 8) NOT NULL,
    -- Of each line, in their order; one for an order without items.
    line_rates   numeric(9, 8)[] NOT NULL,
    factor       numeric(6, 4) NOT NULL,
    commission   bigint NOT NULL,
    clawed_back  bigint NOT NULL DEFAULT 0,
    currency     text NOT NULL,
    status       text NOT NULL DEFAULT 'SETTLED',
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    version      integer NOT NULL DEFAULT 1,
    CONSTRAINT settlements_pkey PRIMARY KEY (merchant_id, order_no),
    CONSTRAINT settlements_status_is_known CHECK (status IN ('SETTLED', 'CLAWED_BACK')),
    CONSTRAINT settlements_base_amount_in_range CHECK (base_amount BETWEEN 1 AND 1000000000000),
    CONSTRAINT settlements_rate_is_a_share CHECK (rate BETWEEN 0 AND 1),
    CONSTRAINT settlements_factor_in_range CHECK (factor > 0 AND factor <= 10),
    CONSTRAINT settlements_commission_in_range CHECK (commission BETWEEN 0 AND 10 * base_amount),
    CONSTRAINT settlements_clawed_back_within_commission CHECK (clawed_back BETWEEN 0 AND commission),
    CONSTRAINT settlements_status_matches
        CHECK ((status = 'CLAWED_BACK') = (clawed_back = commission AND commission > 0))
) WITH (fillfactor = 90);

-- Settling all that was paid before an instant, in batches. The row is what makes it resumable: it says how far it has
-- come, and who works on it holds it until `leased_until`.
CREATE TABLE settlement_runs (
    run_id             text COLLATE "C" PRIMARY KEY,
    merchant_id        text COLLATE "C" CONSTRAINT settlement_runs_merchant_fkey REFERENCES merchants,
    paid_before        timestamptz NOT NULL,
    status             text NOT NULL DEFAULT 'RUNNING',
    -- The order that was looked at last: those that come are behind it.
    after_paid_at      timestamptz NOT NULL DEFAULT '1970-01-01 00:00+00',
    after_merchant_id  text COLLATE "C" NOT NULL DEFAULT '',
    after_order_no     text COLLATE "C" NOT NULL DEFAULT '',
    -- What there was to settle when it began; NULL where that is more than was counted.
    expected           bigint,
    settled            bigint NOT NULL DEFAULT 0,
    skipped            bigint NOT NULL DEFAULT 0,
    -- Minor units by currency.
    commissions        jsonb NOT NULL DEFAULT '{}',
    last_error         text,
    leased_until       timestamptz NOT NULL,
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    finished_at        timestamptz,
    version            integer NOT NULL DEFAULT 1,
    CONSTRAINT settlement_runs_status_is_known CHECK (status IN ('RUNNING', 'DONE')),
    CONSTRAINT settlement_runs_finished_at_matches CHECK ((status = 'DONE') = (finished_at IS NOT NULL)),
    CONSTRAINT settlement_runs_counts_not_negative CHECK (settled >= 0 AND skipped >= 0)
);
-- What a worker may take.
CREATE INDEX settlement_runs_open ON settlement_runs (leased_until) WHERE status = 'RUNNING';

-- What a run walks: paid and not settled yet, in the order of payment. A payment moves its order to another place in
-- any case (an index names its status already), so this costs it one entry at the right end of an index whose last page
-- is in memory; settling then must move the order's row once more, an entry in the primary key. Without an index a run
-- would read all orders that ever were.
CREATE INDEX orders_paid_unsettled ON orders (paid_at, merchant_id, order_no)
    WHERE settle_status = 'UNSETTLED' AND kind = 'SALE' AND status IN ('PAID', 'PARTIALLY_REFUNDED');

-- Money, and whose it is: never deleted.
INSERT INTO service_rules (table_name, rights)
SELECT 'public.' || name, '{SELECT, INSERT, UPDATE}'
FROM unnest(ARRAY['rebate_rules', 'user_levels', 'settlements', 'settlement_runs']) AS name;
SELECT grant_service_rights();

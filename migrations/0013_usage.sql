-- Usage billing: what work may cost is held before it, what it did cost is charged after it, once.

-- What is metered, and how it is priced. How it is priced and what makes a key never change: holds are made of both.
CREATE TABLE products (
    merchant_id                text COLLATE "C" NOT NULL CONSTRAINT products_merchant_fkey REFERENCES merchants,
    product_code               text COLLATE "C" NOT NULL,
    pricing                    text NOT NULL,
    key_scope                  text NOT NULL,
    -- What a user may use in a cycle, held and charged together; NULL for no limit.
    cycle_quota                bigint,
    -- Whether reconciliation may charge for usage that was never charged.
    allow_compensating_charge  boolean NOT NULL DEFAULT false,
    created_at                 timestamptz NOT NULL,
    updated_at                 timestamptz NOT NULL,
    CONSTRAINT products_pkey PRIMARY KEY (merchant_id, product_code),
    CONSTRAINT products_pricing_is_known CHECK (pricing IN ('PER_UNIT', 'PER_CALL', 'PER_CYCLE')),
    CONSTRAINT products_key_scope_is_known CHECK (key_scope IN ('REQUEST', 'REQUEST_CURRENCY_FX')),
    CONSTRAINT products_cycle_quota_in_range CHECK (cycle_quota BETWEEN 0 AND 1000000000000)
);

-- A price for each currency and fx version ('' for none); a hold keeps the one that it was made by.
CREATE TABLE product_prices (
    merchant_id   text COLLATE "C" NOT NULL,
    product_code  text COLLATE "C" NOT NULL,
    currency      text COLLATE "C" NOT NULL,
    fx_version    text COLLATE "C" NOT NULL,
    -- Minor units for a unit, a call or a cycle.
    unit_price    numeric(23, 10) NOT NULL,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    CONSTRAINT product_prices_pkey PRIMARY KEY (merchant_id, product_code, currency, fx_version),
    CONSTRAINT product_prices_product_fkey FOREIGN KEY (merchant_id, product_code) REFERENCES products,
    CONSTRAINT product_prices_unit_price_in_range CHECK (unit_price BETWEEN 0 AND 1000000000000)
);

-- No foreign keys: a hold is written by a statement that has just read its product.
CREATE TABLE usage_holds (
    hold_id          text COLLATE "C" PRIMARY KEY,
    merchant_id      text COLLATE "C" NOT NULL,
    request_id       text COLLATE "C" NOT NULL,
    user_id          text COLLATE "C" NOT NULL,
    product_code     text COLLATE "C" NOT NULL,
    idempotency_key  text COLLATE "C" NOT NULL,
    -- As far as the product's key_scope makes them a part of the key; '' otherwise.
    key_currency     text COLLATE "C" NOT NULL,
    key_fx_version   text COLLATE "C" NOT NULL,
    currency         text COLLATE "C" NOT NULL,
    fx_version       text COLLATE "C" NOT NULL,
    cycle            text COLLATE "C" NOT NULL,
    -- Frozen, as they were when it was made.
    pricing          text NOT NULL,
    unit_price       numeric(23, 10) NOT NULL,
    cycle_quota      bigint,
    estimated_units  bigint NOT NULL,
    -- The largest that was reported, NULL as long as nothing was; what was charged for once CONFIRMED.
    units            bigint,
    -- What it takes of the quota of its cycle.
    counted_units    bigint NOT NULL,
    -- Whether it is the one that paid for its cycle.
    carries_fee      boolean NOT NULL,
    -- Minor units: set aside now, taken in the end, and what was due and not there.
    held             bigint NOT NULL,
    charged          bigint NOT NULL DEFAULT 0,
    shortfall        bigint NOT NULL DEFAULT 0,
    late             boolean NOT NULL DEFAULT false,
    status           text NOT NULL DEFAULT 'HELD',
    -- How often more was set aside for it.
    extensions       integer NOT NULL DEFAULT 0,
    expires_at       timestamptz NOT NULL,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    -- Changes of state.
    version          integer NOT NULL DEFAULT 1,
    -- One hold, and so one charge, for one key.
    CONSTRAINT usage_holds_key UNIQUE (merchant_id, user_id, product_code, idempotency_key, key_currency, key_fx_version),
    CONSTRAINT usage_holds_status_is_known CHECK (status IN ('HELD', 'CONFIRMED', 'RELEASED', 'EXPIRED')),
    CONSTRAINT usage_holds_amounts_in_range
        CHECK (held BETWEEN 0 AND 1000000000000 AND charged >= 0 AND shortfall >= 0
               AND charged + shortfall <= 1000000000000),
    CONSTRAINT usage_holds_units_in_range
        CHECK (estimated_units BETWEEN 0 AND 1000000000000 AND units BETWEEN 0 AND 1000000000000 AND counted_units >= 0),
    CONSTRAINT usage_holds_held_matches CHECK (status = 'HELD' OR held = 0),
    CONSTRAINT usage_holds_charge_matches
        CHECK (CASE status WHEN 'CONFIRMED' THEN units IS NOT NULL
                           ELSE (charged = 0 OR carries_fee) AND shortfall = 0 AND NOT late END)
) WITH (fillfactor = 80);
-- The usage of one user, newest first.
CREATE INDEX usage_holds_of_user ON usage_holds (merchant_id, user_id, hold_id);
-- What falls due.
CREATE INDEX usage_holds_due ON usage_holds (expires_at, hold_id) WHERE status = 'HELD';

-- What a user has taken of a cycle, where there is a quota, or where the cycle itself is what is paid for.
CREATE TABLE usage_cycles (
    merchant_id   text COLLATE "C" NOT NULL,
    user_id       text COLLATE "C" NOT NULL,
    product_code  text COLLATE "C" NOT NULL,
    cycle         text COLLATE "C" NOT NULL,
    -- The counted units of its holds.
    used_units    bigint NOT NULL DEFAULT 0,
    -- The hold that paid for the cycle.
    fee_hold_id   text COLLATE "C",
    CONSTRAINT usage_cycles_pkey PRIMARY KEY (merchant_id, user_id, product_code, cycle),
    CONSTRAINT usage_cycles_used_units_not_negative CHECK (used_units >= 0)
) WITH (fillfactor = 80);

-- Messages that had their effect: a mark commits with it.
CREATE TABLE usage_messages (
    hold_id     text COLLATE "C" NOT NULL,
    message_id  text COLLATE "C" NOT NULL,
    -- What it said.
    units       bigint NOT NULL,
    created_at  timestamptz NOT NULL,
    CONSTRAINT usage_messages_pkey PRIMARY KEY (hold_id, message_id)
);
-- For forgetting: rows come in the order of time, so a summary of each range of pages does.
CREATE INDEX usage_messages_by_age ON usage_messages USING brin (created_at);

-- Every change of state, as order_history has those of orders.
CREATE TABLE usage_history (
    hold_id      text COLLATE "C" NOT NULL,
    seq          integer NOT NULL,
    from_status  text,
    to_status    text NOT NULL,
    event        text NOT NULL,
    created_at   timestamptz NOT NULL,
    CONSTRAINT usage_history_pkey PRIMARY KEY (hold_id, seq),
    CONSTRAINT usage_history_first_has_no_past CHECK ((seq = 1) = (from_status IS NULL))
);

ALTER TABLE ledger_transactions
    DROP CONSTRAINT ledger_transactions_kind_is_known,
    ADD CONSTRAINT ledger_transactions_kind_is_known CHECK (kind IN
        ('PAYMENT', 'STRAY_PAYMENT', 'STRAY_KEPT', 'REFUND', 'REFUND_HOLD', 'SETTLEMENT', 'CLAW_BACK', 'WITHDRAWAL', 'PAYOUT',
         'PAYOUT_DONE', 'REVERSAL', 'USAGE_HOLD', 'USAGE_EXTENSION', 'USAGE_CHARGE', 'USAGE_RELEASE')) NOT VALID;

ALTER TABLE exceptions
    DROP CONSTRAINT exceptions_kind_is_known,
    ADD CONSTRAINT exceptions_kind_is_known
        CHECK (kind IN ('AMOUNT_MISMATCH', 'STRAY_MONEY', 'UNKNOWN_ORDER', 'WRONG_ACCOUNT', 'UNREADABLE_CALLBACK',
                        'CONTRADICTION', 'DEAD_TASK', 'ENDPOINT_DISABLED', 'USAGE_SHORTFALL')) NOT VALID;

INSERT INTO service_rules (table_name, rights) VALUES
    -- Money, and what it was for: never deleted.
    ('public.products', '{SELECT, INSERT, UPDATE}'),
    ('public.product_prices', '{SELECT, INSERT, UPDATE}'),
    ('public.usage_holds', '{SELECT, INSERT, UPDATE}'),
    ('public.usage_cycles', '{SELECT, INSERT, UPDATE}'),
    -- Forgotten in the end.
    ('public.usage_messages', '{SELECT, INSERT, DELETE}'),
    -- Written once, and evidence from then on.
    ('public.usage_history', '{SELECT, INSERT}');
SELECT grant_service_rights();

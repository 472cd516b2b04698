-- The core: merchants, orders, stock, attempts to pay, callbacks, stray money, and the tasks that drive what was
-- left in the middle.
--
-- Identifiers compare as bytes (COLLATE "C"): the order of an index does not depend on the machine's language,
-- and comparing them is cheap. Money is bigint, in minor units. Times are given by the service, never by now().

CREATE TABLE merchants (
    merchant_id            text COLLATE "C" PRIMARY KEY,
    name                   text NOT NULL,
    stray_money            text NOT NULL DEFAULT 'auto_refund',
    notify_url             text,
    -- Encrypted: notifications are signed with it, so it must be read again.
    notify_secret          bytea NOT NULL,
    refund_approval_above  bigint,
    created_at             timestamptz NOT NULL,
    updated_at             timestamptz NOT NULL,
    version                integer NOT NULL DEFAULT 1,
    CONSTRAINT merchants_merchant_id_is_an_identifier CHECK (merchant_id ~ '^[0-9A-Za-z_.-]{1,64}$'),
    CONSTRAINT merchants_stray_money_is_known CHECK (stray_money IN ('auto_refund', 'hold')),
    CONSTRAINT merchants_refund_approval_above_is_positive CHECK (refund_approval_above >= 0)
);

CREATE TABLE api_keys (
    key_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    merchant_id  text COLLATE "C" NOT NULL CONSTRAINT api_keys_merchant_fkey REFERENCES merchants,
    kind         text NOT NULL,
    -- SHA-256 of the key: keys are random and long, so a slow hash would only slow every request.
    key_hash     bytea NOT NULL CONSTRAINT api_keys_key_hash_key UNIQUE,
    -- The first characters, for people who must tell keys apart.
    hint         text NOT NULL,
    created_at   timestamptz NOT NULL,
    -- Set by a rotation: the old key works on until then.
    expires_at   timestamptz,
    CONSTRAINT api_keys_kind_is_known CHECK (kind IN ('SECRET', 'PUBLISHABLE'))
);
CREATE INDEX api_keys_of_merchant ON api_keys (merchant_id);

CREATE TABLE skus (
    merchant_id  text COLLATE "C" NOT NULL CONSTRAINT skus_merchant_fkey REFERENCES merchants,
    sku          text COLLATE "C" NOT NULL,
    stock        bigint NOT NULL,
    lock_stock   bigint NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    CONSTRAINT skus_pkey PRIMARY KEY (merchant_id, sku),
    -- The database's own word against overselling.
    CONSTRAINT skus_lock_stock_within_stock CHECK (0 <= lock_stock AND lock_stock <= stock)
) WITH (fillfactor = 50); -- Stock changes in place all the time: room for new versions on the same page.

CREATE TABLE orders (
    merchant_id      text COLLATE "C" NOT NULL CONSTRAINT orders_merchant_fkey REFERENCES merchants,
    order_no         text COLLATE "C" NOT NULL,
    user_id          text COLLATE "C" NOT NULL,
    kind             text NOT NULL DEFAULT 'SALE',
    status           text NOT NULL DEFAULT 'PENDING',
    close_reason     text,
    amount           bigint NOT NULL,
    currency         text NOT NULL,
    refunded_amount  bigint NOT NULL DEFAULT 0,
    rebate_user_id   text COLLATE "C",
    rebate_rate      numeric(9, 8),
    subject          text,
    notify_url       text,
    metadata         jsonb,
    -- The attempt that paid.
    paid_by          text COLLATE "C",
    paid_at          timestamptz,
    expires_at       timestamptz NOT NULL,
    settle_status    text NOT NULL DEFAULT 'UNSETTLED',
    -- Attempts ever made. Whoever decides by "no other live attempt" compares it too: an attempt that was begun
    -- meanwhile, which the statement's snapshot cannot see, then makes the guarded write meet no row.
    attempts         integer NOT NULL DEFAULT 0,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    -- Grows by one with every change of state: the fence of every guarded write, and the length of the history.
    version          integer NOT NULL DEFAULT 1,
    CONSTRAINT orders_pkey PRIMARY KEY (merchant_id, order_no),
    CONSTRAINT orders_kind_is_known CHECK (kind IN ('SALE', 'TOPUP')),
    CONSTRAINT orders_status_is_known
        CHECK (status IN ('PENDING', 'PAID', 'PARTIALLY_REFUNDED', 'REFUNDED', 'CLOSED')),
    CONSTRAINT orders_amount_in_range CHECK (amount BETWEEN 1 AND 1000000000000),
    CONSTRAINT orders_refunded_within_amount CHECK (refunded_amount BETWEEN 0 AND amount),
    CONSTRAINT orders_rebate_rate_is_a_share CHECK (rebate_rate BETWEEN 0 AND 1),
    CONSTRAINT orders_settle_status_is_known CHECK (settle_status IN ('UNSETTLED', 'SETTLED')),
    CONSTRAINT orders_close_reason_matches
        CHECK ((status = 'CLOSED') = (close_reason IS NOT NULL) AND close_reason IN ('TIMEOUT', 'CANCELLED')),
    CONSTRAINT orders_paid_at_matches
        CHECK ((status IN ('PAID', 'PARTIALLY_REFUNDED', 'REFUNDED')) = (paid_at IS NOT NULL)),
    CONSTRAINT orders_paid_by_matches CHECK ((paid_at IS NULL) = (paid_by IS NULL))
) WITH (fillfactor = 80);
-- The timer: the sweep walks due orders in the order of their deadlines.
CREATE INDEX orders_pending_by_deadline ON orders (expires_at) WHERE status = 'PENDING';

CREATE TABLE order_items (
    merchant_id  text COLLATE "C" NOT NULL,
    order_no     text COLLATE "C" NOT NULL,
    line_no      smallint NOT NULL,
    sku          text COLLATE "C" NOT NULL,
    quantity     bigint NOT NULL,
    unit_price   bigint NOT NULL,
    CONSTRAINT order_items_pkey PRIMARY KEY (merchant_id, order_no, line_no),
    CONSTRAINT order_items_order_fkey FOREIGN KEY (merchant_id, order_no) REFERENCES orders,
    CONSTRAINT order_items_quantity_in_range CHECK (quantity BETWEEN 1 AND 1000000),
    CONSTRAINT order_items_unit_price_in_range CHECK (unit_price BETWEEN 0 AND 1000000000000)
);

CREATE TABLE stock_reservations (
    merchant_id  text COLLATE "C" NOT NULL,
    order_no     text COLLATE "C" NOT NULL,
    line_no      smallint NOT NULL,
    sku          text COLLATE "C" NOT NULL,
    quantity     bigint NOT NULL,
    status       text NOT NULL DEFAULT 'LOCKED',
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    CONSTRAINT stock_reservations_pkey PRIMARY KEY (merchant_id, order_no, line_no),
    CONSTRAINT stock_reservations_line_fkey FOREIGN KEY (merchant_id, order_no, line_no) REFERENCES order_items,
    CONSTRAINT stock_reservations_sku_fkey FOREIGN KEY (merchant_id, sku) REFERENCES skus,
    CONSTRAINT stock_reservations_quantity_is_positive CHECK (quantity >= 1),
    CONSTRAINT stock_reservations_status_is_known
        CHECK (status IN ('LOCKED', 'DEDUCTED', 'RELEASED', 'RETURNED'))
) WITH (fillfactor = 80);

-- Every change of state of an order (pay_order_id = '') and of its attempts. No foreign key: each row is written
-- by the statement that changes the state itself.
CREATE TABLE order_history (
    merchant_id   text COLLATE "C" NOT NULL,
    order_no      text COLLATE "C" NOT NULL,
    pay_order_id  text COLLATE "C" NOT NULL DEFAULT '',
    -- The version that the change led to: contiguous from 1.
    seq           integer NOT NULL,
    from_status   text,
    to_status     text NOT NULL,
    -- What made it happen, such as PAYMENT_CONFIRMED.
    event         text NOT NULL,
    created_at    timestamptz NOT NULL,
    CONSTRAINT order_history_pkey PRIMARY KEY (merchant_id, order_no, pay_order_id, seq),
    CONSTRAINT order_history_first_has_no_past CHECK ((seq = 1) = (from_status IS NULL))
);

CREATE TABLE pay_orders (
    pay_order_id     text COLLATE "C" PRIMARY KEY,
    merchant_id      text COLLATE "C" NOT NULL,
    order_no         text COLLATE "C" NOT NULL,
    payer_id         text COLLATE "C" NOT NULL,
    channel          text COLLATE "C" NOT NULL,
    status           text NOT NULL DEFAULT 'INIT',
    amount           bigint NOT NULL,
    currency         text NOT NULL,
    subject          text,
    return_url       text,
    pay_url          text,
    -- The channel's own id of the trade, where its later calls need one.
    channel_ref      text,
    -- The channel's number of the trade that took the money.
    transaction_id   text COLLATE "C",
    paid_at          timestamptz,
    channel_code     text,
    channel_message  text,
    expires_at       timestamptz NOT NULL,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    version          integer NOT NULL DEFAULT 1,
    -- A column of its own, because an index that names `status` in its predicate makes every change of it write
    -- to all indexes: INIT → PAYING leaves this one alone and stays on its page.
    is_live          boolean NOT NULL GENERATED ALWAYS AS (status IN ('INIT', 'PAYING')) STORED,
    CONSTRAINT pay_orders_order_fkey FOREIGN KEY (merchant_id, order_no) REFERENCES orders,
    CONSTRAINT pay_orders_id_fits_every_channel CHECK (pay_order_id ~ '^[0-9A-Za-z_]{1,32}$'),
    CONSTRAINT pay_orders_status_is_known CHECK (status IN ('INIT', 'PAYING', 'PAID', 'FAILED', 'CLOSED')),
    CONSTRAINT pay_orders_amount_in_range CHECK (amount BETWEEN 1 AND 1000000000000),
    CONSTRAINT pay_orders_paying_has_a_link CHECK (status <> 'PAYING' OR pay_url IS NOT NULL),
    CONSTRAINT pay_orders_paid_names_its_trade
        CHECK ((status = 'PAID') = (transaction_id IS NOT NULL) AND (transaction_id IS NULL) = (paid_at IS NULL))
) WITH (fillfactor = 80);
-- At most one live attempt an order.
CREATE UNIQUE INDEX pay_orders_one_live_per_order ON pay_orders (merchant_id, order_no) WHERE is_live;
-- Links that died before their order: the sweep walks them by their end. The value rarely changes with the
-- status, so INIT → PAYING still stays on its page.
CREATE INDEX pay_orders_live_by_end ON pay_orders (expires_at) WHERE is_live;
-- All attempts of an order.
CREATE INDEX pay_orders_of_order ON pay_orders (merchant_id, order_no);

CREATE TABLE webhook_inbox (
    channel         text COLLATE "C" NOT NULL,
    event_id        text COLLATE "C" NOT NULL,
    -- What the event speaks of, as the channel names it; text from outside.
    subject         text,
    merchant_id     text COLLATE "C",
    order_no        text COLLATE "C",
    verdict         text NOT NULL,
    detail          text,
    body            bytea NOT NULL,
    received_at     timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    CONSTRAINT webhook_inbox_pkey PRIMARY KEY (channel, event_id),
    CONSTRAINT webhook_inbox_verdict_is_known CHECK (verdict IN
        ('APPLIED', 'REPEATED', 'STRAY', 'AMOUNT_MISMATCH', 'WRONG_ACCOUNT', 'RECORDED', 'UNMATCHED', 'UNKNOWN_ORDER'))
);
-- The retention duty walks it by age; BRIN because rows arrive in that order and the table is large.
CREATE INDEX webhook_inbox_by_age ON webhook_inbox USING brin (received_at);
-- For the timeline of an order.
CREATE INDEX webhook_inbox_of_order ON webhook_inbox (merchant_id, order_no) WHERE order_no IS NOT NULL;

CREATE TABLE stray_payments (
    stray_id        text COLLATE "C" PRIMARY KEY,
    channel         text COLLATE "C" NOT NULL,
    transaction_id  text COLLATE "C" NOT NULL,
    -- The pay order that the channel named, be it ours or not: what a refund is asked for by.
    out_trade_no    text NOT NULL,
    -- NULL where the money fits no attempt of ours.
    pay_order_id    text COLLATE "C" CONSTRAINT stray_payments_pay_order_fkey REFERENCES pay_orders,
    merchant_id     text COLLATE "C",
    order_no        text COLLATE "C",
    -- What was really taken.
    amount          bigint NOT NULL,
    currency        text NOT NULL,
    reason          text NOT NULL,
    status          text NOT NULL DEFAULT 'HELD',
    paid_at         timestamptz NOT NULL,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    CONSTRAINT stray_payments_trade_once UNIQUE (channel, transaction_id),
    CONSTRAINT stray_payments_order_fkey FOREIGN KEY (merchant_id, order_no) REFERENCES orders,
    CONSTRAINT stray_payments_amount_in_range CHECK (amount BETWEEN 1 AND 1000000000000),
    CONSTRAINT stray_payments_reason_is_known
        CHECK (reason IN ('LATE_PAYMENT', 'DUPLICATE_PAYMENT', 'AMOUNT_MISMATCH', 'UNKNOWN_ORDER')),
    CONSTRAINT stray_payments_status_is_known CHECK (status IN ('HELD', 'REFUNDING', 'REFUNDED', 'KEPT'))
);
CREATE INDEX stray_payments_of_order ON stray_payments (merchant_id, order_no);
-- What still waits for an end: the list of the operators, and the headline of money at risk.
CREATE INDEX stray_payments_unfinished ON stray_payments (created_at) WHERE status IN ('HELD', 'REFUNDING');

-- Money is identified by channel and trade number. Every trade that took money has its one row here, written in
-- the transaction that says what became of it: whoever comes second with the same trade meets the primary key,
-- also when one says "pays its order" and the other "is stray". No foreign keys: both owners are written by the
-- same statement or transaction.
CREATE TABLE trades (
    channel         text COLLATE "C" NOT NULL,
    transaction_id  text COLLATE "C" NOT NULL,
    -- The attempt through which it pays its order, or the stray payment that it is.
    pay_order_id    text COLLATE "C",
    stray_id        text COLLATE "C",
    created_at      timestamptz NOT NULL,
    CONSTRAINT trades_pkey PRIMARY KEY (channel, transaction_id),
    CONSTRAINT trades_one_owner CHECK ((pay_order_id IS NULL) <> (stray_id IS NULL))
);

CREATE TABLE refunds (
    -- What channels know it by.
    refund_id          text COLLATE "C" PRIMARY KEY,
    merchant_id        text COLLATE "C",
    refund_no          text COLLATE "C" NOT NULL,
    order_no           text COLLATE "C",
    pay_order_id       text COLLATE "C" CONSTRAINT refunds_pay_order_fkey REFERENCES pay_orders,
    stray_id           text COLLATE "C" CONSTRAINT refunds_stray_fkey REFERENCES stray_payments,
    amount             bigint NOT NULL,
    currency           text NOT NULL,
    status             text NOT NULL DEFAULT 'PENDING',
    reason             text NOT NULL,
    failure            text,
    channel_refund_id  text COLLATE "C",
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    version            integer NOT NULL DEFAULT 1,
    CONSTRAINT refunds_merchant_refund_no_key UNIQUE NULLS NOT DISTINCT (merchant_id, refund_no),
    CONSTRAINT refunds_order_fkey FOREIGN KEY (merchant_id, order_no) REFERENCES orders,
    CONSTRAINT refunds_amount_in_range CHECK (amount BETWEEN 1 AND 1000000000000),
    CONSTRAINT refunds_status_is_known
        CHECK (status IN ('AWAITING_APPROVAL', 'PENDING', 'PROCESSING', 'SUCCEEDED', 'FAILED')),
    CONSTRAINT refunds_failure_matches CHECK ((status = 'FAILED') = (failure IS NOT NULL)),
    -- Money goes back to where it came from: the paying attempt or one stray payment.
    CONSTRAINT refunds_one_source CHECK ((pay_order_id IS NULL) <> (stray_id IS NULL))
);
CREATE INDEX refunds_of_order ON refunds (merchant_id, order_no);
-- A stray payment is given back once: another refund of it may start only after this one failed.
CREATE UNIQUE INDEX refunds_one_open_per_stray ON refunds (stray_id)
    WHERE stray_id IS NOT NULL AND status <> 'FAILED';

CREATE TABLE outbox (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    merchant_id   text COLLATE "C",
    -- Events of one order number leave in the order of their ids.
    order_no      text COLLATE "C",
    event         text NOT NULL,
    event_version smallint NOT NULL,
    payload       jsonb NOT NULL,
    created_at    timestamptz NOT NULL,
    published_at  timestamptz
);
-- What has not left yet.
CREATE INDEX outbox_unpublished ON outbox (id) WHERE published_at IS NULL;
CREATE INDEX outbox_of_order ON outbox (merchant_id, order_no);

CREATE TABLE compensations (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind         text NOT NULL,
    -- What is to be driven to an end, and which one of its kind.
    action       text NOT NULL,
    subject      text COLLATE "C" NOT NULL,
    merchant_id  text COLLATE "C",
    order_no     text COLLATE "C",
    status       text NOT NULL DEFAULT 'READY',
    attempts     integer NOT NULL DEFAULT 0,
    -- When it may be tried next; while RUNNING, when its worker counts as dead.
    due_at       timestamptz NOT NULL,
    last_error   text,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    CONSTRAINT compensations_kind_is_known CHECK (kind IN ('REDO_BUSINESS')),
    CONSTRAINT compensations_status_is_known CHECK (status IN ('READY', 'RUNNING', 'DONE', 'DEAD'))
) WITH (fillfactor = 80);
-- One living task for one thing; DONE and DEAD rows leave the index, so it stays small.
CREATE UNIQUE INDEX compensations_one_alive ON compensations (action, subject) WHERE status IN ('READY', 'RUNNING');
-- What is due; also finds tasks whose worker died, whose lease is their due time.
CREATE INDEX compensations_due ON compensations (due_at) WHERE status IN ('READY', 'RUNNING');
CREATE INDEX compensations_of_order ON compensations (merchant_id, order_no);

CREATE TABLE exceptions (
    exception_id  text COLLATE "C" PRIMARY KEY,
    kind          text NOT NULL,
    merchant_id   text COLLATE "C",
    order_no      text COLLATE "C",
    -- The thing that needs a look: a stray payment, a task, a callback.
    subject       text COLLATE "C" NOT NULL,
    detail        text NOT NULL,
    status        text NOT NULL DEFAULT 'OPEN',
    action        text,
    resolved_by   text,
    reason        text,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    CONSTRAINT exceptions_kind_is_known
        CHECK (kind IN ('AMOUNT_MISMATCH', 'STRAY_MONEY', 'UNKNOWN_ORDER', 'WRONG_ACCOUNT', 'DEAD_TASK')),
    CONSTRAINT exceptions_status_is_known CHECK (status IN ('OPEN', 'RESOLVED')),
    CONSTRAINT exceptions_action_is_known CHECK (action IN ('REFUND', 'KEEP', 'NONE')),
    CONSTRAINT exceptions_resolution_matches CHECK ((status = 'RESOLVED') = (action IS NOT NULL))
);
-- The same thing is reported once while it is open.
CREATE UNIQUE INDEX exceptions_one_open ON exceptions (kind, subject) WHERE status = 'OPEN';
CREATE INDEX exceptions_of_order ON exceptions (merchant_id, order_no);

CREATE TABLE admin_log (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    actor       text NOT NULL,
    role        text NOT NULL,
    action      text NOT NULL,
    target      text NOT NULL,
    reason      text NOT NULL,
    request_id  text NOT NULL,
    created_at  timestamptz NOT NULL
);

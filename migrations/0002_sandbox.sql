-- The sandbox channel: a payment gateway with books of its own.
--
-- It stands for a provider outside, so nothing here refers to Payonce's tables and nothing there refers to
-- these. Constraint names carry the schema's name, because errors name a constraint without its schema.

CREATE SCHEMA sandbox;

-- One attempt to collect an order, as the gateway knows it. Its key is the caller's own id, which makes opening
-- it repeatable. No second index: opening a trade is the hot path, and every look-up is by key.
CREATE TABLE sandbox.trades (
    pay_order_id text COLLATE "C" NOT NULL,
    amount bigint NOT NULL,
    currency text COLLATE "C" NOT NULL,
    subject text NOT NULL,
    payer_id text COLLATE "C" NOT NULL,
    return_url text,
    notify_url text NOT NULL,
    status text COLLATE "C" NOT NULL,
    expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT sandbox_trades_pkey PRIMARY KEY (pay_order_id),
    CONSTRAINT sandbox_trades_amount_in_range CHECK (amount BETWEEN 1 AND 1000000000000),
    CONSTRAINT sandbox_trades_currency_is_code CHECK (currency ~ '^[A-Z]{3}$'),
    -- "Expired" is not a state: it is an OPEN trade past expires_at.
    CONSTRAINT sandbox_trades_status_known CHECK (status IN ('OPEN', 'PAID', 'DECLINED', 'CLOSED'))
)
-- Each trade changes its state once or twice: room on the page keeps that update off the index.
WITH (fillfactor = 85);

-- Money taken. A trade has more than one payment when a customer was made to pay twice.
CREATE TABLE sandbox.payments (
    transaction_id text COLLATE "C" NOT NULL,
    pay_order_id text COLLATE "C" NOT NULL,
    number integer NOT NULL,
    amount bigint NOT NULL,
    currency text COLLATE "C" NOT NULL,
    refunded_amount bigint NOT NULL DEFAULT 0,
    paid_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT sandbox_payments_pkey PRIMARY KEY (transaction_id),
    CONSTRAINT sandbox_payments_trade_fkey FOREIGN KEY (pay_order_id) REFERENCES sandbox.trades,
    -- Number 1 is the payment that a query answers with; also finds a trade's payments.
    CONSTRAINT sandbox_payments_trade_number_key UNIQUE (pay_order_id, number),
    CONSTRAINT sandbox_payments_number_counts CHECK (number >= 1),
    CONSTRAINT sandbox_payments_amount_in_range CHECK (amount BETWEEN 1 AND 1000000000000),
    CONSTRAINT sandbox_payments_currency_is_code CHECK (currency ~ '^[A-Z]{3}$'),
    -- The last word on "never give back more than was taken".
    CONSTRAINT sandbox_payments_refunded_within CHECK (refunded_amount BETWEEN 0 AND amount)
);

-- The statement of a day reads in this order, page by page.
CREATE INDEX sandbox_payments_by_day ON sandbox.payments (paid_at, transaction_id);

-- Money given back. A row is a refund that succeeded: refusals leave no trace, as at most providers.
CREATE TABLE sandbox.refunds (
    refund_id text COLLATE "C" NOT NULL,
    transaction_id text COLLATE "C" NOT NULL,
    amount bigint NOT NULL,
    currency text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    refunded_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT sandbox_refunds_pkey PRIMARY KEY (refund_id),
    CONSTRAINT sandbox_refunds_payment_fkey FOREIGN KEY (transaction_id) REFERENCES sandbox.payments,
    CONSTRAINT sandbox_refunds_amount_in_range CHECK (amount BETWEEN 1 AND 1000000000000),
    CONSTRAINT sandbox_refunds_currency_is_code CHECK (currency ~ '^[A-Z]{3}$')
);

-- The statement of a day, as above.
CREATE INDEX sandbox_refunds_by_day ON sandbox.refunds (refunded_at, refund_id);
-- The books' view of a trade lists its refunds.
CREATE INDEX sandbox_refunds_by_payment ON sandbox.refunds (transaction_id);

-- Money sent out. A row is a payout that succeeded.
CREATE TABLE sandbox.payouts (
    payout_id text COLLATE "C" NOT NULL,
    account text NOT NULL,
    amount bigint NOT NULL,
    currency text COLLATE "C" NOT NULL,
    paid_out_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT sandbox_payouts_pkey PRIMARY KEY (payout_id),
    CONSTRAINT sandbox_payouts_amount_in_range CHECK (amount BETWEEN 1 AND 1000000000000),
    CONSTRAINT sandbox_payouts_currency_is_code CHECK (currency ~ '^[A-Z]{3}$')
);

-- The statement of a day, as above.
CREATE INDEX sandbox_payouts_by_day ON sandbox.payouts (paid_out_at, payout_id);

-- Webhooks to send. The same event may stand here several times (the fault `repeat`), so event_id is no key.
CREATE TABLE sandbox.deliveries (
    id bigint GENERATED ALWAYS AS IDENTITY,
    event_id text COLLATE "C" NOT NULL,
    pay_order_id text COLLATE "C" NOT NULL,
    notify_url text NOT NULL,
    -- The bytes to send, so that every repeat says the same; the signature is made anew at each try.
    body text NOT NULL,
    status text COLLATE "C" NOT NULL,
    -- Waits for a later event of its trade to go first, but no longer than until due_at.
    is_held boolean NOT NULL DEFAULT false,
    attempts integer NOT NULL DEFAULT 0,
    -- When to try next. A claim moves it into the future, which is the claim's lease: after a crash the row
    -- simply falls due again.
    due_at timestamptz NOT NULL,
    -- What the last try brought, for people.
    last_result text,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT sandbox_deliveries_pkey PRIMARY KEY (id),
    CONSTRAINT sandbox_deliveries_trade_fkey FOREIGN KEY (pay_order_id) REFERENCES sandbox.trades,
    CONSTRAINT sandbox_deliveries_status_known CHECK (status IN ('PENDING', 'DELIVERED', 'GAVE_UP', 'DROPPED')),
    CONSTRAINT sandbox_deliveries_held_is_pending CHECK (NOT is_held OR status = 'PENDING'),
    CONSTRAINT sandbox_deliveries_attempts_count CHECK (attempts >= 0)
);

-- The sender takes what is due; the index holds only what is still to be sent.
CREATE INDEX sandbox_deliveries_due ON sandbox.deliveries (due_at) WHERE status = 'PENDING';
-- The books' view of a trade, and the release of what is held behind a later event.
CREATE INDEX sandbox_deliveries_by_trade ON sandbox.deliveries (pay_order_id, id);

-- Misbehaviour ordered by a test; every instance sees it. Ordering the same one again replaces it. Used-up rows
-- stay with 0 times left: there are never more of them than pairs of words.
CREATE TABLE sandbox.faults (
    op text COLLATE "C" NOT NULL,
    fault text COLLATE "C" NOT NULL,
    times_left integer NOT NULL,
    ms integer NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT sandbox_faults_pkey PRIMARY KEY (op, fault),
    CONSTRAINT sandbox_faults_op_known
        CHECK (op IN ('create', 'query', 'close', 'refund', 'payout', 'webhook')),
    CONSTRAINT sandbox_faults_fault_known
        CHECK (fault IN ('delay', 'timeout_before', 'timeout_after', 'drop', 'repeat', 'reorder', 'wrong_amount',
                         'wrong_currency', 'refuse', 'pay_after_close')),
    CONSTRAINT sandbox_faults_times_left_counts CHECK (times_left >= 0),
    CONSTRAINT sandbox_faults_ms_in_range CHECK (ms BETWEEN 0 AND 600000)
);

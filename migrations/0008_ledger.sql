-- The books: double entry. Every movement of money is one transaction of two or more entries that sum to zero in each
-- currency. Transactions and entries are only ever added; a mistake is corrected by a reversal.
--
-- Three accounts would be written by every payment (the channel's, the merchant's, suspense) and would then put all of
-- them in one queue. So only users' accounts carry their balance in place; what moves the others is appended, one row
-- for each account and statement, and folded into their balances now and then (duty `ledger.fold`).

-- An account is what its id says: KIND:owner…:CURRENCY, such as CHANNEL:sandbox:CNY, MERCHANT:demo:CNY or
-- USER_AVAILABLE:demo:u1:CNY. No part can hold a colon.
CREATE TABLE accounts (
    account_id   text COLLATE "C" PRIMARY KEY,
    kind         text COLLATE "C" NOT NULL GENERATED ALWAYS AS (split_part(account_id, ':', 1)) STORED,
    currency     text COLLATE "C" NOT NULL GENERATED ALWAYS AS (split_part(account_id, ':', -1)) STORED,
    merchant_id  text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN account_id ~ '^(MERCHANT|COMMISSION_EXPENSE|USER_[A-Z]+):' THEN split_part(account_id, ':', 2) END
    ) STORED,
    user_id      text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN account_id LIKE 'USER\_%' THEN split_part(account_id, ':', 3) END
    ) STORED,
    -- 1 where debits make the balance grow (what we have, and what we spend), -1 where credits do (what we owe, and
    -- what we earn).
    sense        smallint NOT NULL GENERATED ALWAYS AS (
        CASE WHEN split_part(account_id, ':', 1)
                  IN ('CHANNEL', 'PAYOUTS_IN_TRANSIT', 'COMMISSION_EXPENSE', 'USER_RECEIVABLE')
             THEN 1 ELSE -1 END
    ) STORED,
    -- Minor units. A user's is exact; any other is to be read together with its rows in account_movements.
    balance      bigint NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    CONSTRAINT accounts_id_is_an_account CHECK (account_id ~
        '^((CHANNEL|PAYOUTS_IN_TRANSIT|SUSPENSE|MERCHANT|COMMISSION_EXPENSE):[^:]+|PLATFORM_REVENUE|(USER_AVAILABLE|USER_HELD|USER_RECEIVABLE):[^:]+:[^:]+):[A-Z][A-Z][A-Z]$'),
    -- The database's own word against spending what is not there.
    CONSTRAINT accounts_user_balance_not_negative CHECK (balance >= 0 OR user_id IS NULL)
) WITH (fillfactor = 50); -- Balances change in place: room for new versions on the same page.
-- The balances of one user.
CREATE INDEX accounts_of_user ON accounts (merchant_id, user_id) WHERE user_id IS NOT NULL;

-- One booking. Its key is the business fact that it books, KIND:reference, such as PAYMENT:po_…: nothing is booked
-- twice.
CREATE TABLE ledger_transactions (
    transaction_id  text COLLATE "C" PRIMARY KEY,
    kind            text COLLATE "C" NOT NULL,
    merchant_id     text COLLATE "C",
    order_no        text COLLATE "C",
    -- What a reversal takes back: one transaction, once, because its own key is made of it.
    reverses        text COLLATE "C" CONSTRAINT ledger_transactions_reverses_fkey REFERENCES ledger_transactions,
    created_at      timestamptz NOT NULL,
    CONSTRAINT ledger_transactions_kind_is_known CHECK (kind IN
        ('PAYMENT', 'STRAY_PAYMENT', 'STRAY_KEPT', 'REFUND', 'REFUND_HOLD', 'SETTLEMENT', 'CLAW_BACK', 'WITHDRAWAL', 'PAYOUT',
         'PAYOUT_DONE', 'REVERSAL')),
    CONSTRAINT ledger_transactions_id_names_its_kind CHECK (starts_with(transaction_id, kind || ':')),
    CONSTRAINT ledger_transactions_reversal_matches
        CHECK ((kind = 'REVERSAL') = (reverses IS NOT NULL)
               AND (reverses IS NULL OR transaction_id = 'REVERSAL:' || reverses)
               AND NOT starts_with(reverses, 'REVERSAL:'))
);

-- No foreign keys: ledger_entries_post() looks at both for a whole statement at once.
CREATE TABLE ledger_entries (
    entry_id        bigint GENERATED ALWAYS AS IDENTITY,
    transaction_id  text COLLATE "C" NOT NULL,
    account_id      text COLLATE "C" NOT NULL,
    -- Minor units: a debit is positive, a credit negative.
    amount          bigint NOT NULL,
    CONSTRAINT ledger_entries_pkey PRIMARY KEY (transaction_id, account_id),
    CONSTRAINT ledger_entries_amount_is_not_zero CHECK (amount <> 0)
);
-- The entries of one user, in their order. Those of the other accounts stay out of it: a payment writes no entry here.
CREATE INDEX ledger_entries_of_user ON ledger_entries (account_id, entry_id) WHERE account_id LIKE 'USER\_%';

-- By how much a statement moved an account that is no user's, until that is folded into the balance. In the account's
-- own sense. No index and no key: rows are appended, and taken out all together.
CREATE TABLE account_movements (
    account_id  text COLLATE "C" NOT NULL,
    amount      numeric NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- ---- what exists already is booked ------------------------------------------------------------------------------------

CREATE TEMPORARY TABLE opening ON COMMIT DROP AS
-- Money that paid its order.
SELECT 'PAYMENT' AS kind, attempt.pay_order_id AS reference, attempt.merchant_id, attempt.order_no, attempt.paid_at AS created_at,
       format('CHANNEL:%s:%s', attempt.channel, attempt.currency) AS debit,
       CASE orders.kind WHEN 'TOPUP' THEN format('USER_AVAILABLE:%s:%s:%s', orders.merchant_id, orders.user_id, orders.currency)
                        ELSE format('MERCHANT:%s:%s', orders.merchant_id, orders.currency) END AS credit,
       attempt.amount
FROM orders JOIN pay_orders AS attempt ON attempt.pay_order_id = orders.paid_by
UNION ALL
-- Money that no order accepted …
SELECT 'STRAY_PAYMENT', stray_id, merchant_id, order_no, created_at, format('CHANNEL:%s:%s', channel, currency),
       format('SUSPENSE:%s:%s', channel, currency), amount
FROM stray_payments
UNION ALL
-- … and what a person kept of it.
SELECT 'STRAY_KEPT', stray_id, merchant_id, order_no, updated_at, format('SUSPENSE:%s:%s', channel, currency),
       CASE WHEN merchant_id IS NULL THEN format('PLATFORM_REVENUE:%s', currency)
            ELSE format('MERCHANT:%s:%s', merchant_id, currency) END, amount
FROM stray_payments WHERE status = 'KEPT'
UNION ALL
-- What went back.
SELECT 'REFUND', refund_id, refund.merchant_id, refund.order_no, refund.updated_at,
       CASE WHEN stray.stray_id IS NOT NULL THEN format('SUSPENSE:%s:%s', stray.channel, refund.currency)
            ELSE format('MERCHANT:%s:%s', refund.merchant_id, refund.currency) END,
       format('CHANNEL:%s:%s', coalesce(stray.channel, attempt.channel), refund.currency), refund.amount
FROM refunds AS refund
LEFT JOIN stray_payments AS stray ON stray.stray_id = refund.stray_id
LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = refund.pay_order_id
WHERE refund.status = 'SUCCEEDED';

INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
SELECT kind || ':' || reference, kind, merchant_id, order_no, created_at FROM opening;
INSERT INTO ledger_entries (transaction_id, account_id, amount)
SELECT kind || ':' || reference, debit, amount FROM opening
UNION ALL
SELECT kind || ':' || reference, credit, -amount FROM opening;
INSERT INTO accounts (account_id, created_at, updated_at)
SELECT account_id, min(created_at), max(created_at)
FROM ledger_entries JOIN ledger_transactions USING (transaction_id) GROUP BY account_id;
UPDATE accounts SET balance = sense * moved.amount
FROM (SELECT account_id, sum(amount) AS amount FROM ledger_entries GROUP BY account_id) AS moved
WHERE accounts.account_id = moved.account_id;

-- ---- from here on the books keep themselves ---------------------------------------------------------------------------

-- Whoever adds entries, by whatever statement: they are whole, and they move the balances.
CREATE FUNCTION ledger_entries_post() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wrong text;
BEGIN
    SELECT format('%s is not balanced in %s, names an account that is not there, or was booked before',
                  added.transaction_id, coalesce(currency, 'a currency of no account'))
    INTO wrong
    FROM added
    LEFT JOIN accounts ON accounts.account_id = added.account_id
    LEFT JOIN ledger_transactions AS booked
           ON booked.transaction_id = added.transaction_id
              -- Entries come with their transaction, never after it.
              AND booked.xmin = pg_current_xact_id()::xid
    GROUP BY added.transaction_id, currency
    HAVING sum(amount) <> 0 OR currency IS NULL OR count(booked.transaction_id) < count(*)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'ledger transaction %', wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_entries_balance', TABLE = 'ledger_entries';
    END IF;

    WITH moved AS MATERIALIZED (
        -- Locked in the order of their names, as by everybody.
        SELECT accounts.account_id, accounts.sense * change.amount AS amount, change.created_at
        FROM (SELECT account_id, sum(amount)::bigint AS amount, max(created_at) AS created_at
              -- Outer joins, so that what was added is looked up, whatever the planner believes of the tables.
              FROM added LEFT JOIN ledger_transactions USING (transaction_id)
              WHERE account_id LIKE 'USER\_%' GROUP BY account_id) AS change
        JOIN accounts ON accounts.account_id = change.account_id
        ORDER BY accounts.account_id FOR NO KEY UPDATE OF accounts
    )
    UPDATE accounts SET balance = accounts.balance + moved.amount, updated_at = moved.created_at
    FROM moved WHERE accounts.account_id = moved.account_id;

    INSERT INTO account_movements (account_id, amount)
    SELECT accounts.account_id, accounts.sense * sum(added.amount)
    FROM added LEFT JOIN accounts ON accounts.account_id = added.account_id
    WHERE accounts.user_id IS NULL
    GROUP BY accounts.account_id, accounts.sense;
    RETURN NULL;
END
$$;
CREATE TRIGGER ledger_entries_post AFTER INSERT ON ledger_entries REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_entries_post();

CREATE TRIGGER ledger_entries_only_grow BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_transactions_only_grow BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_transactions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- ---- what the service's role may do ----------------------------------------------------------------------------------

-- The list of 0004 as rows, so that a migration adds its tables' lines and repeats none. What has no line here may be
-- read and written.
CREATE TABLE service_rules (
    table_name  text PRIMARY KEY,
    rights      text[] NOT NULL
);
INSERT INTO service_rules (table_name, rights)
SELECT table_name, wanted FROM service_rights WHERE wanted <> '{DELETE,INSERT,SELECT,UPDATE}';
INSERT INTO service_rules (table_name, rights) VALUES
    ('public.service_rules', '{SELECT}'),
    -- What is booked stays as it is.
    ('public.ledger_transactions', '{SELECT, INSERT}'),
    ('public.ledger_entries', '{SELECT, INSERT}'),
    -- What an account is never changes, only its balance does.
    ('public.accounts', '{SELECT, INSERT, UPDATE(balance), UPDATE(updated_at)}');

CREATE OR REPLACE VIEW service_rights AS
SELECT class.table_name, wanted.rights AS wanted, granted.rights AS granted
FROM (SELECT pg_class.oid, relacl, format('%I.%I', nspname, relname) AS table_name
      FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
      WHERE nspname IN ('public', 'sandbox') AND relkind IN ('r', 'p')) AS class
LEFT JOIN service_rules USING (table_name)
CROSS JOIN LATERAL (
    SELECT ARRAY(SELECT unnest(coalesce(service_rules.rights, '{SELECT, INSERT, UPDATE, DELETE}')) ORDER BY 1) AS rights
) AS wanted
CROSS JOIN LATERAL (
    SELECT ARRAY(
        SELECT privilege_type FROM aclexplode(relacl) WHERE grantee = to_regrole('payonce_service')
        UNION ALL
        SELECT format('%s(%s)', privilege_type, attname) FROM pg_attribute, aclexplode(attacl)
        WHERE attrelid = class.oid AND grantee = to_regrole('payonce_service')
        ORDER BY 1
    ) AS rights
) AS granted;

SELECT grant_service_rights();

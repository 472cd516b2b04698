-- A booking is one row that holds its entries: it is written, found and checked whole, where each entry had a row, a key and,
-- of a user, an index entry of its own. `ledger_entries` is what it was to whoever reads it, as a view.
--
-- Instances of the version before write entries by themselves: stop all of them before you migrate.

-- The connections of the service look everything up, one row at a time; here all rows are joined.
SET LOCAL enable_seqscan = on;
SET LOCAL enable_hashjoin = on;
SET LOCAL enable_mergejoin = on;
-- All that is waited for is waited for here, before anything is done.
LOCK TABLE accounts, ledger_transactions, ledger_entries IN ACCESS EXCLUSIVE MODE;

ALTER TABLE ledger_transactions RENAME TO ledger_transactions_before;
ALTER TABLE ledger_transactions_before
    DROP CONSTRAINT ledger_transactions_reverses_fkey,
    DROP CONSTRAINT ledger_transactions_pkey;
DROP INDEX ledger_transactions_of_charges;

CREATE TABLE ledger_transactions (
    transaction_id  text COLLATE "C" NOT NULL,
    -- In the order of writing: a later one has a higher one.
    seq             bigint GENERATED ALWAYS AS IDENTITY,
    kind            text COLLATE "C" NOT NULL,
    merchant_id     text COLLATE "C",
    order_no        text COLLATE "C",
    -- What a reversal takes back: one transaction, once, because its own key is made of it.
    reverses        text COLLATE "C",
    created_at      timestamptz NOT NULL,
    -- The entries: accounts of one currency in the order of their names, and so a user's last, and the minor units of each, a
    -- debit positive and a credit negative, which sum to zero. ledger_transactions_post() sees to it.
    account_ids     text[] COLLATE "C" NOT NULL,
    amounts         bigint[] NOT NULL,
    -- Whose balances it moves, merchant:user:currency; NULL for a booking between accounts of the house.
    wallet          text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN account_ids[cardinality(account_ids)] LIKE 'USER\_%'
             THEN substr(account_ids[cardinality(account_ids)], strpos(account_ids[cardinality(account_ids)], ':') + 1) END
    ) STORED
);
INSERT INTO ledger_transactions
    (transaction_id, seq, kind, merchant_id, order_no, reverses, created_at, account_ids, amounts)
OVERRIDING SYSTEM VALUE
SELECT transaction_id, entry.first, kind, merchant_id, order_no, reverses, created_at, entry.account_ids, entry.amounts
FROM ledger_transactions_before
JOIN (SELECT transaction_id, min(entry_id) AS first, array_agg(account_id ORDER BY account_id) AS account_ids,
             array_agg(amount ORDER BY account_id) AS amounts
      FROM ledger_entries GROUP BY transaction_id) AS entry USING (transaction_id)
ORDER BY entry.first;
DO $$
DECLARE
    odd text;
BEGIN
    IF (SELECT count(*) FROM ledger_transactions) <> (SELECT count(*) FROM ledger_transactions_before) THEN
        RAISE EXCEPTION 'there are bookings without entries, which `payonce audit` of the version before names; nothing was changed';
    END IF;
    IF (SELECT coalesce(sum(cardinality(amounts)), 0) FROM ledger_transactions) <> (SELECT count(*) FROM ledger_entries) THEN
        RAISE EXCEPTION 'there are entries without a booking, which `payonce audit` of the version before names; nothing was changed';
    END IF;
    SELECT transaction_id INTO odd
    FROM ledger_transactions
    CROSS JOIN LATERAL (
        SELECT sum(amount) AS sum, count(DISTINCT right(account_id, 3)) AS currencies,
               count(DISTINCT substr(account_id, strpos(account_id, ':') + 1)) FILTER (WHERE account_id LIKE 'USER\_%') AS wallets
        FROM unnest(account_ids, amounts) AS entry (account_id, amount)) AS entered
    WHERE sum <> 0 OR currencies > 1 OR wallets > 1 LIMIT 1;
    IF odd IS NOT NULL THEN
        RAISE EXCEPTION '% was booked by hand: it is not balanced, or of several currencies or users; nothing was changed', odd;
    END IF;
    PERFORM setval(pg_get_serial_sequence('ledger_transactions', 'seq'), max(seq)) FROM ledger_transactions HAVING max(seq) IS NOT NULL;
END
$$;
DROP TABLE ledger_entries, ledger_transactions_before;
DROP FUNCTION ledger_entries_post();

ALTER TABLE ledger_transactions
    ADD CONSTRAINT ledger_transactions_pkey PRIMARY KEY (transaction_id),
    ADD CONSTRAINT ledger_transactions_reverses_fkey FOREIGN KEY (reverses) REFERENCES ledger_transactions,
    ADD CONSTRAINT ledger_transactions_kind_is_known CHECK (kind IN
        ('PAYMENT', 'STRAY_PAYMENT', 'STRAY_KEPT', 'REFUND', 'REFUND_HOLD', 'SETTLEMENT', 'CLAW_BACK', 'WITHDRAWAL', 'PAYOUT',
         'PAYOUT_DONE', 'REVERSAL', 'USAGE_HOLD', 'USAGE_EXTENSION', 'USAGE_CHARGE', 'USAGE_RELEASE', 'COMPENSATING_CHARGE',
         'CHARGE_PAID_BACK', 'COLLECTION', 'WRITE_OFF')),
    ADD CONSTRAINT ledger_transactions_id_names_its_kind CHECK (starts_with(transaction_id, kind || ':')),
    ADD CONSTRAINT ledger_transactions_reversal_matches
        CHECK ((kind = 'REVERSAL') = (reverses IS NOT NULL)
               AND (reverses IS NULL OR transaction_id = 'REVERSAL:' || reverses)
               AND NOT starts_with(reverses, 'REVERSAL:')),
    -- Two lists of one length, none longer than what ledger_transactions_post() adds up.
    ADD CONSTRAINT ledger_transactions_entries_match
        CHECK (cardinality(account_ids) > 0 AND cardinality(amounts) > 0
               AND array_dims(account_ids) = array_dims(amounts) AND array_dims(amounts) IN ('[1:2]', '[1:3]', '[1:4]', '[1:5]', '[1:6]')
               AND array_position(account_ids, NULL) IS NULL AND array_position(amounts, NULL) IS NULL),
    ADD CONSTRAINT ledger_transactions_amounts_not_zero CHECK (0 <> ALL (amounts));
-- The bookings of one user, in their order. A payment has no entry here.
CREATE INDEX ledger_transactions_of_wallet ON ledger_transactions (wallet, seq) WHERE wallet IS NOT NULL;
-- Those of them that move what the user owes, the last account by its name: a few of very many.
CREATE INDEX ledger_transactions_of_debtor ON ledger_transactions (wallet, seq)
    WHERE starts_with(account_ids[cardinality(account_ids)], 'USER_RECEIVABLE:');
-- Bookings of charges by their order: none of the many others is in it.
CREATE INDEX ledger_transactions_of_charges ON ledger_transactions (merchant_id, order_no) WHERE kind = 'COMPENSATING_CHARGE';

-- The entries, one by one, each with what it is a part of. A later one has a higher number.
CREATE VIEW ledger_entries AS
SELECT seq * 8 + entry.place AS entry_id, transaction_id, entry.account_id, entry.amount, kind, merchant_id, order_no, reverses
FROM ledger_transactions, unnest(account_ids, amounts) WITH ORDINALITY AS entry (account_id, amount, place);

-- Whoever books, by whatever statement: what is booked is whole, and moves the balances. One look at all of it says what there
-- is to do; each account is looked up once or, where its balance is kept in place, twice.
CREATE FUNCTION ledger_transactions_post() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    names_house boolean;
    names_users boolean;
    wrong text;
BEGIN
    -- A statement that books nothing fires it, too, and finds nothing here.
    SELECT bool_or(wallet IS NULL OR account_ids[1] NOT LIKE 'USER\_%'), bool_or(wallet IS NOT NULL),
           min(CASE
               WHEN amounts[1]::numeric + amounts[2] + coalesce(amounts[3], 0) + coalesce(amounts[4], 0) + coalesce(amounts[5], 0)
                    + coalesce(amounts[6], 0) <> 0
               THEN format('%s is not balanced', transaction_id)
               WHEN NOT (account_ids[1] < account_ids[2] AND account_ids[2] < account_ids[3]
                         AND account_ids[3] < account_ids[4] AND account_ids[4] < account_ids[5]
                         AND account_ids[5] < account_ids[6])
               THEN format('%s does not name each account once, in the order of their names', transaction_id)
               WHEN NOT (right(account_ids[1], 3) = right(account_ids[2], 3)
                         AND right(account_ids[2], 3) = right(account_ids[3], 3)
                         AND right(account_ids[3], 3) = right(account_ids[4], 3)
                         AND right(account_ids[4], 3) = right(account_ids[5], 3)
                         AND right(account_ids[5], 3) = right(account_ids[6], 3))
               THEN format('%s is not of one currency', transaction_id)
           END)
    INTO names_house, names_users, wrong
    FROM added;
    IF wrong IS NULL AND names_house THEN
        WITH change AS MATERIALIZED (
            SELECT account_id, sum(amount) AS amount
            FROM added, unnest(account_ids, amounts) AS entry (account_id, amount)
            WHERE account_id NOT LIKE 'USER\_%' GROUP BY account_id
        ), appended AS (
            INSERT INTO account_movements (account_id, amount)
            SELECT change.account_id, known.sense * change.amount
            -- The limit makes a look-up of it, whatever the planner believes of the table.
            FROM change CROSS JOIN LATERAL (SELECT sense FROM accounts
                                            WHERE accounts.account_id = change.account_id LIMIT 1) AS known
            RETURNING account_id
        )
        SELECT format('names %s, which is no account', account_id) INTO wrong
        FROM change WHERE account_id NOT IN (SELECT account_id FROM appended) LIMIT 1;
    END IF;
    IF wrong IS NULL AND names_users THEN
        WITH change AS MATERIALIZED (
            SELECT account_id, sum(amount) AS amount,
                   bool_or(wallet IS DISTINCT FROM substr(account_id, strpos(account_id, ':') + 1)) AS is_strange
            FROM added, unnest(account_ids, amounts) AS entry (account_id, amount)
            WHERE account_id LIKE 'USER\_%' GROUP BY account_id
        ), moved AS MATERIALIZED (
            -- Locked in the order of their names, as by everybody. What is compared is guessed to be one row, and looked up.
            SELECT accounts.account_id, accounts.sense * change.amount AS amount
            FROM change JOIN accounts ON accounts.account_id = change.account_id
            ORDER BY accounts.account_id FOR NO KEY UPDATE OF accounts
        ), balanced AS (
            -- What is found wrong below is taken back with all of it, so what is written until then need only be writable.
            UPDATE accounts
            SET balance = accounts.balance + moved.amount, updated_at = (SELECT max(created_at) FROM added)
            FROM moved WHERE accounts.account_id = moved.account_id
        )
        SELECT CASE WHEN is_strange THEN format('names %s beside another user', account_id)
                    ELSE format('names %s, which is no account', account_id) END
        INTO wrong
        FROM change WHERE is_strange OR account_id NOT IN (SELECT account_id FROM moved) LIMIT 1;
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'ledger transaction %', wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_transactions_whole', TABLE = 'ledger_transactions';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER ledger_transactions_post AFTER INSERT ON ledger_transactions REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_transactions_post();
CREATE TRIGGER ledger_transactions_only_grow BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_transactions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What an account is stands in its name, and is written beside it once, as it is opened. Generated columns say the same, but
-- a statement that moves a balance reads all of their expressions anew: 16 small charges were booked in 1.15 ms without them, and in
-- 1.34 with them (psql).
ALTER TABLE accounts
    ALTER kind DROP EXPRESSION, ALTER currency DROP EXPRESSION, ALTER merchant_id DROP EXPRESSION, ALTER user_id DROP EXPRESSION,
    ALTER sense DROP EXPRESSION;
DROP TRIGGER accounts_id_is_an_account ON accounts;
DROP FUNCTION refuse_account_id();
CREATE FUNCTION accounts_open() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.account_id !~ '^((CHANNEL|PAYOUTS_IN_TRANSIT|SUSPENSE|MERCHANT|COMMISSION_EXPENSE):[^:]+|PLATFORM_REVENUE|(USER_AVAILABLE|USER_HELD|USER_RECEIVABLE):[^:]+:[^:]+):[A-Z][A-Z][A-Z]$'
    THEN
        RAISE EXCEPTION '% is no account', NEW.account_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'accounts_id_is_an_account', TABLE = 'accounts';
    END IF;
    NEW.kind := split_part(NEW.account_id, ':', 1);
    NEW.currency := split_part(NEW.account_id, ':', -1);
    NEW.merchant_id := CASE WHEN NEW.kind IN ('MERCHANT', 'COMMISSION_EXPENSE') OR NEW.kind LIKE 'USER\_%'
                            THEN split_part(NEW.account_id, ':', 2) END;
    NEW.user_id := CASE WHEN NEW.kind LIKE 'USER\_%' THEN split_part(NEW.account_id, ':', 3) END;
    -- 1 where debits make the balance grow (what we have, and what we spend), -1 where credits do (what we owe, and what we
    -- earn).
    NEW.sense := CASE WHEN NEW.kind IN ('CHANNEL', 'PAYOUTS_IN_TRANSIT', 'COMMISSION_EXPENSE', 'USER_RECEIVABLE')
                      THEN 1 ELSE -1 END;
    RETURN NEW;
END
$$;
CREATE TRIGGER accounts_open BEFORE INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION accounts_open();
-- Also where rows are written with triggers off: an account that does not say what it is is none.
ALTER TABLE accounts ENABLE ALWAYS TRIGGER accounts_open;
CREATE FUNCTION refuse_new_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'an account stays what it is: its name, and what stands in it, never change'
        USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER accounts_keep_their_names BEFORE UPDATE OF account_id, kind, currency, merchant_id, user_id, sense ON accounts
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_new_name();

-- A view is read as it is, and only where it has a line here.
UPDATE service_rules SET rights = '{SELECT}' WHERE table_name = 'public.ledger_entries';
CREATE OR REPLACE VIEW service_rights AS
SELECT class.table_name, wanted.rights AS wanted, granted.rights AS granted
FROM (SELECT pg_class.oid, relkind, relacl, format('%I.%I', nspname, relname) AS table_name
      FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
      WHERE nspname IN ('public', 'sandbox') AND relkind IN ('r', 'p', 'v')) AS class
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
) AS granted
WHERE relkind <> 'v' OR service_rules.rights IS NOT NULL;
SELECT grant_service_rights();

-- Nothing is known of the new table, and its first plans may live for hours.
ANALYZE ledger_transactions;

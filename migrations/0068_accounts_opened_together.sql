-- Accounts are opened together: the first settlements of 500 users opened one after the other, each in a statement of its own, and
-- read the name of each with a regular expression and four looks for its parts.

-- Opens accounts, where nobody was faster. Their names come in their order, as by everybody.
CREATE FUNCTION open_accounts(names text[], at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO accounts (account_id, created_at, updated_at) SELECT name, at, at FROM unnest(names) AS name
    ON CONFLICT (account_id) DO NOTHING;
END
$$;

-- As before: an account is of one of the kinds, whose owner it names, and of a currency.
CREATE OR REPLACE FUNCTION accounts_open() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    part text[] := string_to_array(NEW.account_id, ':');
    parts integer := cardinality(part);
BEGIN
    NEW.kind := part[1];
    NEW.currency := part[parts];
    NEW.merchant_id := NULL;
    NEW.user_id := NULL;
    -- 1 where debits make the balance grow (what we have, and what we spend), -1 where credits do (what we owe, and what we
    -- earn).
    NEW.sense := CASE WHEN NEW.kind IN ('CHANNEL', 'PAYOUTS_IN_TRANSIT', 'COMMISSION_EXPENSE', 'USER_RECEIVABLE')
                      THEN 1 ELSE -1 END;
    IF NEW.kind IN ('USER_AVAILABLE', 'USER_HELD', 'USER_RECEIVABLE') AND parts = 4 THEN
        NEW.merchant_id := part[2];
        NEW.user_id := part[3];
    ELSIF NEW.kind IN ('MERCHANT', 'COMMISSION_EXPENSE') AND parts = 3 THEN
        NEW.merchant_id := part[2];
    ELSIF NOT (NEW.kind IN ('CHANNEL', 'PAYOUTS_IN_TRANSIT', 'SUSPENSE') AND parts = 3
               OR NEW.kind = 'PLATFORM_REVENUE' AND parts = 2) THEN
        parts := NULL;
    END IF;
    IF parts IS NULL OR '' = ANY (part) OR NEW.currency !~ '^[A-Z][A-Z][A-Z]$' THEN
        RAISE EXCEPTION '% is no account', NEW.account_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'accounts_id_is_an_account', TABLE = 'accounts';
    END IF;
    RETURN NEW;
END
$$;

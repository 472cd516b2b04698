-- A user's balance is written by every hold, charge, top-up and withdrawal, and the name of its account never changes.
--
-- So the name is looked at when an account is opened: as a CHECK its pattern was matched anew with every balance (5 % of
-- what PostgreSQL spent on a hold, by perf).
ALTER TABLE accounts DROP CONSTRAINT accounts_id_is_an_account;

CREATE FUNCTION refuse_account_id() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is no account', NEW.account_id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'accounts_id_is_an_account', TABLE = 'accounts';
END $$;

-- Behind the row: before it, PostgreSQL would make all generated columns again with every balance.
CREATE TRIGGER accounts_id_is_an_account AFTER INSERT OR UPDATE OF account_id ON accounts
FOR EACH ROW WHEN (NEW.account_id !~
    '^((CHANNEL|PAYOUTS_IN_TRANSIT|SUSPENSE|MERCHANT|COMMISSION_EXPENSE):[^:]+|PLATFORM_REVENUE|(USER_AVAILABLE|USER_HELD|USER_RECEIVABLE):[^:]+:[^:]+):[A-Z][A-Z][A-Z]$')
EXECUTE FUNCTION refuse_account_id();

-- Nothing looks at what is written, so that a world can be broken; and entries are written one by one, where the service only
-- ever writes whole bookings.
DO $$
DECLARE
    written regclass;
BEGIN
    FOR written IN SELECT oid FROM pg_class WHERE relnamespace IN ('public'::regnamespace, 'sandbox'::regnamespace) AND relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE %s DISABLE TRIGGER ALL', written);
    END LOOP;
END
$$;
-- What an account is stands in its name.
ALTER TABLE accounts ENABLE TRIGGER accounts_open;

ALTER TABLE ledger_transactions
    ALTER account_ids SET DEFAULT '{}',
    ALTER amounts SET DEFAULT '{}';
CREATE FUNCTION write_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        UPDATE ledger_transactions AS booked
        SET (account_ids, amounts) =
            (SELECT coalesce(array_agg(account_id), '{}'), coalesce(array_agg(amount), '{}')
             FROM unnest(booked.account_ids, booked.amounts) AS entry (account_id, amount)
             WHERE account_id <> OLD.account_id)
        WHERE transaction_id = OLD.transaction_id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        UPDATE ledger_transactions AS booked
        SET (account_ids, amounts) =
            (SELECT array_agg(account_id ORDER BY account_id), array_agg(amount ORDER BY account_id)
             FROM (SELECT * FROM unnest(booked.account_ids, booked.amounts)
                   UNION ALL SELECT NEW.account_id, NEW.amount) AS entry (account_id, amount))
        WHERE transaction_id = NEW.transaction_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no booking %', NEW.transaction_id;
        END IF;
    END IF;
    RETURN coalesce(NEW, OLD);
END
$$;
CREATE TRIGGER write_entry INSTEAD OF INSERT OR UPDATE OR DELETE ON ledger_entries
    FOR EACH ROW EXECUTE FUNCTION write_entry();

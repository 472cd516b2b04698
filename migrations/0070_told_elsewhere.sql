-- Orders whose events go elsewhere than to their merchant's endpoint: the relay asks that of each event, and few orders name one.
CREATE INDEX orders_told_elsewhere ON orders (order_no, merchant_id) WHERE notify_url IS NOT NULL;

-- A plain booking, which moves money from one account to another, is right at a glance: all that could be wrong is looked for in the
-- others.
DO $$
DECLARE
    definition text := pg_get_functiondef('ledger_transactions_post()'::regprocedure);
    looks CONSTANT text := 'min(CASE' || chr(10);
    plain CONSTANT text := $plain$               WHEN reverses IS NULL AND kind <> 'REVERSAL' AND starts_with(transaction_id, kind || ':')
                    AND array_dims(account_ids) = '[1:2]' AND array_dims(amounts) = '[1:2]'
                    -- Of different signs, so that their sum is in range.
                    AND amounts[1] <> 0 AND (amounts[1] > 0) <> (amounts[2] > 0) AND amounts[1] + amounts[2] = 0
                    AND account_ids[1] < account_ids[2] AND right(account_ids[1], 3) = right(account_ids[2], 3)
                    AND kind = ANY (KINDS)
               THEN NULL
$plain$;
    kinds text := substring(definition FROM 'kind <> ALL \((''\{[A-Z_,\s]*\}''::text\[\])\)');
BEGIN
    IF position(looks IN definition) = 0 OR kinds IS NULL THEN
        RAISE EXCEPTION 'ledger_transactions_post() does not look at bookings as migration 0062 does; nothing was changed';
    END IF;
    EXECUTE replace(definition, looks, looks || replace(plain, 'KINDS', kinds));
END
$$;

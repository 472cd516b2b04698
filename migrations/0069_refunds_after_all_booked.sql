-- A refund that failed here and that its channel made after all is booked, and its merchant hears of it: what it gave back has left the
-- channel, and whoever's it was. Taken back, that is taken back; made once more, it is booked once more, under the next number.

ALTER TABLE refunds
    -- How often it was found to be made after all: by its last number the last booking of that is found.
    ADD COLUMN made_after_all_times integer NOT NULL DEFAULT 0;

DO $$
DECLARE
    definition text := pg_get_functiondef('ledger_transactions_post()'::regprocedure);
    known CONSTANT text := 'REFUND_HOLD,';
BEGIN
    IF position(known IN definition) = 0 THEN
        RAISE EXCEPTION 'ledger_transactions_post() names no kinds as migration 0062 does; nothing was changed';
    END IF;
    EXECUTE replace(definition, known, known || 'REFUND_AFTER_ALL,');
END
$$;

-- What is known by now. May be run again, for what instances of the version before have marked since.
DO $$
DECLARE
    refund record;
    number integer;
    has bigint;
BEGIN
    FOR refund IN
        SELECT refunds.refund_id, refunds.made_after_all_times, refunds.refund_no, refunds.merchant_id, refunds.order_no, refunds.amount, refunds.currency,
               'CHANNEL:' || coalesce(stray.channel, payer.channel) || ':' || refunds.currency AS channel,
               CASE WHEN stray.status = 'KEPT' AND stray.merchant_id IS NULL THEN 'PLATFORM_REVENUE:' || refunds.currency
                    WHEN stray.status <> 'KEPT' THEN 'SUSPENSE:' || stray.channel || ':' || refunds.currency
                    ELSE 'MERCHANT:' || refunds.merchant_id || ':' || refunds.currency END AS account,
               CASE WHEN orders.kind = 'TOPUP'
                    THEN format('%s:%s:%s', orders.merchant_id, orders.user_id, refunds.currency) END AS wallet
        FROM refunds
        LEFT JOIN stray_payments AS stray ON stray.stray_id = refunds.stray_id
        LEFT JOIN pay_orders AS payer ON payer.pay_order_id = refunds.pay_order_id
        LEFT JOIN orders ON orders.merchant_id = payer.merchant_id AND orders.order_no = payer.order_no
        WHERE made_after_all_at IS NOT NULL AND coalesce(stray.channel, payer.channel) IS NOT NULL
          -- None stands of it.
          AND NOT EXISTS (
              SELECT FROM ledger_transactions AS booked
              WHERE booked.transaction_id = format('REFUND_AFTER_ALL:%s:%s', refunds.refund_id, made_after_all_times)
                AND NOT EXISTS (SELECT FROM ledger_transactions AS reversal
                                WHERE reversal.transaction_id = 'REVERSAL:' || booked.transaction_id))
        ORDER BY refunds.refund_id
    LOOP
        UPDATE refunds SET made_after_all_times = made_after_all_times + 1, version = version + 1
        WHERE refund_id = refund.refund_id AND made_after_all_at IS NOT NULL
          AND made_after_all_times = refund.made_after_all_times
        RETURNING made_after_all_times INTO number;
        -- Somebody else has seen to it meanwhile.
        CONTINUE WHEN NOT FOUND;
        has := 0;
        IF refund.wallet IS NOT NULL THEN
            PERFORM open_accounts(ARRAY['USER_AVAILABLE:' || refund.wallet, 'USER_RECEIVABLE:' || refund.wallet], now());
            SELECT balance INTO has FROM accounts WHERE account_id = 'USER_AVAILABLE:' || refund.wallet FOR NO KEY UPDATE;
        END IF;
        INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
        SELECT refund.merchant_id, refund.order_no, 'refund.made_after_all', 1,
               jsonb_build_object('order_no', refund.order_no, 'refund_no', refund.refund_no, 'amount', refund.amount,
                                  'owed', CASE WHEN refund.wallet IS NULL THEN 0 ELSE greatest(refund.amount - has, 0) END,
                                  'currency', refund.currency), now();
        INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, account_ids, amounts, created_at)
        SELECT format('REFUND_AFTER_ALL:%s:%s', refund.refund_id, number), 'REFUND_AFTER_ALL', refund.merchant_id, refund.order_no,
               array_agg(account ORDER BY account COLLATE "C"), array_agg(amount ORDER BY account COLLATE "C"), now()
        FROM (VALUES (refund.channel, -refund.amount),
                     (refund.account, CASE WHEN refund.wallet IS NULL THEN refund.amount ELSE 0 END),
                     ('USER_AVAILABLE:' || refund.wallet, least(refund.amount, has)),
                     ('USER_RECEIVABLE:' || refund.wallet, greatest(refund.amount - has, 0))) AS entry (account, amount)
        WHERE account IS NOT NULL AND amount <> 0;
    END LOOP;
END
$$;

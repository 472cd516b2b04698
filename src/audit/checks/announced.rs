//! Invariant 7, the outside: what it must hear of has exactly one event, and nothing else has one.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "order_announced",
        Always,
        "a paid order has one event order.paid, a closed one one order.closed, and no other order has either",
        "SELECT format('order %s/%s: %s, announced as paid %s times and as closed %s times', merchant_id,
                       order_no, coalesce(status, 'not there'), coalesce(paid, 0), coalesce(closed, 0))
         FROM orders
         FULL JOIN (SELECT merchant_id, order_no, count(*) FILTER (WHERE event = 'order.paid') AS paid,
                           count(*) FILTER (WHERE event = 'order.closed') AS closed
                    FROM outbox WHERE event IN ('order.paid', 'order.closed')
                    GROUP BY merchant_id, order_no) AS told USING (merchant_id, order_no)
         WHERE coalesce(paid, 0) <> CASE WHEN status IN ('PAID', 'PARTIALLY_REFUNDED', 'REFUNDED') THEN 1 ELSE 0 END
            OR coalesce(closed, 0) <> CASE status WHEN 'CLOSED' THEN 1 ELSE 0 END",
    ),
    check!(
        "stray_announced",
        Always,
        "every stray payment has one event stray_payment.received, and none is told to be kept but one that is, once",
        "SELECT format('stray payment %s: %s, announced %s times, and %s times as kept', coalesce(stray.stray_id, told.stray_id),
                       coalesce(stray.status, 'not there'), coalesce(received, 0), coalesce(kept, 0))
         FROM stray_payments AS stray
         FULL JOIN (SELECT payload ->> 'stray_id' AS stray_id,
                           count(*) FILTER (WHERE event = 'stray_payment.received') AS received,
                           count(*) FILTER (WHERE event = 'stray_payment.kept') AS kept
                    FROM outbox WHERE event IN ('stray_payment.received', 'stray_payment.kept') GROUP BY 1) AS told
                ON told.stray_id = stray.stray_id
         WHERE stray.stray_id IS NULL OR received IS DISTINCT FROM 1
            -- What was kept before there was such an event was told nobody.
            OR kept > CASE stray.status WHEN 'KEPT' THEN 1 ELSE 0 END",
    ),
    check!(
        "charge_announced",
        Always,
        "no compensating charge is told, and none is told to be given back, that is not booked so, nor more than once",
        "SELECT format('%s is told of charge %s (%s of %s), %s times, and is not booked so once', event, charge_id, amount, order_no,
                       times)
         FROM (SELECT event, payload ->> 'charge_id' AS charge_id, min(payload ->> 'amount') AS amount,
                      min(merchant_id) AS merchant_id, min(order_no) AS order_no, count(*) AS times
               FROM outbox WHERE event IN ('compensating_charge.made', 'compensating_charge.reversed') GROUP BY 1, 2) AS told
         -- What was booked before there were these events was told nobody.
         WHERE times > 1
            OR NOT EXISTS (
                SELECT FROM ledger_entries AS booked
                WHERE booked.transaction_id = CASE event WHEN 'compensating_charge.made' THEN '' ELSE 'REVERSAL:' END
                                              || 'COMPENSATING_CHARGE:' || charge_id
                  AND starts_with(booked.account_id, 'CHANNEL:') AND abs(booked.amount)::text = told.amount
                  AND (booked.merchant_id, booked.order_no) = (told.merchant_id, told.order_no))",
    ),
    check!(
        "refund_announced",
        Always,
        "a refund's events tell its end once, and the channel's reversal of it once; of one that failed each time that it was made \
         after all, and taken back",
        "SELECT format('refund %s: %s, announced as %s', coalesce(refund.refund_no, told.refund_no),
                       coalesce(refund.status, 'not there'), coalesce(tale, 'nothing'))
         FROM refunds AS refund
         FULL JOIN (SELECT coalesce(merchant_id, '') AS merchant_id, payload ->> 'refund_no' AS refund_no,
                           string_agg(CASE event WHEN 'refund.reversed' THEN 'REVERSED'
                                                 WHEN 'refund.made_after_all' THEN 'MADE'
                                                 ELSE payload ->> 'status' END, ' ' ORDER BY id) AS tale
                    FROM outbox WHERE event IN ('refund.finished', 'refund.made_after_all', 'refund.reversed')
                    GROUP BY 1, 2) AS told
                ON told.merchant_id = coalesce(refund.merchant_id, '') AND told.refund_no = refund.refund_no
         WHERE (CASE refund.status WHEN 'SUCCEEDED' THEN tale = 'SUCCEEDED'
                                   WHEN 'FAILED' THEN
                                       tale ~ '^(FAILED|SUCCEEDED REVERSED)( MADE REVERSED)*( MADE)?$'
                                       AND (tale ~ ' MADE$') = (made_after_all_at IS NOT NULL)
                                       AND cardinality(regexp_split_to_array(tale, ' MADE')) = made_after_all_times + 1
                                   ELSE tale IS NULL AND refund.refund_id IS NOT NULL END) IS NOT TRUE",
    ),
];

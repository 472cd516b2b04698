//! Invariant 7, the past: every change of state has its row, and the rows lead from the birth to the present.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "history_edges",
        Always,
        "every change of state is one that the tables of orders and attempts allow",
        "SELECT format('order %s/%s %s change %s: %s by %s to %s is not allowed', merchant_id, order_no,
                       pay_order_id, seq, coalesce(from_status, 'nothing'), event, to_status)
         FROM order_history
         -- `OrderStatus::after` and `PayStatus::after`; a test walks them.
         WHERE (coalesce(from_status, ''), event, to_status) NOT IN (
                   ('', 'CREATED', 'PENDING'),
                   ('PENDING', 'PAYMENT_CONFIRMED', 'PAID'),
                   ('PENDING', 'DEADLINE_PASSED', 'CLOSED'),
                   ('PENDING', 'CANCELLED', 'CLOSED'),
                   ('PAID', 'REFUNDED_IN_PART', 'PARTIALLY_REFUNDED'),
                   ('PAID', 'REFUNDED_IN_FULL', 'REFUNDED'),
                   ('PARTIALLY_REFUNDED', 'REFUNDED_IN_PART', 'PARTIALLY_REFUNDED'),
                   ('PARTIALLY_REFUNDED', 'REFUNDED_IN_FULL', 'REFUNDED'),
                   ('PARTIALLY_REFUNDED', 'REFUND_REVERSED_IN_PART', 'PARTIALLY_REFUNDED'),
                   ('REFUNDED', 'REFUND_REVERSED_IN_PART', 'PARTIALLY_REFUNDED'),
                   ('PARTIALLY_REFUNDED', 'REFUND_REVERSED_IN_FULL', 'PAID'),
                   ('REFUNDED', 'REFUND_REVERSED_IN_FULL', 'PAID'))
           AND pay_order_id = ''
            OR (coalesce(from_status, ''), event, to_status) NOT IN (
                   ('', 'BEGUN', 'INIT'),
                   ('INIT', 'LINK_MADE', 'PAYING'),
                   ('INIT', 'PAYMENT_CONFIRMED', 'PAID'),
                   ('PAYING', 'PAYMENT_CONFIRMED', 'PAID'),
                   ('CLOSED', 'PAYMENT_CONFIRMED', 'PAID'),
                   ('FAILED', 'PAYMENT_CONFIRMED', 'PAID'),
                   ('INIT', 'ATTEMPT_FAILED', 'FAILED'),
                   ('PAYING', 'ATTEMPT_FAILED', 'FAILED'),
                   ('INIT', 'ATTEMPT_CLOSED', 'CLOSED'),
                   ('PAYING', 'ATTEMPT_CLOSED', 'CLOSED'))
           AND pay_order_id <> ''",
    ),
    check!(
        "history_chain",
        Always,
        "every change but the first follows the one before it",
        "SELECT format('order %s/%s %s change %s: from %s, but the one before led to %s', change.merchant_id,
                       change.order_no, change.pay_order_id, change.seq, change.from_status,
                       coalesce(before.to_status, 'nowhere'))
         FROM order_history AS change
         LEFT JOIN order_history AS before
                ON before.merchant_id = change.merchant_id AND before.order_no = change.order_no
               AND before.pay_order_id = change.pay_order_id AND before.seq = change.seq - 1
         WHERE change.seq <> 1 AND before.to_status IS DISTINCT FROM change.from_status",
    ),
    check!(
        "order_history_ends",
        Always,
        "an order's history has as many changes as its version says, and the last led to its present state",
        "SELECT format('order %s/%s: %s at version %s, its last change led to %s', orders.merchant_id,
                       orders.order_no, orders.status, version, coalesce(last.to_status, 'nowhere'))
         FROM orders
         LEFT JOIN order_history AS last
                ON last.merchant_id = orders.merchant_id AND last.order_no = orders.order_no
               AND last.pay_order_id = '' AND last.seq = orders.version
         WHERE last.to_status IS DISTINCT FROM orders.status
         UNION ALL
         SELECT format('order %s/%s: change %s, but its version is %s', change.merchant_id, change.order_no,
                       change.seq, version)
         FROM order_history AS change
         LEFT JOIN orders ON orders.merchant_id = change.merchant_id AND orders.order_no = change.order_no
         WHERE pay_order_id = '' AND change.seq > coalesce(version, 0)
           -- Asked first, and enough to skip the join: with no last change missing (above) and no gap (the
           -- chain), there is a change too many exactly when there are more of them than versions.
           AND (SELECT count(*) FROM order_history WHERE pay_order_id = '')
               <> (SELECT coalesce(sum(version), 0) FROM orders)",
    ),
    check!(
        "attempt_history_ends",
        Always,
        "an attempt's history has as many changes as its version says, and the last led to its present state",
        "SELECT format('pay order %s: %s at version %s, its last change led to %s', attempt.pay_order_id,
                       attempt.status, version, coalesce(last.to_status, 'nowhere'))
         FROM pay_orders AS attempt
         LEFT JOIN order_history AS last
                ON last.pay_order_id = attempt.pay_order_id AND last.seq = attempt.version
         WHERE (last.to_status, last.merchant_id, last.order_no)
               IS DISTINCT FROM (attempt.status, attempt.merchant_id, attempt.order_no)
         UNION ALL
         SELECT format('pay order %s: change %s, but its version is %s', change.pay_order_id, change.seq, version)
         FROM order_history AS change
         LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = change.pay_order_id
         WHERE change.pay_order_id <> '' AND change.seq > coalesce(version, 0)
           -- As above.
           AND (SELECT count(*) FROM order_history WHERE pay_order_id <> '')
               <> (SELECT coalesce(sum(version), 0) FROM pay_orders)",
    ),
    check!(
        "refund_history",
        Always,
        "every change of a refund's state has its row, along allowed edges, ending in the present state",
        "SELECT format('refund %s change %s: %s by %s to %s is not allowed, or does not follow %s', change.refund_id,
                       change.seq, coalesce(change.from_status, 'nothing'), change.event, change.to_status,
                       coalesce(before.to_status, 'nothing'))
         FROM refund_history AS change
         LEFT JOIN refund_history AS before ON before.refund_id = change.refund_id AND before.seq = change.seq - 1
         WHERE before.to_status IS DISTINCT FROM change.from_status
            OR (coalesce(change.from_status, ''), change.event, change.to_status) NOT IN (
                   -- `RefundStatus::after`; a test walks it.
                   ('', 'ASKED', 'AWAITING_APPROVAL'), ('', 'ASKED', 'PENDING'),
                   ('AWAITING_APPROVAL', 'APPROVED', 'PENDING'), ('AWAITING_APPROVAL', 'REJECTED', 'FAILED'),
                   ('PENDING', 'REQUESTED', 'PROCESSING'),
                   ('PENDING', 'SUCCEEDED', 'SUCCEEDED'), ('PROCESSING', 'SUCCEEDED', 'SUCCEEDED'),
                   ('PENDING', 'FAILED', 'FAILED'), ('PROCESSING', 'FAILED', 'FAILED'),
                   ('SUCCEEDED', 'FAILED', 'FAILED'))
               -- Of before there were histories.
               AND (change.seq, change.event) <> (1, 'CARRIED_OVER')
         UNION ALL
         SELECT format('refund %s: %s, its last change led to %s', refund_id, coalesce(status, 'not there'),
                       coalesce(last.to_status, 'nowhere'))
         FROM refunds
         FULL JOIN (SELECT change.refund_id, change.to_status
                    FROM refund_history AS change
                    LEFT JOIN refund_history AS next ON next.refund_id = change.refund_id AND next.seq = change.seq + 1
                    WHERE next.seq IS NULL) AS last USING (refund_id)
         WHERE last.to_status IS DISTINCT FROM status",
    ),
    check!(
        "stray_history",
        Always,
        "every change of a stray payment's state has its row, along allowed edges, ending in the present state",
        "SELECT format('stray payment %s change %s: %s by %s to %s is not allowed, or does not follow %s', change.stray_id,
                       change.seq, coalesce(change.from_status, 'nothing'), change.event, change.to_status,
                       coalesce(before.to_status, 'nothing'))
         FROM stray_history AS change
         LEFT JOIN stray_history AS before ON before.stray_id = change.stray_id AND before.seq = change.seq - 1
         WHERE before.to_status IS DISTINCT FROM change.from_status
            OR (coalesce(change.from_status, ''), change.event, change.to_status) NOT IN (
                   -- `StrayStatus::after`; a test walks it.
                   ('', 'RECEIVED', 'HELD'),
                   ('HELD', 'REFUND_ASKED', 'REFUNDING'), ('REFUNDING', 'REFUND_SUCCEEDED', 'REFUNDED'),
                   ('REFUNDING', 'REFUND_FAILED', 'HELD'), ('REFUNDED', 'REFUND_FAILED', 'HELD'),
                   ('HELD', 'KEPT', 'KEPT'))
               -- As above.
               AND (change.seq, change.event) <> (1, 'CARRIED_OVER')
         UNION ALL
         SELECT format('stray payment %s: %s, its last change led to %s', stray_id, coalesce(status, 'not there'),
                       coalesce(last.to_status, 'nowhere'))
         FROM stray_payments
         FULL JOIN (SELECT change.stray_id, change.to_status
                    FROM stray_history AS change
                    LEFT JOIN stray_history AS next ON next.stray_id = change.stray_id AND next.seq = change.seq + 1
                    WHERE next.seq IS NULL) AS last USING (stray_id)
         WHERE last.to_status IS DISTINCT FROM status
         UNION ALL
         -- It comes back to where it stood: what it came by is known by its refunds.
         SELECT format('stray payment %s: asked to go back %s times, and it has %s refunds', stray_id, asked.times,
                       coalesce(made.times, 0))
         FROM (SELECT stray_id, count(*) FILTER (WHERE event = 'REFUND_ASKED') AS times
               FROM stray_history GROUP BY stray_id HAVING NOT bool_or(event = 'CARRIED_OVER')) AS asked
         LEFT JOIN (SELECT stray_id, count(*) AS times FROM refunds WHERE stray_id IS NOT NULL GROUP BY stray_id) AS made
              USING (stray_id)
         WHERE asked.times <> coalesce(made.times, 0)",
    ),
    check!(
        "settlement_history",
        Always,
        "every change of what is claimed back of a commission has its row, along allowed edges, ending in the present state",
        "SELECT format('settlement of %s/%s change %s: %s by %s to %s with %s claimed back is not allowed, or does not follow '
                       '%s with %s', change.merchant_id, change.order_no, change.seq, change.from_status, change.event,
                       change.to_status, change.clawed_back, coalesce(before.to_status, 'nothing'),
                       coalesce(before.clawed_back, 0))
         FROM settlement_history AS change
         LEFT JOIN settlement_history AS before
                ON before.merchant_id = change.merchant_id AND before.order_no = change.order_no
               AND before.seq = change.seq - 1
         -- The settlement is its own birth.
         WHERE change.from_status IS DISTINCT FROM CASE change.seq WHEN 1 THEN 'SETTLED' ELSE before.to_status END
            OR (change.from_status, change.event, change.to_status, sign(change.clawed_back - coalesce(before.clawed_back, 0)))
               NOT IN (
                   -- `SettlementStatus::after`; a test walks it.
                   ('SETTLED', 'PART_CLAWED_BACK', 'SETTLED', 1), ('SETTLED', 'ALL_CLAWED_BACK', 'CLAWED_BACK', 1),
                   ('SETTLED', 'RESTORED', 'SETTLED', -1), ('CLAWED_BACK', 'RESTORED', 'SETTLED', -1))
               -- As above.
               AND (change.seq, change.event) <> (1, 'CARRIED_OVER')
         UNION ALL
         SELECT format('settlement of %s/%s: %s with %s claimed back, its last change led to %s with %s', merchant_id,
                       order_no, coalesce(status, 'not there'), coalesce(given.clawed_back, 0),
                       coalesce(last.to_status, 'nowhere'), coalesce(last.clawed_back, 0))
         FROM settlements AS given
         FULL JOIN (SELECT change.merchant_id, change.order_no, change.to_status, change.clawed_back
                    FROM settlement_history AS change
                    LEFT JOIN settlement_history AS next
                           ON next.merchant_id = change.merchant_id AND next.order_no = change.order_no
                          AND next.seq = change.seq + 1
                    WHERE next.seq IS NULL) AS last USING (merchant_id, order_no)
         WHERE (status, given.clawed_back)
               IS DISTINCT FROM (coalesce(last.to_status, 'SETTLED'), coalesce(last.clawed_back, 0))
         UNION ALL
         -- It comes back to where it stood too.
         SELECT format('settlement of %s/%s: at version %s, and its history has %s changes', merchant_id, order_no, version,
                       coalesce(changes, 0))
         FROM settlements
         LEFT JOIN (SELECT merchant_id, order_no, count(*) AS changes, bool_or(event = 'CARRIED_OVER') AS is_carried
                    FROM settlement_history GROUP BY merchant_id, order_no) AS history USING (merchant_id, order_no)
         WHERE version - 1 <> coalesce(changes, 0) AND is_carried IS NOT TRUE",
    ),
];

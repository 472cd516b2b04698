//! Invariant 8: nothing stays in the middle without a living task or an open exception.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "order_overdue",
        Eventual,
        "no order is PENDING 60 s past its deadline and left alone",
        "SELECT format('order %s/%s: PENDING although due at %s', merchant_id, order_no, expires_at)
         FROM orders
         WHERE status = 'PENDING' AND expires_at < $1 - interval '60 s'
           AND NOT EXISTS (SELECT 1 FROM owned WHERE subject = merchant_id || ':' || order_no)",
    ),
    check!(
        "attempt_without_link",
        Eventual,
        "no attempt is INIT for 60 s and left alone",
        "SELECT format('pay order %s: INIT since %s', pay_order_id, updated_at)
         FROM pay_orders
         WHERE is_live AND status = 'INIT' AND updated_at < $1 - interval '60 s'
           AND NOT EXISTS (SELECT 1 FROM owned WHERE subject = pay_order_id)
           -- Whoever closes the order ends its attempt first.
           AND NOT EXISTS (SELECT 1 FROM owned WHERE subject = merchant_id || ':' || order_no)",
    ),
    check!(
        "attempt_outlives_order",
        Eventual,
        "no attempt is live 60 s after its order came to an end, or after its own link died, and left alone",
        "SELECT format('pay order %s: %s until %s although order %s/%s is %s since %s', pay_order_id,
                       pay_orders.status, pay_orders.expires_at, merchant_id, order_no, orders.status,
                       orders.updated_at)
         FROM pay_orders JOIN orders USING (merchant_id, order_no)
         WHERE is_live
           AND ((orders.status <> 'PENDING'
                 AND greatest(orders.updated_at, pay_orders.updated_at) < $1 - interval '60 s')
                OR greatest(pay_orders.expires_at, pay_orders.updated_at) < $1 - interval '60 s')
           AND NOT EXISTS (SELECT 1 FROM owned WHERE subject = pay_order_id)
           AND NOT EXISTS (SELECT 1 FROM owned WHERE subject = merchant_id || ':' || order_no)",
    ),
    check!(
        "refund_unfinished",
        Eventual,
        "no refund is under way for 60 s and left alone",
        "SELECT format('refund %s: %s since %s', refund_id, status, updated_at)
         FROM refunds
         WHERE status IN ('PENDING', 'PROCESSING') AND updated_at < $1 - interval '60 s'
           AND NOT EXISTS (SELECT 1 FROM owned WHERE subject = refund_id)",
    ),
    check!(
        "callback_unmatched",
        Eventual,
        "no callback waits for its pay order without its task, or longer than 15 min, but for those whose lane rests",
        "SELECT format('callback %s of %s: UNMATCHED since %s, for %s', event_id, channel, received_at, subject)
         FROM webhook_inbox
         WHERE coalesce(verdict, 'waits') = 'UNMATCHED'
           AND (received_at < $1 - interval '15 min'
                AND NOT EXISTS (SELECT 1 FROM compensations AS task JOIN compensation_lanes AS paused USING (lane)
                                WHERE task.action = 'REMATCH_CALLBACK' AND task.status IN ('READY', 'RUNNING')
                                  AND task.subject = webhook_inbox.channel || '/' || webhook_inbox.event_id
                                  AND paused.paused_at IS NOT NULL)
                OR received_at < $1 - interval '60 s'
                   AND NOT EXISTS (SELECT 1 FROM owned WHERE subject = channel || '/' || event_id))",
    ),
    check!(
        "task_lease",
        Eventual,
        "no task is RUNNING 60 s past its lease, but in a lane that rests: a dead worker's task is taken over",
        "SELECT format('task %s: %s of %s RUNNING, its lease ended at %s', id, action, subject, due_at)
         FROM compensations
         WHERE status = 'RUNNING' AND due_at < $1 - interval '60 s'
           AND NOT EXISTS (SELECT 1 FROM compensation_lanes AS paused
                           WHERE paused.lane = compensations.lane AND paused.paused_at IS NOT NULL)",
    ),
    check!(
        "task_late",
        Eventual,
        "no task waits 5 min past its time, but for those whose lane rests, and those of old orders while theirs is worked: \
         a living task is an owner",
        "SELECT format('task %s: %s of %s READY, due at %s', id, action, subject, due_at)
         FROM compensations
         WHERE status = 'READY' AND due_at < $1 - interval '5 min'
           -- Somebody paused it, and `payonce_lane_paused_seconds` tells of that.
           AND NOT EXISTS (SELECT 1 FROM compensation_lanes AS paused
                           WHERE paused.lane = compensations.lane AND paused.paused_at IS NOT NULL)
           -- A backlog of orders makes way for merchants, and may last for hours.
           AND NOT (lane = 'SWEEP' AND action IN ('EXPIRE_ORDER', 'CLOSE_PAY_ORDER', 'DRIVE_PAY_ORDER')
                    AND EXISTS (SELECT 1 FROM compensations AS worked
                                WHERE worked.lane = 'SWEEP' AND worked.status = 'RUNNING' AND worked.due_at > $1))",
    ),
    check!(
        "dead_task_reported",
        Always,
        "every task that was given up was shown to a person, and is still, or they have seen to it since",
        "SELECT format('task %s: %s of %s DEAD in silence', id, action, subject)
         FROM compensations AS task
         WHERE status = 'DEAD'
           AND NOT EXISTS (SELECT 1 FROM exceptions
                           WHERE exceptions.subject = task.subject AND exceptions.kind = 'DEAD_TASK'
                             AND (exceptions.status = 'OPEN' OR exceptions.updated_at >= task.updated_at)
                             -- What is tried again is given up no more.
                             AND (resolved_by, reason) IS DISTINCT FROM ROW('payonce', 'it is tried again'))",
    ),
];

//! What is in the middle, whatever it is.

use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;

/// The word that each line of a look begins with, and the rest of its query; `$1` is the present.
pub const LOOKS: [(&str, &str); 12] = [
    (
        "task",
        "action || ' ' || subject || ', tried ' || attempts || ' times, due in ' || (due_at - $1)
            || coalesce(': ' || last_error, '')
         FROM compensations
         WHERE status IN ('READY', 'RUNNING')
           -- Whose trade may have come to stand behind its close: it is closed once more later, and what stands is looked at below.
           AND NOT (action = 'CLOSE_PAY_ORDER' AND attempts = 0
                    AND EXISTS (SELECT 1 FROM pay_orders WHERE pay_order_id = subject AND pay_orders.status = 'CLOSED'))",
    ),
    ("refund", "refund_no || ' ' || status FROM refunds WHERE status IN ('PENDING', 'PROCESSING')"),
    (
        "withdrawal",
        "withdrawal_no || ' ' || status FROM withdrawals
         WHERE status NOT IN ('SUCCEEDED', 'REVERSED')
           AND NOT EXISTS (SELECT 1 FROM exceptions WHERE subject = withdrawal_id AND exceptions.status = 'OPEN')",
    ),
    ("run", "run_id || ', settled ' || settled FROM settlement_runs WHERE status = 'RUNNING'"),
    (
        "hold",
        "hold_id || ' ran out at ' || expires_at FROM usage_holds WHERE status = 'HELD' AND expires_at < $1",
    ),
    (
        "reconciliation",
        "reconciliation_id || ' ' || status FROM reconciliations WHERE status <> 'DONE' AND fault IS NULL",
    ),
    (
        "attempt",
        "pay_order_id FROM pay_orders
         WHERE status = 'INIT'
           AND NOT EXISTS (SELECT 1 FROM exceptions WHERE subject = pay_order_id AND exceptions.status = 'OPEN')",
    ),
    // A link that its channel does not honour, or one that nobody here honours.
    (
        "trade",
        "pay_order_id || ' ' || trade.status || ' of an attempt ' || attempt.status
            || coalesce((SELECT ', told in ' || string_agg(told.status || ' try ' || told.attempts || ' '
                                                           || coalesce(told.last_result, ''), '; ')
                         FROM sandbox.deliveries AS told
                         WHERE told.pay_order_id = attempt.pay_order_id), ', never told')
         FROM pay_orders AS attempt JOIN sandbox.trades AS trade USING (pay_order_id)
         WHERE attempt.status = 'PAYING' AND trade.status <> 'OPEN'
            OR attempt.status IN ('CLOSED', 'FAILED') AND trade.status = 'OPEN'",
    ),
    (
        "order",
        "order_no || ' with '
            || coalesce((SELECT string_agg(status, ', ') FROM pay_orders
                         WHERE pay_orders.order_no = orders.order_no), 'no attempt')
         FROM orders WHERE status = 'PENDING' AND expires_at < $1",
    ),
    ("event", "event_id || ' that nobody has looked at' FROM outbox_queue"),
    (
        "delivery",
        "'of event ' || event_id || ', tried ' || attempts || ' times' || coalesce(': ' || last_error, '')
         FROM deliveries WHERE status = 'PENDING'",
    ),
    // A wrong amount is kept and refused for good, and the channel repeats it all the same. What is refused for a clock
    // that is off is not kept.
    (
        "callback",
        "event_id || coalesce(': ' || last_result, '')
         FROM sandbox.deliveries
         WHERE status = 'PENDING'
           AND NOT EXISTS (SELECT FROM webhook_inbox AS kept
                           WHERE kept.channel = 'sandbox' AND kept.verdict = 'AMOUNT_MISMATCH'
                             AND split_part(kept.event_id, ' ', 1) = deliveries.event_id)",
    ),
];

/// All that is in the middle at that time, in words.
pub async fn all(conn: &mut PgConnection, now: OffsetDateTime) -> Vec<String> {
    let looks = LOOKS.map(|(word, rest)| format!("SELECT '{word} ' || {rest}")).join(" UNION ALL ");
    sqlx::query_scalar(AssertSqlSafe(looks)).bind(now).fetch_all(conn).await.expect("a look")
}

//! What must be so when all has come to rest, whoever was killed before: nothing was given up, a person is wanted only
//! where the channel or a user brought it about, all money is known, and of what there was to sell exactly what was sold
//! is gone.

use sqlx::{AssertSqlSafe, PgConnection};

/// What there is to sell, and how much of it at first.
pub const SHELF: [(&str, i64); 2] = [("RARE", 40), ("TEA", 1_000_000)];

/// The word that each line of a look begins with, and the rest of its query.
pub const LOOKS: [(&str, &str); 6] = [
    (
        "task",
        "action || ' ' || subject || ' is dead' || coalesce(': ' || last_error, '')
         FROM compensations WHERE status = 'DEAD'",
    ),
    (
        "delivery",
        "'of event ' || event_id || ' is ' || status || coalesce(': ' || last_error, '')
         FROM deliveries WHERE status NOT IN ('PENDING', 'DELIVERED')",
    ),
    ("refund", "refund_no || ' waits for an operator' FROM refunds WHERE status = 'AWAITING_APPROVAL'"),
    // Work may use more than its user has, and what it cost is owed then. The channel may refuse to take back what no
    // order accepts. Everything else of what can go wrong here has an end that needs no person, or must not happen.
    (
        "exception",
        "kind || ' of ' || subject || ': ' || detail FROM exceptions
         WHERE status = 'OPEN'
           AND NOT (kind = 'USAGE_SHORTFALL'
                    AND EXISTS (SELECT FROM usage_holds WHERE hold_id = subject AND shortfall > 0))
           AND NOT (kind IN ('STRAY_MONEY', 'AMOUNT_MISMATCH')
                    AND EXISTS (SELECT FROM stray_payments AS stray JOIN refunds USING (stray_id)
                                WHERE stray_id = subject AND stray.status = 'HELD' AND refunds.status = 'FAILED'))",
    ),
    // By the right clock, whatever those of the instances showed; how well they know it the wires say.
    (
        "life",
        "order_no || ' from ' || coalesce(made_at::text, 'never') || ' to ' || coalesce(closed_at::text, 'now') || ', by us '
         || created_at || ' to ' || expires_at || coalesce(' ' || close_reason, '')
         FROM orders LEFT JOIN world.lives USING (order_no)
         WHERE made_at IS NULL
            OR (closed_at IS NULL) = (coalesce(close_reason, '-') = 'TIMEOUT')
            OR created_at NOT BETWEEN made_at - interval '30 s' AND made_at + interval '3 s'
            OR closed_at < expires_at - interval '3 s'",
    ),
    // Nowhere in our books, be it told of or not: whose order ran out, of those the channel was asked.
    (
        "payment",
        "transaction_id || ' of ' || pay_order_id || ' is nowhere' FROM sandbox.payments
         WHERE transaction_id NOT IN (SELECT transaction_id FROM trades WHERE channel = 'sandbox')",
    ),
];

const SOLD: &str = "
    SELECT first.sku || ': ' || coalesce(stock, 0) || ' there, ' || sold || ' sold, ' || first.stock_at_first || ' at first; '
           || coalesce(lock_stock, 0) || ' held, ' || wanted || ' by orders'
    FROM unnest($1::text[], $2::bigint[]) AS first (sku, stock_at_first)
    LEFT JOIN skus ON skus.sku = first.sku
    CROSS JOIN LATERAL (SELECT coalesce(sum(quantity) FILTER (WHERE status = 'DEDUCTED'), 0)::bigint AS sold,
                               coalesce(sum(quantity) FILTER (WHERE status = 'LOCKED'), 0)::bigint AS wanted
                        FROM stock_reservations AS line WHERE line.sku = first.sku) AS lines
    WHERE (stock + sold, lock_stock) IS DISTINCT FROM (stock_at_first, wanted)";

/// Whatever is not so, in words.
pub async fn unrest(conn: &mut PgConnection) -> Vec<String> {
    let (skus, stocks): (Vec<&str>, Vec<i64>) = SHELF.into_iter().unzip();
    let looks = LOOKS.map(|(word, rest)| format!("SELECT '{word} ' || {rest}")).join(" UNION ALL ");
    let mut found: Vec<String> =
        sqlx::query_scalar(AssertSqlSafe(looks)).fetch_all(&mut *conn).await.expect("a look");
    let sold = sqlx::query_scalar(SOLD).bind(skus).bind(stocks).fetch_all(conn).await.expect("a look");
    found.extend::<Vec<String>>(sold);
    found
}

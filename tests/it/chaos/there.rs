//! What is there, read from the books in one statement.

use serde_json::Value;

use super::told::{Kind, Thing};
use crate::support::TestApp;

const ALL: &str = "
    WITH sold AS (SELECT orders.*, metadata ->> 'mark' AS mark FROM orders WHERE metadata ->> 'mark' LIKE $1 || '%'),
         strays AS (SELECT stray.* FROM stray_payments AS stray
                    JOIN pay_orders AS attempt ON attempt.pay_order_id = stray.out_trade_no
                    JOIN sold ON (sold.merchant_id, sold.order_no) = (attempt.merchant_id, attempt.order_no))
    SELECT 'Order', mark,
           jsonb_build_object('order_no', order_no, 'user_id', user_id, 'amount', amount, 'currency', currency,
                              'kind', kind),
           jsonb_build_object('status', status, 'close_reason', close_reason, 'paid_by', paid_by)
    FROM sold
    UNION ALL
    SELECT 'Attempt', pay_order_id,
           jsonb_build_object('pay_order_id', pay_order_id, 'order_no', attempt.order_no, 'amount', attempt.amount,
                              'currency', attempt.currency, 'pay_url', pay_url),
           jsonb_build_object('status', attempt.status, 'payer_id', attempt.payer_id, 'channel_code', channel_code,
                              'trade', trade.status)
    FROM pay_orders AS attempt JOIN sold USING (merchant_id, order_no)
    LEFT JOIN sandbox.trades AS trade USING (pay_order_id)
    UNION ALL
    SELECT 'Refund', refund_no,
           jsonb_build_object('refund_no', refund_no, 'order_no', order_no, 'amount', amount, 'currency', currency),
           jsonb_build_object('status', status, 'failure', failure, 'refund_id', refund_id, 'pay_order_id', pay_order_id,
                              'stray_id', stray_id, 'reason', reason)
    FROM refunds WHERE refund_no LIKE 'R-' || $1 || '%'
    UNION ALL
    SELECT 'Settlement', order_no,
           jsonb_build_object('order_no', order_no, 'user_id', given.user_id, 'base_amount', base_amount,
                              'commission', commission, 'currency', given.currency),
           jsonb_build_object('status', given.status, 'clawed_back', clawed_back)
    FROM settlements AS given JOIN sold USING (merchant_id, order_no)
    UNION ALL
    SELECT 'Withdrawal', withdrawal_no,
           jsonb_build_object('withdrawal_no', withdrawal_no, 'user_id', user_id, 'amount', amount, 'currency', currency),
           jsonb_build_object('status', status, 'failure', failure)
    FROM withdrawals WHERE withdrawal_no LIKE 'W-' || $1 || '%'
    UNION ALL
    SELECT 'Hold', idempotency_key,
           jsonb_build_object('hold_id', hold_id, 'user_id', user_id, 'product_code', product_code,
                              'idempotency_key', idempotency_key, 'estimated_units', estimated_units,
                              'currency', currency),
           jsonb_build_object('status', status, 'charged', charged, 'units', units, 'shortfall', shortfall, 'late', late)
    FROM usage_holds WHERE idempotency_key LIKE 'H-' || $1 || '%'
    UNION ALL
    SELECT 'Money', attempt.transaction_id,
           jsonb_build_object('out_trade_no', pay_order_id, 'total_fee', sold.amount, 'currency', sold.currency), '{}'
    FROM sold JOIN pay_orders AS attempt ON attempt.pay_order_id = sold.paid_by
    UNION ALL
    SELECT 'Money', stray.transaction_id,
           jsonb_build_object('out_trade_no', out_trade_no, 'total_fee', stray.amount, 'currency', stray.currency), '{}'
    FROM strays AS stray
    UNION ALL
    SELECT 'Stray', stray_id,
           jsonb_build_object('stray_id', stray_id, 'order_no', order_no, 'reason', reason, 'amount', amount,
                              'currency', currency),
           jsonb_build_object('status', status, 'pay_order_id', pay_order_id, 'channel', channel,
                              'transaction_id', transaction_id)
    FROM strays
    UNION ALL
    SELECT 'WayBack', refund_no,
           jsonb_build_object('refund_no', refund_no, 'order_no', refunds.order_no, 'amount', refunds.amount,
                              'currency', refunds.currency),
           jsonb_build_object('status', refunds.status, 'failure', failure, 'refund_id', refund_id,
                              'pay_order_id', refunds.pay_order_id, 'stray_id', stray_id, 'reason', refunds.reason)
    FROM refunds JOIN strays USING (stray_id)";

/// Everything whose name was given in this chapter.
pub async fn all_of(app: &TestApp, chapter: &str) -> Vec<Thing> {
    let rows: Vec<(String, String, Value, Value)> =
        sqlx::query_as(ALL).bind(chapter).fetch_all(app.instance.app.db.pool()).await.expect("a look");
    let thing = |(kind, name, fields, standing): (String, String, Value, Value)| Thing {
        kind: kind_of(&kind),
        name,
        fields,
        standing,
    };
    rows.into_iter().map(thing).collect()
}

fn kind_of(word: &str) -> Kind {
    match word {
        "Order" => Kind::Order,
        "Attempt" => Kind::Attempt,
        "Refund" => Kind::Refund,
        "Settlement" => Kind::Settlement,
        "Withdrawal" => Kind::Withdrawal,
        "Hold" => Kind::Hold,
        "Money" => Kind::Money,
        "Stray" => Kind::Stray,
        "WayBack" => Kind::WayBack,
        other => panic!("no kind of thing: {other}"),
    }
}

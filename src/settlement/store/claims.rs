//! What is booked of the refunds of an order.

use crate::infra::db::{Conn, DbError};
use crate::ledger::Account;
use crate::orders::OrderKey;
use crate::settlement::follow::Claim;

/// What the refunds of an order have claimed back of its commission, and given again, as it is booked on these accounts: of
/// what its user owes, of commissions, and of the merchant's own money.
pub(in crate::settlement) async fn list_claims(
    conn: &mut Conn,
    key: &OrderKey,
    receivable: &Account,
    expense: &Account,
    merchant: &Account,
) -> Result<Vec<Claim>, DbError> {
    let claims = sqlx::query_as!(
        Claim,
        r#"SELECT refund_id,
                  coalesce(-claim.expense, 0) AS "claimed!", coalesce(claim.receivable, 0) AS "owed!", claimed_at,
                  coalesce(back.expense, 0) AS "given!", coalesce(-back.merchant, 0) AS "recovered!", given_at
           FROM refunds
           CROSS JOIN LATERAL (
               SELECT min(entry_id) AS claimed_at,
                      sum(amount) FILTER (WHERE account_id = $3)::bigint AS receivable,
                      sum(amount) FILTER (WHERE account_id = $4)::bigint AS expense
               FROM ledger_entries WHERE transaction_id = format('CLAW_BACK:%s', refund_id)) AS claim
           CROSS JOIN LATERAL (
               SELECT min(entry_id) AS given_at,
                      sum(amount) FILTER (WHERE account_id = $4)::bigint AS expense,
                      sum(amount) FILTER (WHERE account_id = $5)::bigint AS merchant
               FROM ledger_entries WHERE transaction_id = format('CLAW_BACK:%s:taken-back', refund_id)) AS back
           WHERE merchant_id = $1 AND order_no = $2 AND stray_id IS NULL"#,
        key.merchant_id.as_str(),
        key.order_no.as_str(),
        receivable.as_str(),
        expense.as_str(),
        merchant.as_str(),
    )
    .fetch_all(conn)
    .await?;
    Ok(claims)
}

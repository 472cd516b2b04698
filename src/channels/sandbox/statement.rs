//! The statement of a UTC day: every movement in the books, page by page, in constant memory.

use time::{OffsetDateTime, UtcOffset};

use super::gateway::{Gateway, GatewayError};
use super::protocol::{
    Call, Line, LineKind, Position, Statement, StatementPage, payout_number, refund_number,
};
use super::store::{self, statement::Movement};

/// Rows of one page.
const PAGE_ROWS: i64 = 1_000;

impl Call for Statement {
    const OPERATION: &'static str = "statement";
    type Answer = StatementPage;

    async fn carry_out(self, gateway: &Gateway) -> Result<StatementPage, GatewayError> {
        let begins_at = self.day.midnight().assume_utc();
        let start = Position { kind: LineKind::Payment, at: begins_at, key: String::new() };
        let from = self.after.unwrap_or(start);

        let window = store::statement::Window {
            // A place from outside may carry any offset, also one by which it is at no time; the books know UTC.
            after_at: from.at.checked_to_offset(UtcOffset::UTC).unwrap_or(begins_at).max(begins_at),
            after_key: &from.key,
            until: begins_at.saturating_add(time::Duration::days(1)),
            limit: PAGE_ROWS,
        };
        let mut conn = gateway.conn().await?;
        let movements = match from.kind {
            LineKind::Payment => store::statement::list_payments(&mut conn, window).await?,
            LineKind::Refund => store::statement::list_refunds(&mut conn, window).await?,
            LineKind::Payout => store::statement::list_payouts(&mut conn, window).await?,
        };
        Ok(page(from.kind, movements, begins_at))
    }
}

/// A page that is not full is the last of its kind; the next page then begins with the next kind.
fn page(kind: LineKind, movements: Vec<Movement>, begins_at: OffsetDateTime) -> StatementPage {
    let is_full = i64::try_from(movements.len()).is_ok_and(|rows| rows >= PAGE_ROWS);
    let next = match movements.last() {
        Some(last) if is_full => Some(Position { kind, at: last.at, key: last.key.clone() }),
        _ => following(kind).map(|kind| Position { kind, at: begins_at, key: String::new() }),
    };
    let lines = movements.into_iter().map(|movement| line(kind, movement)).collect();
    StatementPage { lines, next }
}

const fn following(kind: LineKind) -> Option<LineKind> {
    match kind {
        LineKind::Payment => Some(LineKind::Refund),
        LineKind::Refund => Some(LineKind::Payout),
        LineKind::Payout => None,
    }
}

fn line(kind: LineKind, movement: Movement) -> Line {
    let Movement { key, our_id, amount, currency, at } = movement;
    let channel_id = match kind {
        LineKind::Payment => key,
        LineKind::Refund => refund_number(&key),
        LineKind::Payout => payout_number(&key),
    };
    Line { kind, our_id, channel_id, amount, currency, at }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn kinds_follow_each_other_and_full_pages_go_on() {
        let begins_at = datetime!(2026-01-01 00:00 UTC);
        let movement = |n: i64| Movement {
            key: format!("txn_{n}"),
            our_id: "po_1".into(),
            amount: 1,
            currency: "CNY".into(),
            at: begins_at + time::Duration::seconds(n),
        };

        let full = page(LineKind::Payment, (0..PAGE_ROWS).map(movement).collect(), begins_at);
        let next = full.next.unwrap();
        assert_eq!((next.kind, next.key.as_str()), (LineKind::Payment, "txn_999"));

        let empty = page(LineKind::Payment, Vec::new(), begins_at).next.unwrap();
        assert_eq!((empty.kind, empty.at, empty.key.as_str()), (LineKind::Refund, begins_at, ""));
        assert!(page(LineKind::Payout, vec![movement(1)], begins_at).next.is_none());
    }
}

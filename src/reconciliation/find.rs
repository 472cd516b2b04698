//! What people see of it: days, their differences, and the differences as CSV.

use std::fmt::Write;

use super::error::ReconciliationError;
use super::model::{Class, Item, ItemStatus, Reconciliation};
use super::store;
use crate::app::App;
use crate::infra::db::DbError;

/// A channel's day.
///
/// # Errors
/// [`ReconciliationError::NotFound`].
pub async fn find(app: &App, id: &str) -> Result<Reconciliation, ReconciliationError> {
    let found = store::list(&mut app.db.conn().await?, Some(id), None, None, 1).await?;
    found.into_iter().next().ok_or(ReconciliationError::NotFound)
}

/// A page of days, newest first.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list(
    app: &App,
    channel: Option<&str>,
    starting_after: Option<&str>,
    limit: usize,
) -> Result<Vec<Reconciliation>, DbError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    store::list(&mut app.db.conn().await?, None, channel, starting_after, limit).await
}

/// A page of a day's differences, by their ids.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list_items(
    app: &App,
    id: &str,
    status: Option<ItemStatus>,
    class: Option<Class>,
    starting_after: Option<&str>,
    limit: usize,
) -> Result<Vec<Item>, DbError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    store::list_items(&mut app.db.conn().await?, id, status, class, starting_after, limit).await
}

/// Columns of the CSV.
const HEAD: &str = "item_id,class,kind,our_id,channel_id,merchant_id,order_no,ours,theirs,currency,at,action,status,\
                    decided_by,outcome\n";

/// A page of a day's differences as CSV, with its head before the first one, and the id that the next page starts after.
///
/// # Errors
/// When the database cannot be reached.
pub async fn csv(
    app: &App,
    id: &str,
    starting_after: Option<&str>,
    limit: usize,
) -> Result<(String, Option<String>), DbError> {
    let items = list_items(app, id, None, None, starting_after, limit).await?;
    let mut text = if starting_after.is_none() { HEAD.to_owned() } else { String::new() };
    for item in &items {
        push_row(&mut text, item);
    }
    let next = items.last().filter(|_| items.len() == limit).map(|item| item.item_id.clone());
    Ok((text, next))
}

fn push_row(text: &mut String, item: &Item) {
    let amount = |minor: Option<i64>| minor.map(|minor| minor.to_string()).unwrap_or_default();
    let at = item.at.format(&time::format_description::well_known::Rfc3339).unwrap_or_default();
    let cells = [
        item.item_id.as_str(),
        item.class.as_str(),
        item.kind.as_str(),
        &item.our_id,
        &item.channel_id,
        item.merchant_id.as_deref().unwrap_or_default(),
        item.order_no.as_deref().unwrap_or_default(),
        &amount(item.ours),
        &amount(item.theirs),
        item.currency.as_str(),
        &at,
        item.action.as_str(),
        item.status.as_str(),
        item.decided_by.as_deref().unwrap_or_default(),
        item.outcome.as_deref().unwrap_or_default(),
    ];
    for (place, cell) in cells.into_iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        // Writing to a text cannot fail.
        let _ = write!(text, "{comma}{}", quoted(cell));
    }
    text.push('\n');
}

/// Text from outside must neither end its cell nor be taken for a formula.
fn quoted(cell: &str) -> String {
    let is_formula = cell.starts_with(['=', '+', '@', '\t', '\r'])
        || cell.starts_with('-') && cell.parse::<i64>().is_err();
    let mark = if is_formula { "'" } else { "" };
    if is_formula || cell.contains([',', '"', '\n', '\r']) {
        return format!("\"{mark}{}\"", cell.replace('"', "\"\""));
    }
    cell.to_owned()
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_cell_stays_a_cell() {
        assert_eq!(quoted("po_1"), "po_1");
        assert_eq!(quoted("-12"), "-12");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("=cmd()"), "\"'=cmd()\"");
    }
}

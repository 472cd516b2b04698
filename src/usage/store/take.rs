//! Holds are made.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::write::{self, NewRow};
use super::{cycles, find};
use crate::idempotency::Keep;
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::{Command, Patience, column, in_places};
use crate::ledger;
use crate::usage::Done;
use crate::usage::desk::{Desk, Wanted, key_parts};
use crate::usage::error::Refusal;
use crate::usage::model::{Hold, KeyScope, Pricing, Terms};
use crate::usage::price::Price;

/// Makes a hold, or gives the one of its key, and keeps the answer.
///
/// The cycle and the balance that it takes from are locked before they are looked at, so commands of one batch are
/// served in their order, and commands of different batches one after the other: what is taken was there, and nothing
/// is refused that is there. A key that is taken in this very moment by another batch meets `usage_holds_key`.
#[derive(Debug)]
pub(in crate::usage) struct Take {
    pub(in crate::usage) wanted: Wanted,
    pub(in crate::usage) now: OffsetDateTime,
    pub(in crate::usage) keep: Option<Keep<Done>>,
}

/// What stands beside a hold that is asked for.
#[derive(Debug, Default)]
struct Facts {
    scope: Option<KeyScope>,
    terms: Option<Terms>,
    /// The hold of that key.
    existing: Option<String>,
}

impl Command for Take {
    const NAME: &'static str = "usage.take";
    const AT_ONCE: usize = 2;
    type Outcome = Result<Done, Refusal>;

    fn order(&self) -> Option<String> {
        None
    }

    async fn carry_out(
        batch: &[Self],
        patience: Patience,
        conn: &mut Conn,
    ) -> Result<Vec<Self::Outcome>, DbError> {
        let mut tx = conn.begin_batch(patience).await?;
        let outcomes = take_in_tx(&mut tx, batch).await;
        tx.finish_into(conn, outcomes).await
    }
}

async fn take_in_tx(tx: &mut Tx, batch: &[Take]) -> Result<Vec<Result<Done, Refusal>>, DbError> {
    let Some(now) = batch.iter().map(|take| take.now).max() else { return Ok(Vec::new()) };
    let facts = find_facts(tx, batch).await?;
    let existing: Vec<String> = facts.iter().filter_map(|facts| facts.existing.clone()).collect();
    let existing = if existing.is_empty() { Vec::new() } else { find::find_all(tx, &existing).await? };
    let fresh: Vec<Option<Hold>> = batch.iter().zip(&facts).map(|(take, facts)| take.fresh(facts)).collect();

    let mut desk = Desk::new(now);
    let with_cycle = fresh.iter().flatten().filter(|hold| hold.has_cycle());
    desk.cycles = cycles::lock(tx, with_cycle.map(Hold::cycle_key).collect()).await?;
    let wallets: Vec<_> = fresh.iter().flatten().map(Hold::wallet).collect();
    desk.available = ledger::lock_available_in_tx(tx, &wallets, now).await?;

    let mut made: BTreeMap<Key, Hold> = BTreeMap::new();
    let mut outcomes = Vec::with_capacity(batch.len());
    for ((take, facts), fresh) in batch.iter().zip(&facts).zip(fresh) {
        let found = existing.iter().find(|hold| facts.existing.as_deref() == Some(hold.hold_id.as_str()));
        let key = fresh.as_ref().zip(facts.scope).map(|(hold, scope)| Key::of(scope, hold));
        let found = found.or_else(|| made.get(key.as_ref()?));
        let outcome = match (found, fresh) {
            (Some(found), _) => take.repeat(found),
            (None, Some(hold)) => desk.take(hold).map(|hold| Done { hold, is_new: true }),
            (None, None) => Err(take.unknown(facts)),
        };
        if let (Ok(Done { hold, is_new: true }), Some(key)) = (&outcome, key) {
            made.insert(key, hold.clone());
        }
        outcomes.push(outcome);
    }
    look_again(tx, batch, &mut outcomes).await?;

    let rows: Vec<NewRow<'_>> = made.iter().map(|(key, hold)| key.row(hold)).collect();
    write::insert_holds(tx, &rows).await?;
    let kept = batch
        .iter()
        .zip(&outcomes)
        .filter_map(|(take, outcome)| Some(take.keep.as_ref()?.row(outcome.as_ref().ok()?.clone())));
    write::write_notes(tx, &[], &desk, &kept.collect::<Vec<_>>(), now).await?;
    ledger::post_in_tx(tx, &desk.notes.postings, now).await?;
    Ok(outcomes)
}

/// What is refused for want of balance or quota may be a repeat of what took them: of the same key, in another batch
/// that committed while this one waited for the locks.
async fn look_again(
    tx: &mut Tx,
    batch: &[Take],
    outcomes: &mut [Result<Done, Refusal>],
) -> Result<(), DbError> {
    let is_wanting = |outcome: &Result<Done, Refusal>| {
        matches!(outcome, Err(Refusal::InsufficientBalance | Refusal::QuotaExceeded(_)))
    };
    if !outcomes.iter().any(is_wanting) {
        return Ok(());
    }
    let facts = find_facts(tx, batch).await?;
    let ids: Vec<String> = facts.iter().filter_map(|facts| facts.existing.clone()).collect();
    let existing = find::find_all(tx, &ids).await?;
    for ((take, facts), outcome) in batch.iter().zip(&facts).zip(outcomes) {
        let found = existing.iter().find(|hold| facts.existing.as_deref() == Some(hold.hold_id.as_str()));
        if let Some(found) = found.filter(|_| is_wanting(outcome)) {
            *outcome = take.repeat(found);
        }
    }
    Ok(())
}

impl Take {
    /// The hold as it would stand; nothing where there is no price, or where it is there already.
    fn fresh(&self, facts: &Facts) -> Option<Hold> {
        let terms = facts.terms.as_ref().filter(|_| facts.existing.is_none())?;
        Some(self.wanted.hold(terms, self.now))
    }

    /// The hold of its key, which is its own where the answer of a first run was lost.
    fn repeat(&self, found: &Hold) -> Result<Done, Refusal> {
        let differing = found.differing_fields(&self.wanted.new);
        match differing.is_empty() {
            true => {
                let is_new = found.hold_id == self.wanted.hold_id;
                Ok(Done { hold: found.clone(), is_new })
            }
            false => Err(Refusal::KeyReused(differing)),
        }
    }

    fn unknown(&self, facts: &Facts) -> Refusal {
        Refusal::UnknownProduct(match (facts.scope, &self.wanted.new.fx_version) {
            (None, _) => "product_code",
            (Some(_), Some(_)) => "fx_version",
            (Some(_), None) => "currency",
        })
    }
}

/// What is unique of a hold, in the order of the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// Merchant, user, product and idempotency key.
    names: [String; 4],
    currency: String,
    fx_version: String,
}

impl Key {
    fn of(scope: KeyScope, hold: &Hold) -> Self {
        let (currency, fx_version) = key_parts(scope, hold);
        let names = [
            hold.merchant_id.as_str(),
            hold.user_id.as_str(),
            hold.product_code.as_str(),
            hold.idempotency_key.as_str(),
        ];
        Self {
            names: names.map(str::to_owned),
            currency: currency.to_owned(),
            fx_version: fx_version.to_owned(),
        }
    }

    fn row<'a>(&'a self, hold: &'a Hold) -> NewRow<'a> {
        NewRow { hold, key_currency: &self.currency, key_fx_version: &self.fx_version }
    }
}

/// Products, prices and holds of the keys, one for each command.
async fn find_facts(conn: &mut Conn, batch: &[Take]) -> Result<Vec<Facts>, DbError> {
    let fx_version = |take: &Take| take.wanted.new.fx_version.clone().map_or_else(String::new, Into::into);
    let rows = sqlx::query!(
        r#"SELECT place AS "place!", product.pricing AS "pricing?: Pricing", product.key_scope AS "key_scope?: KeyScope",
                  product.cycle_quota AS "cycle_quota?", price.unit_price AS "unit_price?: Price",
                  hold.hold_id AS "hold_id?"
           FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) WITH ORDINALITY
                AS new (merchant_id, user_id, product_code, idempotency_key, currency, fx_version, place)
           LEFT JOIN products AS product
                  ON product.merchant_id = new.merchant_id AND product.product_code = new.product_code
           LEFT JOIN product_prices AS price
                  ON price.merchant_id = new.merchant_id AND price.product_code = new.product_code
                 AND price.currency = new.currency AND price.fx_version = new.fx_version
           -- A look-up for each: a plan that was made while there were no holds would walk them all.
           LEFT JOIN LATERAL (SELECT hold_id FROM usage_holds
                              WHERE usage_holds.merchant_id = new.merchant_id AND usage_holds.user_id = new.user_id
                                AND usage_holds.product_code = new.product_code
                                AND usage_holds.idempotency_key = new.idempotency_key
                                AND usage_holds.key_currency
                                    = CASE product.key_scope WHEN 'REQUEST' THEN '' ELSE new.currency END
                                AND usage_holds.key_fx_version
                                    = CASE product.key_scope WHEN 'REQUEST' THEN '' ELSE new.fx_version END
                              LIMIT 1) AS hold ON true"#,
        &column(batch, |take| take.wanted.merchant_id.as_str()) as &[&str],
        &column(batch, |take| take.wanted.new.user_id.as_str()) as &[&str],
        &column(batch, |take| take.wanted.new.product_code.as_str()) as &[&str],
        &column(batch, |take| take.wanted.new.idempotency_key.as_str()) as &[&str],
        &column(batch, |take| take.wanted.new.currency.as_str()) as &[&str],
        &column(batch, fx_version),
    )
    .fetch_all(conn)
    .await?;
    let facts = in_places(batch.len(), rows, |row| {
        let terms = match (row.pricing, row.key_scope, row.unit_price) {
            (Some(pricing), Some(_), Some(unit_price)) => {
                Some(Terms { pricing, cycle_quota: row.cycle_quota, unit_price })
            }
            _ => None,
        };
        (row.place, Facts { scope: row.key_scope, terms, existing: row.hold_id })
    });
    Ok(facts.into_iter().map(Option::unwrap_or_default).collect())
}

//! Holds are made.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::write::{self, NewRow};
use super::{cycles, find};
use crate::idempotency::Keep;
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::{Command, Patience, column, in_places, places};
use crate::ledger::{self, Wallet};
use crate::usage::Done;
use crate::usage::desk::{Desk, Wanted, key_parts};
use crate::usage::error::Refusal;
use crate::usage::model::{Hold, KeyScope, NewHold, Pricing, Terms};
use crate::usage::price::Price;

/// Makes a hold, or gives the one of its key, and keeps the answer.
///
/// Mostly in two statements, each by itself: what is there is read, and the holds are written; a balance takes no more than
/// there is. Where anybody would be refused, or a cycle is used, the cycles and balances are locked before they are looked
/// at. So commands of one batch are served in their order, and commands of different batches one after the other: what is
/// taken was there, and nothing is refused that is there. A key that is taken in this very moment by another batch meets
/// `usage_holds_key`.
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
    /// What the user can spend; nothing where they never had anything.
    available: Option<i64>,
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
        let facts = find_facts(conn, batch).await?;
        // Who waits alone wants a balance that somebody has in hand: it would not be as it was read.
        if patience.is_in_lane()
            && let Some(outcomes) = take_as_read(conn, batch, &facts, patience).await?
        {
            return Ok(outcomes);
        }
        let mut tx = conn.begin_batch(patience).await?;
        let outcomes = take_in_tx(&mut tx, batch, &facts, patience).await;
        tx.finish_into(conn, outcomes).await
    }
}

/// Decides on what was read, and locks nothing before it writes: balances refuse by themselves what is not there, and keys
/// what was made meanwhile. `None`, with nothing written, where that is not enough: cycles must be looked at under their
/// locks, and nobody is refused for want of what another one may be giving back.
async fn take_as_read(
    conn: &mut Conn,
    batch: &[Take],
    facts: &[Facts],
    patience: Patience,
) -> Result<Option<Vec<Result<Done, Refusal>>>, DbError> {
    let mut taking = Taking::of(conn, batch, facts).await?;
    if taking.fresh().any(Hold::has_cycle) {
        return Ok(None);
    }
    taking.desk.available = batch
        .iter()
        .zip(facts)
        .filter_map(|(take, facts)| Some((take.wallet().available, facts.available?)))
        .collect();
    let taken = taking.take();
    if taken.outcomes.iter().any(is_wanting) {
        return Ok(None);
    }
    match taken.write(conn, batch, patience).await {
        Ok(()) => Ok(Some(taken.outcomes)),
        Err(error) if error.constraint() == Some(ledger::USER_BALANCE_CONSTRAINT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Decides under the locks of the cycles and balances that it takes from.
async fn take_in_tx(
    tx: &mut Tx,
    batch: &[Take],
    facts: &[Facts],
    patience: Patience,
) -> Result<Vec<Result<Done, Refusal>>, DbError> {
    let mut taking = Taking::of(tx, batch, facts).await?;
    let with_cycle = taking.fresh().filter(|hold| hold.has_cycle());
    taking.desk.cycles = cycles::lock(tx, with_cycle.map(Hold::cycle_key).collect()).await?;
    let wallets: Vec<_> = taking.fresh().map(Hold::wallet).collect();
    taking.desk.available = ledger::lock_available_in_tx(tx, &wallets, taking.now).await?;

    let mut taken = taking.take();
    look_again(tx, batch, &mut taken.outcomes).await?;
    write::write_cycles(tx, &taken.desk).await?;
    write::announce(tx, &taken.desk.notes, taken.now).await?;
    taken.write(tx, batch, patience).await?;
    Ok(taken.outcomes)
}

/// A batch before it is decided.
struct Taking<'a> {
    batch: &'a [Take],
    facts: &'a [Facts],
    now: OffsetDateTime,
    existing: Vec<Hold>,
    fresh: Vec<Option<Hold>>,
    desk: Desk,
}

/// A batch that is decided: the holds that were made, by their keys.
struct Taken {
    now: OffsetDateTime,
    made: BTreeMap<Key, Hold>,
    outcomes: Vec<Result<Done, Refusal>>,
    desk: Desk,
}

impl<'a> Taking<'a> {
    async fn of(conn: &mut Conn, batch: &'a [Take], facts: &'a [Facts]) -> Result<Self, DbError> {
        let now = batch.iter().map(|take| take.now).max().unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let fresh = batch.iter().zip(facts).map(|(take, facts)| take.fresh(facts)).collect();
        let existing = find_existing(conn, facts).await?;
        Ok(Self { batch, facts, now, existing, fresh, desk: Desk::new(now) })
    }

    fn fresh(&self) -> impl Iterator<Item = &Hold> {
        self.fresh.iter().flatten()
    }

    /// Serves all of them, in their order.
    fn take(self) -> Taken {
        let Self { batch, facts, now, existing, fresh, mut desk } = self;
        let mut made: BTreeMap<Key, Hold> = BTreeMap::new();
        let mut outcomes = Vec::with_capacity(batch.len());
        for ((take, facts), fresh) in batch.iter().zip(facts).zip(fresh) {
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
        Taken { now, made, outcomes, desk }
    }
}

impl Taken {
    async fn write(&self, conn: &mut Conn, batch: &[Take], patience: Patience) -> Result<(), DbError> {
        let rows: Vec<NewRow<'_>> = self.made.iter().map(|(key, hold)| key.row(hold)).collect();
        let kept = batch
            .iter()
            .zip(&self.outcomes)
            .filter_map(|(take, outcome)| Some(take.keep.as_ref()?.row(outcome.as_ref().ok()?.clone())));
        write::make(conn, &rows, &self.desk.notes, &kept.collect::<Vec<_>>(), patience, self.now).await
    }
}

fn is_wanting(outcome: &Result<Done, Refusal>) -> bool {
    matches!(outcome, Err(Refusal::InsufficientBalance | Refusal::QuotaExceeded(_)))
}

/// What is refused for want of balance or quota may be a repeat of what took them: of the same key, in another batch
/// that committed while this one waited for the locks.
async fn look_again(
    tx: &mut Tx,
    batch: &[Take],
    outcomes: &mut [Result<Done, Refusal>],
) -> Result<(), DbError> {
    if !outcomes.iter().any(is_wanting) {
        return Ok(());
    }
    let facts = find_facts(tx, batch).await?;
    let existing = find_existing(tx, &facts).await?;
    for ((take, facts), outcome) in batch.iter().zip(&facts).zip(outcomes) {
        let found = existing.iter().find(|hold| facts.existing.as_deref() == Some(hold.hold_id.as_str()));
        if let Some(found) = found.filter(|_| is_wanting(outcome)) {
            *outcome = take.repeat(found);
        }
    }
    Ok(())
}

async fn find_existing(conn: &mut Conn, facts: &[Facts]) -> Result<Vec<Hold>, DbError> {
    let ids: Vec<String> = facts.iter().filter_map(|facts| facts.existing.clone()).collect();
    if ids.is_empty() { Ok(Vec::new()) } else { find::find_all(conn, &ids).await }
}

impl Take {
    fn wallet(&self) -> Wallet {
        let NewHold { user_id, currency, .. } = &self.wanted.new;
        Wallet::of(self.wanted.merchant_id.as_str(), user_id.as_str(), *currency)
    }

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

/// Products, prices, holds of the keys and balances, one for each command.
async fn find_facts(conn: &mut Conn, batch: &[Take]) -> Result<Vec<Facts>, DbError> {
    let fx_version = |take: &Take| take.wanted.new.fx_version.clone().map_or_else(String::new, Into::into);
    let rows = sqlx::query!(
        r#"SELECT place AS "place!", product.pricing AS "pricing?: Pricing", product.key_scope AS "key_scope?: KeyScope",
                  product.cycle_quota AS "cycle_quota?", price.unit_price AS "unit_price?: Price",
                  hold.hold_id AS "hold_id?",
                  (SELECT balance FROM accounts WHERE account_id = new.available) AS available
           FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS user_id,
                        unnest($3::text[]) AS product_code, unnest($4::text[]) AS idempotency_key,
                        unnest($5::text[]) AS currency, unnest($6::text[]) AS fx_version,
                        unnest($7::text[]) AS available, unnest($8::bigint[]) AS place) AS new
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
        &column(batch, |take| take.wallet().available.to_string()),
        &places(batch.len()),
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
        (row.place, Facts { scope: row.key_scope, terms, existing: row.hold_id, available: row.available })
    });
    Ok(facts.into_iter().map(Option::unwrap_or_default).collect())
}

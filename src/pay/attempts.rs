//! Looking at attempts, and driving on those that a crash or a silence left `INIT`.

use time::OffsetDateTime;

use super::end::{self, close_at_channel, end_attempt, leave_to_task};
use super::error::PayError;
use super::model::{Attempt, PayStatus};
use super::pay_url::{Outcome, PayUrl};
use super::report::{self, Origin, Report};
use super::store::{self, FindFacts, Publish};
use crate::app::App;
use crate::channels::{CallError, Channel, CreatedTrade, NewTrade, Refusal, TradeState};
use crate::compensation::{Action, Drive, Update, spill_if_lost};
use crate::idempotency::{Keep, Kept};
use crate::ids::MerchantId;
use crate::infra::crash::effect;
use crate::infra::db::{Conn, DbError};
use crate::infra::lock::{LockGuard, Scene};
use crate::infra::tasks;
use crate::orders::OrderKey;

/// The attempt of that id, if it is this merchant's.
///
/// # Errors
/// [`PayError::NotFound`] when this merchant has none of that id.
pub async fn find_of_merchant(
    app: &App,
    merchant_id: &MerchantId,
    pay_order_id: &str,
) -> Result<Attempt, PayError> {
    let attempt = store::find(&mut app.db.conn().await?, pay_order_id).await?;
    attempt.filter(|attempt| attempt.merchant_id == *merchant_id).ok_or(PayError::NotFound)
}

/// The attempt of that id.
pub(crate) async fn find_attempt(conn: &mut Conn, pay_order_id: &str) -> Result<Option<Attempt>, DbError> {
    store::find(conn, pay_order_id).await
}

/// The live attempt of an order.
///
/// # Errors
/// When the database cannot be reached.
pub async fn find_live_attempt(app: &App, key: &OrderKey) -> Result<Option<Attempt>, DbError> {
    store::find_live(&mut app.db.conn().await?, key).await
}

/// The last `limit` attempts of an order, oldest first.
pub(crate) async fn list_attempts(
    conn: &mut Conn,
    key: &OrderKey,
    limit: i64,
) -> Result<Vec<Attempt>, DbError> {
    store::list_of_order(conn, key, limit).await
}

/// What became of an attempt that was `INIT`.
#[derive(Debug)]
pub(super) enum Linked {
    /// It has its link.
    Paying(Box<PayUrl>),
    /// It was refused before: by a call beside this one, or by this one, whose commit's answer was lost.
    Refused(Refusal),
    /// It, or its order, moved meanwhile: look again.
    Moved,
}

/// Who asks for a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    /// Whether the attempt is of this request. Whoever drives one on does not know what became of the call before.
    pub(super) has_begun_it: bool,
    pub(super) lock: Option<&'a LockGuard>,
    /// Where the outcome is kept under an `Idempotency-Key`.
    pub(super) keep: Option<&'a Keep<Outcome>>,
}

impl Caller<'_> {
    /// Whether a call for the attempt may be under way beside its own: whoever waited long enough goes on without the lock.
    fn may_have_company(self, app: &App, attempt: &Attempt) -> bool {
        let is_alone = self.has_begun_it && self.lock.is_some_and(|lock| lock.still_held().is_ok());
        !is_alone || app.now() >= attempt.created_at + app.config.channels.deadline
    }
}

/// Asks the channel for the link of an `INIT` attempt and writes it down. The attempt's own number makes this
/// safe at any time and any number of times.
///
/// # Errors
/// [`PayError::ChannelRefused`] after the attempt was set `FAILED`; [`PayError::ChannelUnavailable`] while the
/// attempt stays `INIT` and its task goes on.
pub(super) async fn make_link(
    app: &App,
    attempt: Attempt,
    order_expires_at: OffsetDateTime,
    caller: Caller<'_>,
) -> Result<Linked, PayError> {
    let channel = app.channels.get(&attempt.channel);
    let channel = channel.ok_or_else(|| PayError::UnknownChannel(attempt.channel.clone()))?;
    // A channel that cannot expire as early as the order keeps its trade open a while longer; closing the order
    // closes the trade there.
    let expires_at = attempt.expires_at.max(app.now() + channel.link_life().min);
    let trade = NewTrade {
        pay_order_id: attempt.pay_order_id.clone(),
        money: attempt.money()?,
        subject: attempt.subject.clone().unwrap_or_else(|| format!("Order {}", attempt.order_no)),
        payer_id: attempt.payer_id.clone(),
        return_url: attempt.return_url.clone(),
        expires_at,
    };
    match effect!("pay.create", tasks::away_when_long(channel.create(&trade)).await) {
        Ok(created) => {
            let expires_at = created.expires_at.min(order_expires_at);
            let created = CreatedTrade { expires_at, ..created };
            publish_link(app, attempt, created, caller.keep, LinkFrom::Channel).await
        }
        Err(CallError::Refused(refusal)) => {
            Box::pin(fail_unless_paid(app, channel.as_ref(), attempt, refusal, caller)).await
        }
        Err(error) => Err(Box::pin(leave_to_task(app, &attempt, Action::DrivePayOrder, &error)).await?),
    }
}

/// A refusal ends the attempt, but for one reason: an earlier call was carried out although its answer was lost, and
/// the channel refuses the repeat. What it knows as open is closed there; when somebody paid, it has the money all the
/// same.
async fn fail_unless_paid(
    app: &App,
    channel: &dyn Channel,
    attempt: Attempt,
    refusal: Refusal,
    caller: Caller<'_>,
) -> Result<Linked, PayError> {
    let mut state = tasks::away_when_long(channel.query(&attempt.trade_ref()?)).await;
    // It stands there all the same, and would stay payable behind an attempt that has failed.
    if matches!(state, Ok(TradeState::Pending)) {
        state = close_at_channel(app, channel, &attempt).await?;
    }
    match state {
        Ok(state @ TradeState::Paid(_)) => {
            report::apply(app, &Report::of_attempt(&attempt, state, Origin::Query)).await?;
            Ok(Linked::Moved)
        }
        Ok(state) => {
            let kept = caller.keep.map(|keep| keep.row(Err(refusal.clone())));
            let may_open = state == TradeState::Unseen && caller.may_have_company(app, &attempt);
            if app.db.retrying(|| fail(app, &attempt, &refusal, kept.as_ref(), may_open)).await? {
                return Err(PayError::ChannelRefused(refusal));
            }
            let stands = store::find(&mut app.db.conn().await?, attempt.pay_order_id.as_str()).await?;
            if let Some(before) = stands.and_then(|stands| stands.refusal()) {
                return Ok(Linked::Refused(before));
            }
            // Its link may have been published in this moment: nobody is to be sent to a trade that is closed.
            if state == TradeState::Closed {
                report::apply(app, &Report::of_attempt(&attempt, state, Origin::Query)).await?;
            }
            Ok(Linked::Moved)
        }
        // Also a refusal to answer: it says nothing about the money.
        Err(error) => Err(leave_to_task(app, &attempt, Action::DrivePayOrder, &error).await?),
    }
}

/// Ends an attempt that was refused; `false` when it has moved already. Where somebody else's call may open its trade yet, a
/// task closes that.
async fn fail(
    app: &App,
    attempt: &Attempt,
    refusal: &Refusal,
    kept: Option<&Kept>,
    may_open: bool,
) -> Result<bool, DbError> {
    let (mut tx, now) = (app.db.begin().await?, app.now());
    let failed = async {
        let is_ours = store::set_failed(&mut tx, attempt, refusal, kept, now).await?;
        if is_ours && may_open {
            let (id, order) = (attempt.pay_order_id.as_str(), attempt.order_key());
            end::close_again_in_tx(app, &mut tx, id, &order, now).await?;
        }
        Ok(is_ours)
    }
    .await;
    effect!("pay.refuse", tx.finish(failed).await)
}

/// Where a link comes from: one that was put aside already is not put aside again, its task keeps it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkFrom {
    Channel,
    Spill,
}

async fn publish_link(
    app: &App,
    attempt: Attempt,
    created: CreatedTrade,
    keep: Option<&Keep<Outcome>>,
    origin: LinkFrom,
) -> Result<Linked, PayError> {
    let link = PayUrl::of(&attempt, &created);
    let channel_ref = created.channel_ref.clone();
    let publish = Publish {
        order: attempt.order_key(),
        pay_order_id: attempt.pay_order_id.clone(),
        created,
        kept: keep.map(|keep| keep.row(Ok(link.clone()))),
        now: app.now(),
    };
    let published = effect!("pay.publish", app.db.gather(publish).await);
    let made = || {
        Some(Update::LinkMade {
            pay_order_id: attempt.pay_order_id.to_string(),
            pay_url: link.pay_url.clone(),
            channel_ref,
            expires_at: link.expires_at,
        })
    };
    if origin == LinkFrom::Channel {
        spill_if_lost(&app.redis, &published, made).await;
    }
    if !published? {
        Box::pin(close_if_unwanted(app, &attempt)).await?;
        return Ok(Linked::Moved);
    }
    Ok(Linked::Paying(Box::new(link)))
}

/// Writes a link down that the channel gave when the database was away; one that is not wanted any more is closed
/// there.
///
/// # Errors
/// When the database is away: the task tries again.
pub async fn replay_link(app: &App, pay_order_id: &str, created: CreatedTrade) -> Result<Drive, PayError> {
    let found = store::find(&mut app.db.conn().await?, pay_order_id).await?;
    match found.filter(|attempt| attempt.status == PayStatus::Init) {
        Some(attempt) => {
            publish_link(app, attempt, created, None, LinkFrom::Spill).await.map(|_| Drive::Done)
        }
        // The task of the attempt, or its buyer, was faster.
        None => Ok(Drive::Done),
    }
}

/// The link could not be published. When the order was paid or closed meanwhile, the trade that was just made
/// must not stay payable.
async fn close_if_unwanted(app: &App, attempt: &Attempt) -> Result<(), PayError> {
    let found = store::find(&mut app.db.conn().await?, attempt.pay_order_id.as_str()).await?;
    let Some(found) = found else { return Ok(()) };
    if matches!(found.status, PayStatus::Paying | PayStatus::Paid) {
        return Ok(());
    }
    match end_attempt(app, &found, None).await {
        // A task goes on closing it; the order's state is the answer all the same.
        Ok(()) | Err(PayError::ChannelUnavailable(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Drives one `INIT` attempt to its end: a link while the order waits for money, closed otherwise.
///
/// # Errors
/// When the lock is busy or the database away: the task tries again.
pub async fn drive(app: &App, pay_order_id: &str) -> Result<Drive, PayError> {
    let Some(attempt) = store::find(&mut app.db.conn().await?, pay_order_id).await? else {
        return Ok(Drive::Done);
    };
    // It never comes back to there.
    if attempt.status != PayStatus::Init {
        return Ok(Drive::Done);
    }
    let key = attempt.order_key();
    let lock = app.locks.acquire(Scene::GeneratePayUrl, &key.lock_key()).await?;
    // Whoever had the lock before may have brought it to its end.
    let found = store::find(&mut app.db.conn().await?, pay_order_id).await?;
    let Some(attempt) = found.filter(|attempt| attempt.status == PayStatus::Init) else {
        return Ok(Drive::Done);
    };
    let facts = app.db.gather(FindFacts(key)).await?.ok_or(PayError::OrderNotFound)?;
    let is_wanted =
        facts.order.status == crate::orders::OrderStatus::Pending && attempt.expires_at > app.now();
    let outcome = if is_wanted {
        lock.still_held()?;
        let caller = Caller { has_begun_it: false, lock: Some(&lock), keep: None };
        make_link(app, attempt, facts.order.expires_at, caller).await.map(drop)
    } else {
        end_attempt(app, &attempt, Some(&lock)).await
    };
    match outcome {
        Ok(()) | Err(PayError::ChannelRefused(_)) => Ok(Drive::Done),
        Err(PayError::ChannelUnavailable(why)) => Ok(Drive::Again(why)),
        Err(error) => Err(error),
    }
}

//! `POST /pay/url`: one link for one order.
//!
//! Round trips of a first call: 3 to PostgreSQL (read, begin, publish), 1 to Redis, 1 to the channel; commits: 2,
//! of which the first is not flushed. A repeat: 1 round trip, no lock, no commit. Equal requests under way at
//! once share one run; different ones share round trips and commits (see [`crate::infra::gather`]).
//!
//! What few requests need is boxed here and in the steps below: the future of a request is moved a few times
//! before it runs, and copying the room of all its rare ends was a sixth of the service's processor time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;

use super::attempts::{Caller, Linked, make_link};
use super::end::end_attempt;
use super::error::PayError;
use super::model::{Attempt, PayStatus};
use super::store::{self, Begin, Facts, FindFacts, LiveAttempt};
use crate::app::App;
use crate::channels::{CallError, CreatedTrade, Refusal};
use crate::compensation::{self, Action, NewTask};
use crate::idempotency::{self, Keep};
use crate::ids::{MerchantId, OrderNo, PayOrderId, UserId};
use crate::infra::crash::effect;
use crate::infra::lock::{LockGuard, Overtaken, Scene, Turn};
use crate::infra::repeat::differing;
use crate::infra::tasks;
use crate::money::{Amount, Currency};
use crate::orders::{self, NewOrder, OrderError, OrderKey, OrderKind, OrderStatus};

#[cfg(test)]
pub(crate) mod simulated;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PayUrlRequest {
    /// Whose order.
    pub merchant_id: MerchantId,
    /// Which one.
    pub order_no: OrderNo,
    /// Who pays.
    pub payer_id: UserId,
    /// Whether only the order's own user may pay: the rule for browsers.
    pub is_payer_checked: bool,
    /// Through which channel.
    pub channel: String,
    /// With it, an order that does not exist yet is made on the way.
    pub amount: Option<Amount>,
    /// Of what; goes with the amount.
    pub currency: Option<Currency>,
    /// What the buyer reads.
    pub subject: Option<String>,
    /// Where the cashier page leads back to.
    pub return_url: Option<String>,
}

impl PayUrlRequest {
    fn key(&self) -> OrderKey {
        OrderKey { merchant_id: self.merchant_id.clone(), order_no: self.order_no.clone() }
    }
}

/// A link and what it collects.
#[derive(Clone, Debug)]
pub struct PayUrl {
    /// The attempt.
    pub pay_order_id: PayOrderId,
    /// Its order.
    pub order_no: OrderNo,
    /// Its channel.
    pub channel: String,
    /// The link.
    pub pay_url: String,
    /// Minor units.
    pub amount: i64,
    /// Of what.
    pub currency: Currency,
    /// When the link dies; never after the order.
    pub expires_at: OffsetDateTime,
}

impl PayUrl {
    /// The link that a channel made for an attempt.
    pub(super) fn of(attempt: &Attempt, created: &CreatedTrade) -> Self {
        Self {
            pay_order_id: attempt.pay_order_id.clone(),
            order_no: attempt.order_no.clone(),
            channel: attempt.channel.clone(),
            pay_url: created.pay_url.clone(),
            amount: attempt.amount,
            currency: attempt.currency,
            expires_at: created.expires_at,
        }
    }
}

/// What stands, whatever is repeated: the link, or the channel's refusal.
pub type Outcome = Result<PayUrl, Refusal>;

/// A request, how its outcome is kept where that is asked, what it has begun, and the lock where it is held.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    request: &'a PayUrlRequest,
    keep: Option<&'a Keep<Outcome>>,
    begun: &'a Begun,
    lock: Option<&'a LockGuard>,
}

/// The attempt that a request began last, or may have begun. Where the answer to that was lost, or its link could not be
/// written, it is found like somebody else's, and there is nobody to wait for.
#[derive(Debug, Default)]
struct Begun(Mutex<Option<Own>>);

#[derive(Debug)]
struct Own {
    id: PayOrderId,
    /// Whether its channel was asked.
    has_called: bool,
}

impl Begun {
    fn note(&self, id: &PayOrderId) {
        *self.inside() = Some(Own { id: id.clone(), has_called: false });
    }

    fn is(&self, id: &PayOrderId) -> bool {
        self.inside().as_ref().is_some_and(|own| own.id == *id)
    }

    /// Whether its channel is asked for the first time now: whoever asks again does not know what became of the call before.
    fn is_first_call(&self, id: &PayOrderId) -> bool {
        let mut inside = self.inside();
        let own = inside.as_mut().filter(|own| own.id == *id);
        own.is_some_and(|own| !std::mem::replace(&mut own.has_called, true))
    }

    fn inside(&self) -> MutexGuard<'_, Option<Own>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is to be done, decided from what was read.
#[derive(Debug)]
enum Step {
    /// The link stands.
    Answer(PayUrl),
    /// No attempt is live: begin one.
    Begin,
    /// This very attempt has no link yet.
    DriveOn(PayOrderId),
    /// Another payer's or channel's attempt, or a link that is dead or dying: it goes first.
    Replace(PayOrderId),
}

/// Rounds of "read, decide, write": each lost race is one round.
const MAX_ROUNDS: usize = 8;
/// How often a request looks whether another instance's call has ended.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// And when it has looked several times.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(250);

/// Makes or repeats the link of an order; keeps the answer where that is asked.
///
/// # Errors
/// See [`PayError`]; after [`PayError::ChannelUnavailable`] the same request later gets the link.
pub async fn pay_url(
    app: &App,
    request: &PayUrlRequest,
    keep: Option<&Keep<Outcome>>,
) -> Result<PayUrl, PayError> {
    if app.channels.get(&request.channel).is_none() {
        return Err(PayError::UnknownChannel(request.channel.clone()));
    }
    let begun = Begun::default();
    app.db.retrying(|| look_then_make(app, Asked { request, keep, begun: &begun, lock: None })).await
}

/// Answers with what stood already: a link, or the refusal of a call beside this one. A browser gets it again without its
/// being kept: anybody may know the key of browsers, and could fill the table.
async fn give(app: &App, asked: Asked<'_>, outcome: Outcome) -> Result<PayUrl, PayError> {
    if let Some(keep) = asked.keep.filter(|_| !asked.request.is_payer_checked) {
        Box::pin(keep_alone(app, keep, &asked.request.order_no, &outcome)).await?;
    }
    outcome.map_err(PayError::ChannelRefused)
}

/// There is no effect to keep this answer with.
async fn keep_alone(
    app: &App,
    keep: &Keep<Outcome>,
    order_no: &OrderNo,
    outcome: &Outcome,
) -> Result<(), PayError> {
    let row = keep.row(outcome.clone());
    let (mut conn, order_no) = (app.db.conn().await?, Some(order_no.as_str()));
    Ok(effect!("pay.keep", idempotency::insert(&mut conn, &row, order_no, app.now()).await)?)
}

async fn look_then_make(app: &App, asked: Asked<'_>) -> Result<PayUrl, PayError> {
    let request = asked.request;
    let facts = find_or_make_order(app, request).await?;
    if let Step::Answer(link) = decide(&facts, request, app.now())? {
        return give(app, asked, Ok(link)).await;
    }
    let look = || settled(app, request);
    match app.locks.acquire_unless(Scene::GeneratePayUrl, &request.key().lock_key(), look).await {
        Ok(Turn::Ours(lock)) => {
            let facts = if lock.has_waited() { look_again(app, request, facts).await? } else { facts };
            make(app, Asked { lock: Some(&lock), ..asked }, facts).await
        }
        Ok(Turn::Settled(link)) => give(app, asked, Ok(link?)).await,
        Err(busy) => {
            // One last look: the winner's answer is usually there.
            let facts = find(app, request).await?.ok_or(PayError::OrderNotFound)?;
            match decide(&facts, request, app.now())? {
                Step::Answer(link) => give(app, asked, Ok(link)).await,
                // The channel is being asked for this very link, or its asker died: the answer is waited for,
                // or got, as without any lock.
                Step::DriveOn(_) => make(app, asked, facts).await,
                Step::Begin | Step::Replace(_) => Err(PayError::Busy(busy)),
            }
        }
    }
}

/// Whoever had the lock may be closing by now what was live. What has ended is not looked for anew: it has its end, be it a
/// refusal, for whoever waited for it.
async fn look_again(app: &App, request: &PayUrlRequest, before: Facts) -> Result<Facts, PayError> {
    let id = |facts: &Facts| facts.live.as_ref().map(|live| live.pay_order_id.clone());
    let seen = find(app, request).await?.ok_or(PayError::OrderNotFound)?;
    Ok(if id(&seen) == id(&before) { seen } else { before })
}

/// The answer, where whoever holds the lock has settled it meanwhile.
async fn settled(app: &App, request: &PayUrlRequest) -> Option<Result<PayUrl, PayError>> {
    // What cannot be read now is read with the lock.
    let facts = find(app, request).await.ok()??;
    match decide(&facts, request, app.now()) {
        Ok(Step::Answer(link)) => Some(Ok(link)),
        Ok(Step::Begin | Step::DriveOn(_) | Step::Replace(_)) => None,
        Err(error) => Some(Err(error)),
    }
}

async fn find(app: &App, request: &PayUrlRequest) -> Result<Option<Facts>, PayError> {
    Ok(app.db.gather(FindFacts(request.key())).await?)
}

async fn find_or_make_order(app: &App, request: &PayUrlRequest) -> Result<Facts, PayError> {
    if let Some(facts) = find(app, request).await? {
        return Ok(facts);
    }
    let Some(amount) = request.amount else { return Err(PayError::OrderNotFound) };
    let Some(currency) = request.currency else { return Err(PayError::CurrencyMissing) };
    let new = NewOrder {
        order_no: Some(request.order_no.clone()),
        user_id: request.payer_id.clone(),
        amount,
        currency,
        items: Vec::new(),
        expires_in_secs: app.config.orders.timeout_secs,
        kind: OrderKind::Sale,
        rebate_user_id: None,
        rebate_rate: None,
        subject: request.subject.clone(),
        notify_url: None,
        metadata: None,
    };
    match Box::pin(orders::create(app, &request.merchant_id, &new, None)).await {
        // Somebody else made it meanwhile: whether this request fits it is decided as for any other order.
        Ok(_) | Err(OrderError::ParamsMismatch(_)) => {}
        Err(error) => return Err(error.into()),
    }
    find(app, request).await?.ok_or(PayError::OrderNotFound)
}

/// The facts were read before the lock was taken, so they may be stale: every write is guarded by them, and a
/// write that meets nothing leads back here with fresh ones.
async fn make(app: &App, asked: Asked<'_>, mut facts: Facts) -> Result<PayUrl, PayError> {
    let request = asked.request;
    // Taken before anything is written or closed: one that hangs makes no more wait than there is room for. Given back while
    // another channel is waited for.
    let mut room = None;
    for _ in 0..MAX_ROUNDS {
        let step = decide(&facts, request, app.now())?;
        if room.is_none() && !matches!(step, Step::Answer(_)) {
            let place = app.waiting.enter(request.channel.clone());
            room = Some(place.ok_or_else(|| PayError::ChannelUnavailable(CallError::NotNow.to_string()))?);
        }
        match step {
            Step::Answer(link) => return give(app, asked, Ok(link)).await,
            Step::Begin => {
                let attempt = new_attempt(app, request, &facts);
                asked.begun.note(&attempt.pay_order_id);
                if begin(app, &attempt, &facts).await?
                    && let Some(link) = link_of(app, asked, attempt, &facts).await?
                {
                    return Ok(link);
                }
            }
            Step::DriveOn(id) => {
                if let Some(attempt) = Box::pin(take_over(app, asked, &id)).await?
                    && let Some(link) = link_of(app, asked, attempt, &facts).await?
                {
                    return Ok(link);
                }
            }
            Step::Replace(id) => {
                let attempt = store::find(&mut app.db.conn().await?, id.as_str()).await?;
                let attempt = attempt.ok_or(PayError::NotFound)?;
                room = None;
                // Whoever was at it may have ended it.
                if attempt.status.is_live() {
                    Box::pin(end_attempt(app, &attempt, asked.lock)).await?;
                }
            }
        }
        facts = find(app, request).await?.ok_or(PayError::OrderNotFound)?;
    }
    // Others took the order over again and again.
    Err(PayError::Overtaken(Overtaken))
}

/// What these facts call for. Pure.
fn decide(facts: &Facts, request: &PayUrlRequest, now: OffsetDateTime) -> Result<Step, PayError> {
    let Facts { order, live } = facts;
    if request.is_payer_checked && order.user_id != request.payer_id.as_str() {
        return Err(PayError::OrderNotFound);
    }
    let fields = differing([
        ("amount", request.amount.is_none_or(|amount| amount.minor() == order.amount)),
        ("currency", request.currency.is_none_or(|currency| currency == order.currency)),
    ]);
    if !fields.is_empty() {
        return Err(PayError::ParamsMismatch(fields));
    }
    match order.status {
        OrderStatus::Pending if order.expires_at > now => {}
        OrderStatus::Pending | OrderStatus::Closed => return Err(PayError::OrderClosed),
        OrderStatus::Paid | OrderStatus::PartiallyRefunded | OrderStatus::Refunded => {
            return Err(PayError::OrderAlreadyPaid);
        }
    }
    let Some(live) = live else { return Ok(Step::Begin) };
    if !live.is_for(request) || live.is_being_closed || live.expires_at <= now {
        return Ok(Step::Replace(live.pay_order_id.clone()));
    }
    Ok(match (live.status, &live.pay_url) {
        (PayStatus::Paying, Some(pay_url)) => Step::Answer(answer(facts, live, pay_url, request)),
        _ => Step::DriveOn(live.pay_order_id.clone()),
    })
}

impl LiveAttempt {
    fn is_for(&self, request: &PayUrlRequest) -> bool {
        self.payer_id == request.payer_id.as_str() && self.channel == request.channel
    }
}

fn new_attempt(app: &App, request: &PayUrlRequest, facts: &Facts) -> Attempt {
    let now = app.now();
    let life = app.channels.get(&request.channel).map(|channel| channel.link_life());
    // Never past the order; where the channel cannot expire that early, closing the order closes the trade.
    let wanted = facts.order.expires_at;
    let expires_at = life.map_or(wanted, |life| wanted.min(now + life.max));
    Attempt {
        pay_order_id: app.ids.pay_order(),
        merchant_id: request.merchant_id.clone(),
        order_no: request.order_no.clone(),
        payer_id: request.payer_id.clone(),
        channel: request.channel.clone(),
        status: PayStatus::Init,
        amount: facts.order.amount,
        currency: facts.order.currency,
        subject: request.subject.clone().or_else(|| facts.order.subject.clone()),
        return_url: request.return_url.clone(),
        pay_url: None,
        channel_ref: None,
        transaction_id: None,
        paid_at: None,
        channel_code: None,
        channel_message: None,
        expires_at,
        created_at: now,
        version: 1,
    }
}

async fn begin(app: &App, attempt: &Attempt, facts: &Facts) -> Result<bool, PayError> {
    let begin = Begin {
        attempt: attempt.clone(),
        attempts_seen: facts.order.attempts,
        guard_until: attempt.created_at + app.config.channels.deadline + time::Duration::SECOND,
    };
    match effect!("pay.begin", app.db.gather(begin).await) {
        Err(error) if error.constraint() == Some("pay_orders_one_live_per_order") => Ok(false),
        outcome => Ok(outcome?),
    }
}

async fn link_of(
    app: &App,
    asked: Asked<'_>,
    attempt: Attempt,
    facts: &Facts,
) -> Result<Option<PayUrl>, PayError> {
    let made = match attempt.refusal() {
        Some(refusal) => Linked::Refused(refusal),
        None => {
            asked.lock.map_or(Ok(()), LockGuard::still_held)?;
            let has_begun_it = asked.begun.is_first_call(&attempt.pay_order_id);
            let caller = Caller { has_begun_it, lock: asked.lock, keep: asked.keep };
            make_link(app, attempt, facts.order.expires_at, caller).await?
        }
    };
    match made {
        Linked::Paying(link) => Ok(Some(*link)),
        Linked::Refused(refusal) => give(app, asked, Err(refusal)).await.map(Some),
        Linked::Moved => Ok(None),
    }
}

/// Takes over an attempt without a link. While another instance is calling the channel for it, that call is
/// waited for: its answer is ours too, also a refusal, with which the attempt is given. Whoever holds it for longer than
/// a call can last died, or waits for the lock that we have; the attempt's own number makes a second call safe. What this
/// request has begun is its own.
async fn take_over(app: &App, asked: Asked<'_>, id: &PayOrderId) -> Result<Option<Attempt>, PayError> {
    let request = asked.request;
    let patience = app.config.channels.deadline + Duration::from_secs(1);
    let wait_until = tokio::time::Instant::now() + patience;
    let mut pause = LOOK_EVERY;
    loop {
        let now = app.now();
        let task = NewTask {
            action: Action::DrivePayOrder,
            subject: id.as_str(),
            merchant_id: Some(request.merchant_id.as_str()),
            order_no: Some(request.order_no.as_str()),
            due_at: now + patience,
        };
        let mut conn = app.db.conn().await?;
        // Looked at before that: who only waits writes nothing.
        let is_ours = asked.begun.is(id)
            || compensation::is_free(&mut conn, &task, now).await?
                && effect!("pay.take", compensation::take(&mut conn, &task, now).await)?;
        // Looked at after the taking: whoever made the link took its task away with it.
        let found = store::find(&mut conn, id.as_str()).await?;
        let Some(attempt) = found else { return Ok(None) };
        if attempt.status != PayStatus::Init {
            if is_ours {
                let (action, id) = (task.action, task.subject);
                effect!("pay.untake", compensation::finish_by_subject(&mut conn, action, id, now).await)?;
            }
            return Ok(Some(attempt).filter(|attempt| attempt.refusal().is_some()));
        }
        if is_ours || tokio::time::Instant::now() >= wait_until {
            return Ok(Some(attempt));
        }
        drop(conn);
        tasks::away(tokio::time::sleep(pause)).await;
        // A channel that hangs has many waiting for it, and others want the connections.
        pause = (pause * 3 / 2).min(LOOK_AT_LEAST_EVERY);
    }
}

fn answer(facts: &Facts, live: &LiveAttempt, pay_url: &str, request: &PayUrlRequest) -> PayUrl {
    PayUrl {
        pay_order_id: live.pay_order_id.clone(),
        order_no: request.order_no.clone(),
        channel: live.channel.clone(),
        pay_url: pay_url.to_owned(),
        amount: facts.order.amount,
        currency: facts.order.currency,
        expires_at: live.expires_at,
    }
}

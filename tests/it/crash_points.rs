//! Death at every crash point: the process dies around each effect that it has, is started again, and what it left is
//! driven to an end within 30 s, without anybody's help. Then the same is asked for once more and comes out right.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};

use crate::support::servers::Broker;
use crate::support::service::{Gone, LIMIT, Shop};
use crate::tidy::effects;

mod metering;
mod money;
mod operating;
mod statements;
mod stories;
mod telling;
use metering::Metering;
use money::Money;
use stories::Story;
use telling::Telling;

/// Every effect of the service, by the story that comes upon it.
const EFFECTS: &[(Story, &[&str])] = &[
    (Story::Buy, &["orders.create", "orders.timer", "pay.begin", "pay.create", "pay.publish", "report.pay"]),
    (Story::Cancel, &["pay.guard", "pay.close", "pay.unguard", "orders.close"]),
    (
        Story::Late,
        &["report.write", "refunds.begin", "refunds.make", "refunds.result", "tasks.finish", "webhooks.keep"],
    ),
    (Story::LateAndSilent, &["refunds.remake"]),
    (Story::Expire, &["orders.claim", "orders.expire", "orders.forget"]),
    (Story::ExpireOnBroker, &["timers.put", "timers.take", "timers.done"]),
    (Story::HopOnBroker, &["timers.hop"]),
    (Story::Silent, &["pay.leave"]),
    (Story::SilentOnce, &["pay.take"]),
    (Story::PaidWhileAskedFor, &["pay.untake"]),
    (Story::Refused, &["pay.refuse"]),
    (Story::DeadLink, &["pay.sweep"]),
    (Story::WaitingTask, &["tasks.claim"]),
    (Story::SlowTask, &["tasks.renew"]),
    (Story::GivenUp, &["tasks.dead"]),
    (Story::Spilled, &["spill.put", "spill.drain", "spill.done"]),
    (Story::LeftAlone, &["tasks.adopt"]),
    (Story::EmptiedRedis, &["orders.rebuild", "orders.intact"]),
    (Story::OldCallback, &["webhooks.forget"]),
    (Story::OldAnswer, &["idempotency.forget"]),
    (Story::OldTask, &["compensation.forget"]),
    (Story::Fold, &["ledger.fold"]),
    (Story::Audit, &["audit.keep"]),
    (Story::KeyOfAnOldOrder, &["orders.keep"]),
    (Story::KeyOfAnOldLink, &["pay.keep"]),
    (Story::Nonsense, &["webhooks.unreadable"]),
    (
        Story::Operator,
        &[
            "merchants.create",
            "merchants.keys",
            "merchants.stock",
            "settlement.rule",
            "settlement.level",
            "lanes.set",
        ],
    ),
    (Story::Money(Money::Settle), &["settlement.settle"]),
    (Story::Money(Money::KeyOfAnOldSettlement), &["settlement.keep"]),
    (
        Story::Money(Money::SettleMany),
        &["settlement.begin_run", "settlement.claim_run", "settlement.batch", "settlement.advance"],
    ),
    (Story::Money(Money::SettleSlowly), &["settlement.renew"]),
    (Story::Replay, &["admin_log.append"]),
    (Story::Decision, &["refunds.resolve"]),
    (
        Story::Money(Money::Withdraw),
        &["withdrawals.create", "withdrawals.begin", "withdrawals.pay", "withdrawals.finish"],
    ),
    (Story::Money(Money::Refund), &["refunds.create", "refunds.succeed"]),
    (Story::Money(Money::RefundAwaitingApproval), &["refunds.decide"]),
    (Story::Money(Money::RefundThatWasNotMade), &["refunds.not_made"]),
    (
        Story::Money(Money::Reconcile),
        &[
            "reconciliation.begin",
            "reconciliation.claim",
            "reconciliation.clear",
            "reconciliation.chunk",
            "reconciliation.move_on",
            "reconciliation.compare",
            "reconciliation.resolve",
            "reconciliation.take_up",
            "reconciliation.decide",
            "reconciliation.end",
        ],
    ),
    (Story::Money(Money::Stumble), &["reconciliation.rest"]),
    (Story::Money(Money::CompensatingCharge), &["reconciliation.charge"]),
    (Story::Money(Money::GiveBackACharge), &["reconciliation.reverse"]),
    (Story::Money(Money::UploadAStatement), &["reconciliation.keep_part"]),
    (Story::Money(Money::ApproveADifference), &["reconciliation.person"]),
    (
        Story::Money(Money::OldStatement),
        &["reconciliation.forget_days", "reconciliation.forget_lines", "reconciliation.forget_files"],
    ),
    (Story::Money(Money::RetryOfADeadTask), &["tasks.revive"]),
    (Story::Money(Money::RetryOfManyTasks), &["tasks.revive_many"]),
    (Story::Money(Money::DeadTaskOfAPaidOrder), &["tasks.settle"]),
    (Story::Money(Money::WithdrawInSilence), &["withdrawals.repay"]),
    (Story::Money(Money::WithdrawalThatCameBack), &["withdrawals.return"]),
    (Story::Money(Money::KeyOfAnOldWithdrawal), &["withdrawals.keep"]),
    (Story::Money(Money::CollectADebt), &["receivables.clear"]),
    (Story::Telling(Telling::Endpoint), &["outbox.route", "outbox.notify", "outbox.record"]),
    (Story::Telling(Telling::Unaddressed), &["outbox.discard"]),
    (Story::Telling(Telling::Broker), &["outbox.publish"]),
    (Story::Telling(Telling::Waiting), &["outbox.claim"]),
    (Story::Telling(Telling::LastTry), &["outbox.record_alone"]),
    (Story::Telling(Telling::OldDelivery), &["outbox.forget", "outbox.forget_rests"]),
    (Story::Telling(Telling::Again), &["outbox.resend"]),
    (Story::Telling(Telling::AllAgain), &["outbox.resend_all"]),
    (Story::Telling(Telling::Url), &["merchants.notify_url"]),
    (Story::Telling(Telling::Secret), &["merchants.notify_secret"]),
    (Story::Metering(Metering::SetProduct), &["usage.product"]),
    (Story::Metering(Metering::Hold), &["usage.take"]),
    (Story::Metering(Metering::ReportOverBroker), &["usage.act"]),
    (Story::Metering(Metering::RefuseOverBroker), &["usage.refuse"]),
    (Story::Metering(Metering::Expire), &["usage.expire"]),
    (Story::Metering(Metering::OldMark), &["usage.forget"]),
];

/// The same effects where they do something else: a death there is another one.
const OTHERWISE: &[(Story, &[&str])] = &[
    // What is given back to the user.
    (Story::Money(Money::WithdrawRefused), &["withdrawals.finish"]),
    // With what is claimed back of a commission.
    (Story::Money(Money::RefundOfASettledOrder), &["refunds.result"]),
    // With what its user pays for it.
    (Story::Money(Money::RefundMadeAfterAll), &["refunds.result"]),
    // By a task that asks once more.
    (Story::Money(Money::ReversalToldInSilence), &["refunds.result"]),
    // With what was taken off the user's balance.
    (Story::Money(Money::RejectionOfATopUpsRefund), &["refunds.decide"]),
    // With what a person was shown of it.
    (Story::Money(Money::WriteADebtOff), &["receivables.clear"]),
];

#[test]
fn every_effect_has_a_story_of_its_death() {
    let told: Vec<&str> = EFFECTS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let told_once: BTreeSet<String> = told.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(told.len(), told_once.len(), "an effect is told twice");
    assert_eq!(told_once, effects::names(), "left: the stories of crash_points.rs; right: effect! in src");
}

/// What one death came to.
struct Death {
    point: String,
    settled_after: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_dead_process_left_in_the_middle_is_driven_to_an_end() {
    assert!(fail::has_failpoints(), "crash points exist wherever tests run");
    let started = Instant::now();
    // Most of a death is waiting for the next try of something.
    let deaths: Vec<Vec<Death>> = stream::iter(EFFECTS.iter().chain(OTHERWISE))
        .map(|(story, names)| die_at_each(*story, names))
        .buffer_unordered(4)
        .collect()
        .await;
    let deaths: Vec<Death> = deaths.into_iter().flatten().collect();
    let slowest = deaths.iter().max_by_key(|death| death.settled_after).expect("deaths");
    println!(
        "{} deaths in {:?}; the slowest to settle was {} with {:?}",
        deaths.len(),
        started.elapsed(),
        slowest.point,
        slowest.settled_after
    );
}

/// What is told at the end of work is told above.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_in_the_middle_of_work_is_heard_by_the_heir_of_whoever_died_with_it() {
    die_at_each(Story::Metering(Metering::ProgressOverBroker), &["usage.act"]).await;
}

async fn die_at_each(story: Story, names: &[&str]) -> Vec<Death> {
    let broker = if story.is_on_broker() { Some(Broker::fresh().await) } else { None };
    let mut vars = broker.as_ref().map(Broker::vars).unwrap_or_default();
    vars.extend(story.vars());
    let shop = Shop::open_with(vars).await;
    let mut deaths = Vec::new();
    for name in names {
        for side in ["before", "after"] {
            let point = format!("{name}.{side}");
            let story_name = format!("{story:?}").replace(['(', ')'], "");
            let number = format!("{story_name}-{}", point.replace('.', "-"));
            let settled_after = die_at(&shop, story, &point, &number).await;
            deaths.push(Death { point, settled_after });
        }
    }
    shop.end().await;
    if let Some(broker) = broker {
        broker.clear().await;
    }
    deaths
}

async fn die_at(shop: &Shop, story: Story, point: &str, number: &str) -> Duration {
    shop.app.gateway.clear_faults().await.expect("no faults");
    story.prepare(shop, number).await;
    let doomed = shop.serve(&format!("{point}=return")).await;
    let told = tokio::time::timeout(LIMIT, story.tell(shop, &doomed, number)).await;
    assert!(told.is_ok(), "{point}: the story hangs");
    doomed.assert_dies_at_its_point(&format!("{point} of {story:?}, told to {told:?}")).await;

    let restarted = Instant::now();
    let heir = shop.serve("").await;
    shop.settle(point).await;
    let settled_after = restarted.elapsed();
    assert!(settled_after < LIMIT, "{point}: {settled_after:?}");
    shop.app.assert_books_balance().await;

    let again = tokio::time::timeout(LIMIT, story.tell(shop, &heir, number)).await;
    assert_eq!(
        again.unwrap_or_else(|_| panic!("{point}: the same again hangs")),
        Ok::<(), Gone>(()),
        "{point}"
    );
    shop.settle(point).await;
    story.assert_end(shop, number).await;
    shop.app.assert_books_balance().await;
    shop.app.assert_books_agree_both_ways().await;
    heir.kill().await;
    settled_after
}

//! Every duty of the process, on one screen.

use std::time::Duration;

use crate::app::App;
use crate::audit;
use crate::channels::sandbox::Gateway;
use crate::compensation::{self, Handover, Lane};
use crate::drive;
use crate::idempotency;
use crate::infra::duty::{Batch, Duty, DutyError};
use crate::infra::telemetry;
use crate::{ledger, operations, orders, outbox, pay, reconciliation, settlement, usage, webhooks};

/// For what is also woken: the poll is only the net.
const SOON: Duration = Duration::from_millis(200);
/// Every commit that appends an event wakes the relay: those of so short a while behind a turn share the next one. The first of
/// them goes at once.
const RELAY_PAUSE: Duration = Duration::from_millis(10);
/// What is filled again shares a turn where many endpoints take what they are told.
const ROOM_PAUSE: Duration = Duration::from_millis(2);
/// For what other instances write.
const SOONER: Duration = Duration::from_millis(100);
/// For what readers add up by themselves until then.
const EVERY_SECOND: Duration = Duration::from_secs(1);
/// For gauges that are looked at by machines.
const NOW_AND_THEN: Duration = Duration::from_secs(10);
/// For what waits for a time of its own, and for gauges of what others found.
const MINUTE: Duration = Duration::from_secs(60);
/// For figures that alerts look at.
const FIVE_SECONDS: Duration = Duration::from_secs(5);
/// For what was left alone, or given up.
const RARELY: Duration = Duration::from_secs(300);
/// For retention.
const HOURLY: Duration = Duration::from_secs(3600);

/// The duties of the role `workers`. Any number of instances may run them side by side.
#[must_use]
pub fn duties(app: &App) -> Vec<Duty> {
    let orders = &app.config.orders;
    let (often, at_times) = (orders.poll_every, orders.sweep_every);
    vec![
        duty(app, "orders.expire", often, |app| async move { orders::expire_due(&app).await }),
        duty(app, "orders.sweep", at_times, |app| async move { orders::sweep_due(&app).await }),
        duty(app, "pay.sweep", at_times, |app| async move { pay::sweep_dead_links(&app).await }),
        duty(app, "compensation.run", SOON, |app| async move { drive::run_due(&app, Lane::Realtime).await })
            .woken_by(app.compensation_wake.clone())
            .woken_after(Handover::PAUSE, app.handover.bell()),
        duty(app, "compensation.sweep", SOON, |app| async move { drive::run_due(&app, Lane::Sweep).await })
            .woken_by(app.sweep_wake.clone()),
        duty(app, "compensation.drain", EVERY_SECOND, |app| async move { drive::drain_spilled(&app).await }),
        duty(
            app,
            "compensation.adopt",
            RARELY,
            |app| async move { operations::sweep_left_alone(&app).await },
        ),
        duty(
            app,
            "compensation.settle",
            RARELY,
            |app| async move { operations::settle_given_up(&app).await },
        ),
        duty(app, "operations.publish", FIVE_SECONDS, |app| async move { operations::publish(&app).await }),
        duty(app, "settlement.run", at_times, |app| async move { settlement::run_due(&app).await })
            .woken_by(app.settlement_wake.clone()),
        duty(app, "outbox.relay", SOONER, |app| async move { app.relay.run_once().await })
            .woken_after(RELAY_PAUSE, app.db.bell().clone())
            .woken_after(ROOM_PAUSE, app.relay.has_room()),
        duty(
            app,
            "outbox.age",
            NOW_AND_THEN,
            |app| async move { outbox::publish_age(&app.db, app.now()).await },
        ),
        duty(app, "outbox.forget", HOURLY, |app| async move { outbox::forget_old(&app.db, app.now()).await }),
        duty(app, "usage.expire", SOON, |app| async move { usage::expire_due(&app).await }),
        duty(app, "usage.consume", SOON, |app| async move { usage::consume(&app).await }),
        duty(app, "ledger.fold", EVERY_SECOND, |app| async move { ledger::fold(&app.db, app.now()).await }),
        duty(app, "usage.forget", HOURLY, |app| async move { usage::forget_old(&app).await }),
        duty(
            app,
            "reconciliation.daily",
            MINUTE,
            |app| async move { reconciliation::begin_daily(&app).await },
        ),
        duty(app, "reconciliation.run", at_times, |app| async move { reconciliation::run_due(&app).await })
            .woken_by(app.reconciliation_wake.clone()),
        duty(app, "reconciliation.act", at_times, |app| async move { reconciliation::act_due(&app).await })
            .woken_by(app.reconciliation_act_wake.clone()),
        duty(app, "reconciliation.publish", MINUTE, |app| async move { reconciliation::publish(&app).await }),
        duty(
            app,
            "reconciliation.forget",
            HOURLY,
            |app| async move { reconciliation::forget_old(&app).await },
        ),
        duty(app, "webhooks.forget", HOURLY, |app| async move { webhooks::forget_old(&app).await }),
        duty(app, "idempotency.forget", HOURLY, |app| async move {
            idempotency::forget_old(&app.db, app.now()).await
        }),
        duty(app, "compensation.forget", HOURLY, |app| async move {
            compensation::forget_old(&app.db, app.now()).await
        }),
        duty(app, "audit.run", MINUTE, |app| async move { audit::run_due(&app.db, &app.clock).await }),
        duty(app, "audit.publish", MINUTE, |app| async move { audit::publish(&app.db).await }),
    ]
}

/// The duties of the role `sandbox`.
#[must_use]
pub fn sandbox_duties(gateway: &Gateway) -> Vec<Duty> {
    let (wake, gateway) = (gateway.wake(), gateway.clone());
    let deliver = move || {
        let gateway = gateway.clone();
        async move {
            let delivered = gateway.deliver_due().await?;
            Ok::<_, DutyError>(if delivered > 0 { Batch::MoreWaiting } else { Batch::Done })
        }
    };
    vec![Duty::new("sandbox.deliver", Duration::from_millis(200), deliver).woken_by(wake)]
}

/// The duties of every process.
#[must_use]
pub fn process_duties(app: &App) -> Vec<Duty> {
    let upkeep = || async {
        if let Some(metrics) = telemetry::metrics() {
            metrics.run_upkeep();
        }
        Ok::<_, DutyError>(Batch::Done)
    };
    vec![
        Duty::new("metrics.upkeep", FIVE_SECONDS, upkeep),
        duty(app, "clock.keep", FIVE_SECONDS, |app| async move {
            app.db.keep_time().await?;
            Ok(Batch::Done)
        }),
    ]
}

fn duty<F>(
    app: &App,
    name: &'static str,
    every: Duration,
    run: impl Fn(App) -> F + Send + Sync + 'static,
) -> Duty
where
    F: Future<Output = Result<Batch, DutyError>> + Send + 'static,
{
    let app = app.clone();
    Duty::new(name, every, move || {
        let (db, work) = (app.db.clone(), run(app.clone()));
        async move {
            db.know_time().await?;
            work.await
        }
    })
}

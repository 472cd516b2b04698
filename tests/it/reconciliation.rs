//! Our books against the channel's: what differs is found, named right, and mended once.

use std::collections::BTreeMap;
use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::Lane;
use serde_json::{Value, json};

use crate::support::service::is_full;
use crate::support::statements::{Line, assert_explained, sandbox_csv};
use crate::support::{Chance, SECRET_KEY, TestApp, TestOptions, until_waiting};

mod after_all;
mod answers;
mod bad_statements;
mod charges;
mod command;
mod days;
mod edges;
mod formats;
mod given_back;
mod given_back_races;
mod interruptions;
mod listed;
mod others;
mod reads;
mod repeats;
mod second_looks;
mod speed;
mod tries;
mod week;
mod withdrawn;
mod written_off;

async fn start(auto: &str) -> TestApp {
    let vars = vec![("RECON_AUTO", auto.to_owned()), ("RECON_DAILY_CAP", "CNY:1000000".to_owned())];
    TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await
}

/// What was done to an order, and how a comparison must see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Fine,
    /// Paid, and nobody was told.
    LostCallback,
    /// The same, and the statement says another amount.
    LostOffByACent,
    /// The same, and the statement says another currency.
    LostInAnotherCurrency,
    /// Closed, then paid, and nobody was told.
    LateAndLost,
    /// Paid twice; of the second time nobody was told.
    TwiceAndLost,
    /// We were told of money that the channel does not have.
    Invented,
    /// The channel has it, and its statement does not.
    Unlisted,
    /// The statement says another amount.
    OffByACent,
    /// The statement has it twice.
    ListedTwice,
    /// Refunded there; the answer was lost.
    LostRefund,
    /// A line of somebody whom nobody knows.
    Foreign,
}

const FATES: [Fate; 12] = [
    Fate::Fine,
    Fate::LostCallback,
    Fate::LostOffByACent,
    Fate::LostInAnotherCurrency,
    Fate::LateAndLost,
    Fate::TwiceAndLost,
    Fate::Invented,
    Fate::Unlisted,
    Fate::OffByACent,
    Fate::ListedTwice,
    Fate::LostRefund,
    Fate::Foreign,
];

impl Fate {
    /// The class, and the state in which the difference ends where nothing may give money back by itself, and where it
    /// may.
    const fn expected(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Self::Fine => None,
            Self::LostCallback => Some(("MISSING_HERE", "APPLIED", "APPLIED")),
            // The channel's own word pays the order; the statement is still to be put right.
            Self::LostOffByACent | Self::LostInAnotherCurrency => {
                Some(("MISSING_HERE", "ESCALATED", "ESCALATED"))
            }
            Self::LateAndLost | Self::TwiceAndLost | Self::Foreign => {
                Some(("MISSING_HERE", "WAITING", "APPLIED"))
            }
            Self::Invented => Some(("MISSING_THERE", "ESCALATED", "ESCALATED")),
            Self::Unlisted => Some(("MISSING_THERE", "RESOLVED", "RESOLVED")),
            Self::OffByACent => Some(("AMOUNT_DIFFERS", "ESCALATED", "ESCALATED")),
            Self::ListedTwice => Some(("DUPLICATE", "ESCALATED", "ESCALATED")),
            Self::LostRefund => Some(("STATUS_DIFFERS", "APPLIED", "APPLIED")),
        }
    }

    /// The classes and states where the same statement is read once more and nothing may give money back by itself: what
    /// is mended is no difference any more, and stays in the list.
    fn expected_again(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::LostOffByACent | Self::LostInAnotherCurrency => {
                vec![("MISSING_HERE", "RESOLVED"), ("AMOUNT_DIFFERS", "ESCALATED")]
            }
            _ => self.expected().into_iter().map(|(class, safe, _)| (class, safe)).collect(),
        }
    }

    /// Makes it so; gives what the difference is about.
    async fn befall(self, app: &TestApp, number: &str) -> String {
        match self {
            Self::LostCallback | Self::LostOffByACent | Self::LostInAnotherCurrency => {
                let order = json!({"order_no": number, "user_id": "u1", "currency": "CNY", "amount": 1990,
                                   "expires_in": 604_800});
                app.order_with(order).await;
                let id = app.pay_url(number).await.expect(200).text_of("pay_order_id").to_owned();
                trade(app.sandbox_pay(&id, json!({"notify": false})).await.expect(200).body)
            }
            Self::LateAndLost => {
                let id = app.order_to_pay(number).await;
                app.close(number).await.expect(200);
                trade(app.sandbox_pay(&id, json!({"force": true, "notify": false})).await.expect(200).body)
            }
            Self::TwiceAndLost => {
                let id = paid(app, number).await.0;
                trade(app.sandbox_pay(&id, json!({"force": true, "notify": false})).await.expect(200).body)
            }
            Self::Invented => {
                let id = app.order_to_pay(number).await;
                let invented = format!("t-{number}");
                let mut callback = app.success(&format!("e-{number}"), &id, &invented, 1990);
                callback["paid_at"] = json!(rfc3339(app.clock.now()));
                app.deliver(&callback).await;
                invented
            }
            Self::LostRefund => {
                paid(app, number).await;
                app.fault(FaultOp::Refund, FaultKind::TimeoutAfter, 1, Some(1)).await;
                let refund = json!({"refund_no": number, "order_no": number, "amount": 990});
                app.post("/refunds", refund).await.expect(201);
                for lane in [Lane::Realtime, Lane::Sweep] {
                    payonce::drive::run_due(&app.instance.app, lane).await.expect("driven");
                }
                let refund_id = app.refund_id(number).await;
                // Its task would ask soon by itself.
                app.sql(
                    "UPDATE compensations SET due_at = due_at + interval '1 h' WHERE action = 'DRIVE_REFUND'",
                )
                .await;
                assert_eq!(app.find_refund(number).await["status"], "PROCESSING");
                refund_id
            }
            Self::Foreign => format!("t-{number}"),
            Self::Fine | Self::Unlisted | Self::OffByACent | Self::ListedTwice => paid(app, number).await.1,
        }
    }

    /// What the statement says of it, in place of the truth.
    fn bend(self, number: &str, subject: &str, lines: &mut Vec<Line>) {
        let place =
            |lines: &[Line]| lines.iter().position(|line| line.channel_id == subject).expect("a line");
        match self {
            Self::Unlisted => drop(lines.remove(place(lines))),
            Self::OffByACent | Self::LostOffByACent => {
                let place = place(lines);
                lines[place].amount -= 1;
            }
            Self::LostInAnotherCurrency => {
                let place = place(lines);
                lines[place].currency = "USD".into();
            }
            Self::ListedTwice => lines.push(lines[place(lines)].clone()),
            Self::Foreign => {
                let like = lines.first().expect("a line").clone();
                let (our_id, channel_id) = (format!("po_{number}"), subject.to_owned());
                lines.push(Line { kind: "PAYMENT".into(), our_id, channel_id, amount: 5, ..like });
            }
            _ => {}
        }
    }
}

fn trade(receipt: Value) -> String {
    receipt["transaction_id"].as_str().expect("a trade").to_owned()
}

fn rfc3339(at: time::OffsetDateTime) -> String {
    at.format(&time::format_description::well_known::Rfc3339).expect("a time")
}

/// An order that is paid and told of: its pay order and its trade.
async fn paid(app: &TestApp, number: &str) -> (String, String) {
    let id = app.order_to_pay(number).await;
    let receipt = app.sandbox_pay(&id, json!({"notify": false})).await.expect(200).body;
    let trade = trade(receipt);
    let mut callback = app.success(&format!("e-{number}"), &id, &trade, 1990);
    callback["paid_at"] = json!(rfc3339(app.clock.now()));
    app.deliver(&callback).await;
    (id, trade)
}

/// Every class once and more, in any order; gives what each difference is about, with its fate.
async fn live_a_day(app: &TestApp, chance: &mut Chance, count: usize) -> BTreeMap<String, (Fate, String)> {
    let mut fates = BTreeMap::new();
    for index in 0..count {
        let fate = FATES.get(index).copied().unwrap_or_else(|| FATES[chance.one_of(FATES.len())]);
        let number = format!("R{index}");
        let subject = fate.befall(app, &number).await;
        fates.insert(subject, (fate, number));
    }
    fates
}

async fn bent_statement(app: &TestApp, day: time::Date, fates: &BTreeMap<String, (Fate, String)>) -> String {
    let mut lines = app.book_lines(day).await;
    for (subject, (fate, number)) in fates {
        fate.bend(number, subject, &mut lines);
    }
    sandbox_csv(day, &lines)
}

fn subject(item: &Value) -> String {
    let name = if item["kind"] == "PAYMENT" { "channel_id" } else { "our_id" };
    item[name].as_str().expect("text").to_owned()
}

/// All of them are found, each is named right and has come to the right end, and none is invented.
#[track_caller]
fn assert_found(items: &[Value], fates: &BTreeMap<String, (Fate, String)>, is_all: bool) {
    assert_are(items, fates, |fate| {
        let end = |(class, safe, all)| (class, if is_all { all } else { safe });
        fate.expected().map(end).into_iter().collect()
    });
}

/// There are these differences and no others.
#[track_caller]
fn assert_are(
    items: &[Value],
    fates: &BTreeMap<String, (Fate, String)>,
    expected: impl Fn(Fate) -> Vec<(&'static str, &'static str)>,
) {
    let text = |item: &Value, name: &str| item[name].as_str().expect("text").to_owned();
    let found = items.iter().map(|item| (subject(item), text(item, "class"), text(item, "status")));
    let mut found: Vec<_> = found.collect();
    let mut wanted = Vec::new();
    for (subject, (fate, _)) in fates {
        let each = expected(*fate).into_iter();
        wanted.extend(each.map(|(class, status)| (subject.clone(), class.to_owned(), status.to_owned())));
    }
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
}

#[tokio::test]
async fn every_difference_is_found_named_right_and_mended_as_far_as_is_safe() {
    let (app, mut chance) = (start("safe").await, Chance::new());
    let day = app.wait_for_ten();
    let fates = live_a_day(&app, &mut chance, 40).await;
    let file = bent_statement(&app, day, &fates).await;
    app.sleep_over();
    let run = app.reconcile_file("sandbox", day, file.as_bytes()).await;
    assert_eq!(run["status"], "DONE", "{run:#}");
    assert_explained(&run);
    assert_found(&app.differences(&run).await, &fates, false);
    for (fate, number) in fates.values() {
        match fate {
            Fate::LostCallback | Fate::LostOffByACent | Fate::LostInAnotherCurrency => {
                assert_eq!(app.status_of(number).await, "PAID");
            }
            Fate::LostRefund => assert_eq!(app.refunded(number).await, ("PARTIALLY_REFUNDED".into(), 990)),
            _ => {}
        }
    }
    // Once more, by the same file: nothing is found a second time, nothing happens a second time.
    let (booked, trades) = (app.count("ledger_transactions").await, app.count("trades").await);
    let anew = app.reconcile_file("sandbox", day, file.as_bytes()).await;
    assert_eq!((&anew["round"], &anew["status"]), (&json!(2), &json!("DONE")));
    assert_explained(&anew);
    assert_are(&app.differences(&anew).await, &fates, Fate::expected_again);
    assert_eq!((app.count("ledger_transactions").await, app.count("trades").await), (booked, trades));
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn what_gives_money_back_goes_by_itself_up_to_the_days_cap() {
    let vars = vec![("RECON_AUTO", "all".to_owned()), ("RECON_DAILY_CAP", "CNY:4000".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let day = app.wait_for_ten();
    for number in ["A", "B", "C", "D"] {
        Fate::LateAndLost.befall(&app, number).await;
    }
    app.sleep_over();
    let run = app.reconcile(day).await;
    let items = app.differences(&run).await;
    let of = |status: &str| items.iter().filter(|item| item["status"] == status).count();
    assert_eq!((of("APPLIED"), of("WAITING")), (2, 2), "twice 1990 are below 4000: {items:#?}");
    let waiting = app.exceptions("status=OPEN").await;
    assert_eq!(waiting.iter().filter(|one| one["kind"] == "RECONCILIATION").count(), 2);
    // A person lets one go, and leaves the other.
    let mut left = items.iter().filter(|item| item["status"] == "WAITING");
    let (first, second) = (left.next().expect("one"), left.next().expect("another"));
    assert_eq!(app.decide(first, "approve").await.expect(200).body["status"], "APPLYING");
    assert_eq!(app.decide(second, "dismiss").await.expect(200).body["status"], "DISMISSED");
    assert_eq!(app.decide(second, "approve").await.problem(409), "DIFFERENCE_NOT_WAITING");
    app.carry_on().await;
    app.run_until_idle().await;
    let strays = app.strays("").await;
    assert_eq!(strays.len(), 3);
    assert!(strays.iter().all(|stray| stray["status"] == "REFUNDED"), "{strays:#?}");
    let logged = "action IN ('reconciliations.approve', 'reconciliations.dismiss', 'reconciliations.begin')";
    assert_eq!(app.count_where("admin_log", logged).await, 3);
    app.end().await;
}

#[tokio::test]
async fn with_auto_off_nothing_is_done_until_a_person_says_so() {
    let app = start("off").await;
    let day = app.wait_for_ten();
    let trade = Fate::LostCallback.befall(&app, "OFF").await;
    Fate::Invented.befall(&app, "SHORT").await;
    app.watch_calls(FaultOp::Query, 1).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    let items = app.differences(&run).await;
    assert_eq!(items.len(), 2);
    assert!(items.iter().all(|item| item["status"] == "WAITING"), "{items:#?}");
    assert_eq!((app.status_of("OFF").await.as_str(), app.calls_of(FaultOp::Query).await), ("PENDING", 0));
    let risk = app.admin_get("/admin/audit").await.expect(200).body["money_at_risk"].clone();
    assert_eq!(risk, json!([{"currency": "CNY", "amount": 2 * 1990}]));

    let long = items.iter().find(|item| item["channel_id"] == json!(trade)).expect("it");
    app.decide(long, "approve").await.expect(200);
    app.carry_on().await;
    assert_eq!(app.status_of("OFF").await, "PAID");
    let timeline = app.admin_get("/admin/orders/OFF/timeline").await.expect(200).body;
    let told =
        timeline["data"].as_array().expect("entries").iter().filter(|entry| entry["kind"] == "DIFFERENCE");
    assert_eq!(told.count(), 2, "{timeline:#}");
    app.end().await;
}

#[tokio::test]
async fn a_channel_that_is_silent_is_asked_again_and_then_a_person() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    Fate::Fine.befall(&app, "FINE").await;
    Fate::Invented.befall(&app, "SILENT").await;
    app.fault(FaultOp::Query, FaultKind::TimeoutBefore, 3, Some(1)).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    let items = app.differences(&run).await;
    assert_eq!((items.len(), &items[0]["status"]), (1, &json!("ESCALATED")));
    let open = app.open_exception().await;
    assert_eq!((&open["kind"], &open["order_no"]), (&json!("RECONCILIATION"), &json!("SILENT")));
    app.resolve(&open, "NONE").await.expect(200);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comparison_that_is_killed_again_and_again_finds_and_mends_everything_once() {
    let (app, mut chance) = (start("all").await, Chance::new());
    let day = app.wait_for_ten();
    let fates = live_a_day(&app, &mut chance, if is_full() { 100 } else { 30 }).await;
    let file = bent_statement(&app, day, &fates).await;
    app.sleep_over();
    let id = app.bring("sandbox", day, file.as_bytes()).await;
    let mut deaths = 0_u32;
    while app.reconciliation(&id).await["status"] != "DONE" {
        for acts in [false, true] {
            let (service, patience) = (app.instance.app.clone(), chance.pause(u64::from(deaths + 1) * 3_000));
            let work = tokio::spawn(async move {
                let work = async {
                    if acts {
                        payonce::reconciliation::act_due(&service).await
                    } else {
                        payonce::reconciliation::run_due(&service).await
                    }
                };
                tokio::time::timeout(patience, work).await.is_err()
            });
            deaths += u32::from(work.await.expect("no panic"));
        }
        // What the dead held is free again.
        app.clock.advance(Duration::from_secs(26));
    }
    println!("{deaths} deaths");
    assert!(deaths > 0, "nobody died");
    let run = app.reconciliation(&id).await;
    assert_explained(&run);
    assert_found(&app.differences(&run).await, &fates, true);
    app.run_until_idle().await;
    let strays = app.strays("").await;
    let stray = [Fate::LateAndLost, Fate::TwiceAndLost, Fate::Foreign];
    assert_eq!(strays.len(), fates.values().filter(|(fate, _)| stray.contains(fate)).count());
    app.end().await;
}

/// The key of a merchant whose orders are compared beside another's.
#[tokio::test]
async fn each_merchants_policy_is_followed_for_what_is_found() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    let holder = app.merchant("holder", "hold").await;
    for (key, number) in [(SECRET_KEY, "GIVES"), (holder.as_str(), "HOLDS")] {
        let id = app.order_to_pay_as(key, number).await;
        app.call(reqwest::Method::POST, &format!("/orders/{number}/close"), key, Some(&json!({})))
            .await
            .expect(200);
        app.sandbox_pay(&id, json!({"force": true, "notify": false})).await.expect(200);
    }
    app.sleep_over();
    app.reconcile(day).await;
    app.run_until_idle().await;
    let strays = app.strays("").await;
    let status =
        |number: &str| strays.iter().find(|one| one["order_no"] == number).expect("it")["status"].clone();
    assert_eq!((status("GIVES"), status("HOLDS")), (json!("REFUNDED"), json!("HELD")));
    app.end().await;
}

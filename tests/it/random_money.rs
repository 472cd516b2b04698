//! Random lives of orders, users and their money, in one shop whose service is killed now and then, between requests and in
//! the middle of them, and whose channel is silent or refuses: after every step every invariant holds, and in the end
//! nothing is in the middle.
//!
//! 120 steps by default, 3,000 with `PAYONCE_FULL=1`, and as many more as it takes until money moved in every way; `SEED=…`
//! plays one again.

use std::collections::BTreeMap;
use std::time::Duration;

use payonce::audit::{self, CheckKind};
use payonce::channels::sandbox::{FaultKind, FaultOp};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::service::{Gone, OPERATOR_OF_PROCESS, Service, Shop, is_full};
use crate::support::{Chance, Reply};

const USERS: [&str; 3] = ["u1", "u2", "u3"];
/// Requests that move money, of each of which some must have died.
const DEADLY: [&str; 3] = ["/refunds", "/settlements", "/withdrawals"];
/// Ways in which money must have moved.
const MOVED: &str = "SELECT (SELECT count(*) FROM refund_history WHERE to_status = 'SUCCEEDED'),
                            (SELECT count(*) FROM refund_history WHERE from_status = 'SUCCEEDED'),
                            (SELECT count(*) FROM withdrawals WHERE status = 'SUCCEEDED'),
                            (SELECT count(*) FROM settlements WHERE commission > 0)";

/// What a step does. Weights: the more often a step stands in [`STEPS`], the more often it is taken.
#[derive(Clone, Copy, Debug)]
enum Step {
    Sell,
    TopUp,
    Settle,
    SettleAll,
    Refund,
    TakeRefundBack,
    Withdraw,
    ClearADebt,
    Misbehave,
    Kill,
}

const STEPS: [Step; 17] = [
    Step::Sell,
    Step::Sell,
    Step::Sell,
    Step::TopUp,
    Step::TopUp,
    Step::Settle,
    Step::Settle,
    Step::SettleAll,
    Step::Refund,
    Step::Refund,
    Step::Refund,
    Step::TakeRefundBack,
    Step::Withdraw,
    Step::Withdraw,
    Step::ClearADebt,
    Step::Misbehave,
    Step::Kill,
];

struct World {
    shop: Shop,
    service: Option<Service>,
    chance: Chance,
    /// Numbers given so far.
    numbers: usize,
    /// Orders that were paid, with the attempt that did.
    paid: Vec<(String, String)>,
    refunds: usize,
    /// Requests whose process was killed before they were answered, by path.
    deaths: BTreeMap<String, usize>,
}

impl World {
    async fn open() -> Self {
        let shop = Shop::open().await;
        shop.app.rebate_rule(None, "0.07").await;
        shop.app.user_level("u2", "1.3").await;
        let service = Some(shop.serve("").await);
        let (chance, deaths) = (Chance::new(), BTreeMap::new());
        Self { shop, service, chance, numbers: 0, paid: Vec::new(), refunds: 0, deaths }
    }

    fn number(&mut self, prefix: &str) -> String {
        self.numbers += 1;
        format!("{prefix}{}", self.numbers)
    }

    fn amount(&mut self, most: i64) -> i64 {
        1 + i64::from(self.chance.number()) % most
    }

    fn user(&mut self) -> &'static str {
        USERS[self.chance.one_of(USERS.len())]
    }

    /// Asks, and asks the same again of the next process when this one died, which it does in the middle of some requests.
    async fn ask(&mut self, path: &str, token: &str, body: &Value) -> Reply {
        let (is_doomed, pause) = (self.chance.one_of(4) == 0, self.chance.pause(8_000));
        let is_awaited = DEADLY.contains(&path) && !self.deaths.contains_key(path);
        let mut doom = (is_doomed || is_awaited).then_some(pause);
        loop {
            let service = self.service.as_ref().expect("a service");
            let asked = service.ask(Method::POST, path, token, Some(body));
            let (answer, is_struck) = strike_within(service, doom.take(), asked).await;
            if is_struck || answer.is_err() {
                self.restart().await;
            }
            match answer {
                Ok(reply) => return reply,
                Err(Gone) => *self.deaths.entry(path.to_owned()).or_default() += 1,
            }
        }
    }

    async fn post(&mut self, path: &str, body: &Value) -> Reply {
        self.ask(path, crate::support::SECRET_KEY, body).await
    }

    async fn restart(&mut self) {
        if let Some(service) = self.service.take().filter(|service| !service.is_dead()) {
            service.kill().await;
        }
        self.service = Some(self.shop.serve("").await);
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Sell => self.pay("SALE").await,
            Step::TopUp => self.pay("TOPUP").await,
            Step::Settle => {
                let Some((order_no, _)) = self.some_order() else { return };
                let settled = self.post("/settlements", &json!({"order_no": order_no})).await;
                assert!(matches!(settled.status, 200 | 201 | 409), "{}", settled.text);
            }
            Step::SettleAll => {
                let body = json!({"older_than_days": 0, "reason": "the story wants it"});
                let begun = self.ask("/admin/settlements/run", OPERATOR_OF_PROCESS, &body).await;
                assert!(matches!(begun.status, 200 | 201), "{}", begun.text);
            }
            Step::Refund => self.refund().await,
            Step::TakeRefundBack => self.take_refund_back().await,
            Step::Withdraw => {
                let (number, user, amount) = (self.number("W"), self.user(), self.amount(900));
                let body = json!({"withdrawal_no": number, "user_id": user, "amount": amount, "currency": "CNY",
                                  "channel": "sandbox", "account": "a"});
                let made = self.post("/withdrawals", &body).await;
                assert!(made.status < 202 || made.body["code"] == "INSUFFICIENT_BALANCE", "{}", made.text);
            }
            Step::ClearADebt => self.clear_a_debt().await,
            Step::Misbehave => {
                let op = [FaultOp::Refund, FaultOp::Payout][self.chance.one_of(2)];
                let faults = [FaultKind::TimeoutBefore, FaultKind::TimeoutAfter, FaultKind::Refuse];
                let fault = faults[self.chance.one_of(3)];
                let ms = (!matches!(fault, FaultKind::Refuse)).then_some(1_000);
                self.shop.app.fault(op, fault, 1, ms).await;
            }
            Step::Kill => self.restart().await,
        }
    }

    fn some_order(&mut self) -> Option<(String, String)> {
        let count = self.paid.len();
        (count > 0).then(|| self.paid[self.chance.one_of(count)].clone())
    }

    async fn pay(&mut self, kind: &str) {
        let (number, user, amount) = (self.number("O"), self.user(), self.amount(2_000));
        let order =
            json!({"order_no": number, "user_id": user, "currency": "CNY", "amount": amount, "kind": kind});
        let made = self.post("/orders", &order).await;
        assert!(made.status < 202, "{}", made.text);
        let link = json!({"order_no": number, "payer_id": user, "channel": "sandbox"});
        let asked = self.post("/pay/url", &link).await.expect(200);
        let attempt = asked.text_of("pay_order_id").to_owned();
        self.shop.app.sandbox_pay(&attempt, json!({})).await.expect(200);
        self.paid.push((number, attempt));
    }

    async fn refund(&mut self) {
        let Some((order_no, _)) = self.some_order() else { return };
        self.refunds += 1;
        let (number, amount) = (format!("R{}", self.refunds), self.amount(1_200));
        let body = json!({"refund_no": number, "order_no": order_no, "amount": amount});
        let asked = self.post("/refunds", &body).await;
        let refused = ["REFUND_EXCEEDS_PAID", "INSUFFICIENT_BALANCE", "ORDER_NOT_PAID"];
        let code = asked.body["code"].as_str().unwrap_or_default();
        assert!(asked.status < 202 || refused.contains(&code), "{}", asked.text);
    }

    /// The channel says that a refund which it had made has come back.
    async fn take_refund_back(&mut self) {
        let made = "SELECT refund_id, pay_order_id, amount FROM refunds WHERE status = 'SUCCEEDED' ORDER BY refund_id";
        let made: Vec<(String, String, i64)> =
            sqlx::query_as(made).fetch_all(self.shop.app.instance.app.db.pool()).await.expect("refunds");
        if made.is_empty() {
            return;
        }
        let (refund_id, attempt, amount) = &made[self.chance.one_of(made.len())];
        let event = self.number("e");
        self.shop.app.take_refund_back(&event, refund_id, attempt, *amount).await;
    }

    /// An operator collects or writes off what a user owes, or a part of it.
    async fn clear_a_debt(&mut self) {
        let how = ["collect", "write-off"][self.chance.one_of(2)];
        let (number, user, part) = (self.number("C"), self.user(), self.amount(60));
        let amount = (self.chance.one_of(2) == 0).then_some(part);
        let body = json!({"merchant_id": "demo", "user_id": user, "currency": "CNY", "clearing_no": number,
                          "amount": amount, "reason": "the story wants it"});
        let asked = self.ask(&format!("/admin/receivables/{how}"), OPERATOR_OF_PROCESS, &body).await;
        let refused = ["NOTHING_OWED", "AMOUNT_EXCEEDS_OWED", "INSUFFICIENT_BALANCE"];
        let code = asked.body["code"].as_str().unwrap_or_default();
        assert!(asked.status < 202 || refused.contains(&code), "{}", asked.text);
    }

    /// How many refunds were made, how many taken back, and how many withdrawals and commissions there are.
    async fn moved(&self) -> [i64; 4] {
        let pool = self.shop.app.instance.app.db.pool();
        let (made, taken_back, withdrawn, settled) =
            sqlx::query_as(MOVED).fetch_one(pool).await.expect("figures");
        [made, taken_back, withdrawn, settled]
    }

    /// What must hold at every moment does.
    async fn look(&self, what: &str) {
        let app = &self.shop.app.instance.app;
        let report = audit::audit(&app.db, app.now()).await.expect("an audit");
        let broken: Vec<_> = report
            .checks
            .iter()
            .filter(|check| check.kind == CheckKind::Always && check.violations > 0)
            .collect();
        assert!(
            broken.is_empty() && report.failed.is_empty(),
            "after {what}: {broken:#?}, {:#?}",
            report.failed
        );
    }
}

/// Kills the service after that pause, where the answer is not here before; gives what came, and whether it was killed.
async fn strike_within<T>(
    service: &Service,
    pause: Option<Duration>,
    asked: impl Future<Output = T>,
) -> (T, bool) {
    let Some(pause) = pause else { return (asked.await, false) };
    let mut asked = std::pin::pin!(asked);
    tokio::select! {
        biased;
        answer = &mut asked => (answer, false),
        () = sleep(pause) => {
            service.strike();
            (asked.await, true)
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_becomes_of_money_the_books_are_right_after_every_step() {
    let mut world = World::open().await;
    let steps = if is_full() { 3_000 } else { 120 };
    let mut told = Vec::new();
    while told.len() < steps || world.moved().await.contains(&0) {
        assert!(told.len() < 4 * steps, "some money never moves: {:?}", world.moved().await);
        let step = STEPS[world.chance.one_of(STEPS.len())];
        told.push(step);
        world.take(step).await;
        let last = &told[told.len().saturating_sub(5)..];
        world.look(&format!("{} steps, the last {last:?}", told.len())).await;
    }
    world.shop.app.gateway.clear_faults().await.expect("no faults");
    world.shop.settle("all of it").await;
    world.shop.app.assert_books_balance().await;
    if let Some(service) = world.service.take() {
        service.kill().await;
    }
    let [made, taken_back, withdrawn, settled] = world.moved().await;
    println!(
        "{} orders, {} refunds, {} numbers in {} steps; {made} refunds made, {taken_back} taken back, {withdrawn} withdrawals, \
         {settled} commissions; died with {:?}",
        world.paid.len(),
        world.refunds,
        world.numbers,
        told.len(),
        world.deaths
    );
    for path in DEADLY {
        assert!(world.deaths.contains_key(path), "none died with POST {path}");
    }
    world.shop.app.end().await;
}

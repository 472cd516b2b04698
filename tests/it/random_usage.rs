//! Random lives of holds against a simple reference of the billing rules: every answer and every balance is what the
//! reference says, whatever is repeated, comes late or runs out, and every invariant holds.
//!
//! 400 steps by default, 10,000 with `PAYONCE_FULL=1`; `SEED=…` plays one again.

use std::collections::BTreeMap;

use payonce::usage;
use serde_json::{Value, json};

use crate::support::metering::hold_with;
use crate::support::service::is_full;
use crate::support::{Chance, Reply, TestApp, seconds};

const USERS: [&str; 3] = ["u1", "u2", "u3"];
/// Prices in hundredths of a minor unit, and what they are for.
const PRODUCTS: [(&str, &str, i64, Option<i64>); 4] = [
    ("tokens", "PER_UNIT", 37, None),
    ("metered", "PER_UNIT", 150, Some(900)),
    ("calls", "PER_CALL", 1_250, Some(25)),
    ("monthly", "PER_CYCLE", 30_000, Some(1_500)),
];

/// A hold as the reference has it.
#[derive(Clone, Debug)]
struct Hold {
    id: String,
    key: String,
    user: &'static str,
    product: usize,
    estimate: i64,
    reported: Option<i64>,
    heard: BTreeMap<String, i64>,
    counted: i64,
    status: &'static str,
    held: i64,
    charged: i64,
    expires_at: i64,
}

/// The rules, as simply as they can be told.
#[derive(Debug, Default)]
struct Reference {
    now: i64,
    available: BTreeMap<&'static str, i64>,
    owed: BTreeMap<&'static str, i64>,
    used: BTreeMap<(&'static str, usize), i64>,
    paid: BTreeMap<(&'static str, usize), bool>,
    holds: Vec<Hold>,
}

fn ceil(hundredths: i64) -> i64 {
    (hundredths + 99) / 100
}

fn half_up(hundredths: i64) -> i64 {
    (hundredths + 50) / 100
}

/// Hundredths of minor units for so many units.
fn cost(product: usize, units: i64) -> i64 {
    let (_, pricing, price, _) = PRODUCTS[product];
    match pricing {
        "PER_UNIT" => price * units,
        "PER_CALL" => price * units.min(1),
        _ => 0,
    }
}

fn count(product: usize, units: i64) -> i64 {
    match PRODUCTS[product] {
        (.., None) => 0,
        (_, "PER_CALL", ..) => units.min(1),
        _ => units,
    }
}

type Answer = Result<(), &'static str>;

impl Reference {
    fn take(&mut self, key: &str, user: &'static str, product: usize, estimate: i64, life: i64) -> Answer {
        if let Some(known) =
            self.holds.iter().find(|h| (h.key.as_str(), h.user, h.product) == (key, user, product))
        {
            return if known.estimate == estimate { Ok(()) } else { Err("USAGE_KEY_REUSED") };
        }
        let (_, pricing, price, quota) = PRODUCTS[product];
        let wanted = if pricing == "PER_UNIT" { estimate } else { estimate.max(1) };
        let (amount, counted) = (ceil(cost(product, wanted)), count(product, wanted));
        let used = self.used.entry((user, product)).or_default();
        if quota.is_some_and(|quota| counted > 0 && *used + counted > quota) {
            return Err("QUOTA_EXCEEDED");
        }
        let is_paid = self.paid.get(&(user, product)).copied().unwrap_or(false);
        let fee = if pricing == "PER_CYCLE" && !is_paid { half_up(price) } else { 0 };
        let available = self.available.get_mut(user).expect("a user");
        if amount + fee > *available {
            return Err("INSUFFICIENT_BALANCE");
        }
        *available -= amount + fee;
        *used += counted;
        if pricing == "PER_CYCLE" {
            self.paid.insert((user, product), true);
        }
        self.holds.push(Hold {
            id: String::new(),
            key: key.to_owned(),
            user,
            product,
            estimate,
            reported: None,
            heard: BTreeMap::new(),
            counted,
            status: "HELD",
            held: amount,
            charged: fee,
            expires_at: self.now + life,
        });
        Ok(())
    }

    fn report(&mut self, index: usize, message: &str, units: i64) -> Answer {
        let hold = &mut self.holds[index];
        if let Some(said) = hold.heard.get(message) {
            if *said != units {
                return Err("USAGE_MESSAGE_REUSED");
            }
            if hold.status != "HELD" {
                return Ok(());
            }
            // It is heard again: what could not be set aside then may be now.
        } else if hold.status != "HELD" {
            return Err("HOLD_CLOSED");
        }
        hold.heard.insert(message.to_owned(), units);
        let reported = hold.reported.unwrap_or(0).max(units);
        hold.reported = Some(reported);
        let used = self.used.entry((hold.user, hold.product)).or_default();
        let more = (count(hold.product, reported) - hold.counted).max(0);
        let has_room = more == 0 || PRODUCTS[hold.product].3.is_none_or(|quota| *used + more <= quota);
        if has_room {
            *used += more;
            hold.counted += more;
        }
        let dearer = (ceil(cost(hold.product, reported)) - hold.held).max(0);
        let available = self.available.get_mut(hold.user).expect("a user");
        let is_covered = dearer <= *available;
        if is_covered {
            *available -= dearer;
            hold.held += dearer;
        }
        match (has_room, is_covered) {
            (false, _) => Err("QUOTA_EXCEEDED"),
            (true, false) => Err("INSUFFICIENT_BALANCE"),
            (true, true) => Ok(()),
        }
    }

    fn confirm(&mut self, index: usize, units: Option<i64>) -> Answer {
        let hold = &mut self.holds[index];
        match hold.status {
            "CONFIRMED" if units.is_none() || units == hold.reported => return Ok(()),
            "CONFIRMED" | "RELEASED" => return Err("HOLD_CLOSED"),
            _ => {}
        }
        let one = (PRODUCTS[hold.product].1 != "PER_UNIT").then_some(1);
        let Some(used) = units.or(hold.reported).or(one) else { return Err("VALIDATION_FAILED") };
        if hold.reported.is_some_and(|reported| used < reported) {
            return Err("UNITS_SHRINK");
        }
        let due = half_up(cost(hold.product, used));
        let available = self.available.get_mut(hold.user).expect("a user");
        *available += hold.held;
        let taken = due.min(*available);
        *available -= taken;
        *self.owed.entry(hold.user).or_default() += due - taken;
        *self.used.entry((hold.user, hold.product)).or_default() += count(hold.product, used) - hold.counted;
        hold.counted = count(hold.product, used);
        hold.reported = Some(used);
        hold.charged += taken;
        hold.held = 0;
        hold.status = "CONFIRMED";
        Ok(())
    }

    fn free(&mut self, index: usize, status: &'static str) {
        let hold = &mut self.holds[index];
        *self.available.get_mut(hold.user).expect("a user") += hold.held;
        *self.used.entry((hold.user, hold.product)).or_default() -= hold.counted;
        (hold.held, hold.counted, hold.status) = (0, 0, status);
    }

    fn release(&mut self, index: usize) -> Answer {
        match self.holds[index].status {
            "HELD" => self.free(index, "RELEASED"),
            "RELEASED" => {}
            _ => return Err("HOLD_CLOSED"),
        }
        Ok(())
    }
}

struct World {
    app: TestApp,
    chance: Chance,
    reference: Reference,
    numbers: usize,
}

impl World {
    async fn open() -> Self {
        let app = TestApp::start().await;
        let mut reference = Reference::default();
        for user in USERS {
            app.top_up(&format!("T-{user}"), user, 3_000).await;
            reference.available.insert(user, 3_000);
        }
        for (product_code, pricing, price, cycle_quota) in PRODUCTS {
            let unit_price = format!("{}.{:02}", price / 100, price % 100);
            let more = json!({"product_code": product_code, "pricing": pricing, "cycle_quota": cycle_quota});
            app.tokens_with(&unit_price, more).await.expect(200);
        }
        Self { app, chance: Chance::new(), reference, numbers: 0 }
    }

    fn up_to(&mut self, most: i64) -> i64 {
        i64::from(self.chance.number()) % (most + 1)
    }

    fn some_hold(&mut self) -> Option<usize> {
        let count = self.reference.holds.len();
        // The newest most of the time.
        let among = if self.chance.one_of(4) == 0 { count } else { count.min(6) };
        (count > 0).then(|| count - 1 - self.chance.one_of(among))
    }

    async fn step(&mut self) -> String {
        match self.chance.one_of(12) {
            0..=2 => self.take().await,
            3..=6 => self.report().await,
            7 | 8 => self.confirm().await,
            9 => self.release().await,
            10 => self.wait().await,
            _ => self.top_up().await,
        }
    }

    async fn take(&mut self) -> String {
        let (user, product) = (USERS[self.chance.one_of(3)], self.chance.one_of(PRODUCTS.len()));
        // Now and then the key of an earlier one, with the same estimate or another.
        let again = self.some_hold().filter(|_| self.chance.one_of(4) == 0);
        let (key, user, product, mut estimate) = match again {
            Some(index) => {
                let known = self.reference.holds[index].clone();
                (known.key, known.user, known.product, known.estimate)
            }
            None => {
                self.numbers += 1;
                (format!("k{}", self.numbers), user, product, self.up_to(600))
            }
        };
        if again.is_some() && self.chance.one_of(3) == 0 {
            estimate += 1;
        }
        let life = 30 + self.up_to(300);
        let more = json!({"product_code": PRODUCTS[product].0, "cycle": "c", "expires_in": life});
        let before = self.reference.holds.len();
        let expected = self.reference.take(&key, user, product, estimate, life);
        let got = self.app.post("/usage/holds", hold_with(&key, user, estimate, more)).await;
        self.assert_same(expected, &got);
        if self.reference.holds.len() > before {
            let id = got.expect(201).text_of("hold_id").to_owned();
            self.reference.holds.last_mut().expect("the new one").id = id;
        }
        format!("take {key} {estimate}")
    }

    async fn report(&mut self) -> String {
        let Some(index) = self.some_hold() else { return "nothing".to_owned() };
        let (message, units) = (format!("m{}", self.chance.one_of(8)), self.up_to(700));
        let said = self.reference.holds[index].heard.get(&message).copied();
        // A message says the same again most of the time.
        let units = said.filter(|_| self.chance.one_of(5) > 0).unwrap_or(units);
        let expected = self.reference.report(index, &message, units);
        let id = self.reference.holds[index].id.clone();
        let got = self.app.report(&id, &message, units).await;
        self.assert_same(expected, &got);
        format!("report {id} {message} {units}")
    }

    async fn confirm(&mut self) -> String {
        let Some(index) = self.some_hold() else { return "nothing".to_owned() };
        let units = if self.chance.one_of(2) == 0 { None } else { Some(self.up_to(900)) };
        let expected = self.reference.confirm(index, units);
        let id = self.reference.holds[index].id.clone();
        let got = self.app.confirm(&id, units).await;
        self.assert_same(expected, &got);
        format!("confirm {id} {units:?}")
    }

    async fn release(&mut self) -> String {
        let Some(index) = self.some_hold() else { return "nothing".to_owned() };
        let expected = self.reference.release(index);
        let id = self.reference.holds[index].id.clone();
        let got = self.app.release(&id).await;
        self.assert_same(expected, &got);
        format!("release {id}")
    }

    async fn wait(&mut self) -> String {
        let pause = self.up_to(60);
        self.app.clock.advance(seconds(pause.unsigned_abs()));
        self.reference.now += pause;
        usage::expire_due(&self.app.instance.app).await.expect("a batch");
        let expired = self.expired().await;
        self.reference.expire(&expired);
        format!("wait {pause}")
    }

    async fn expired(&self) -> Vec<String> {
        let rows =
            sqlx::query_scalar("SELECT hold_id FROM usage_holds WHERE status = 'EXPIRED' ORDER BY hold_id");
        rows.fetch_all(self.app.instance.app.db.pool()).await.expect("rows")
    }

    async fn top_up(&mut self) -> String {
        self.numbers += 1;
        let (number, user, amount) =
            (format!("T{}", self.numbers), USERS[self.chance.one_of(3)], 1 + self.up_to(600));
        let attempt = self.app.top_up_to_pay(&number, user, amount).await;
        let trade = self.app.sandbox_pay(&attempt, json!({})).await.expect(200);
        let paid =
            self.app.success(&format!("e-{number}"), &attempt, trade.text_of("transaction_id"), amount);
        self.app.webhook(&paid).await.expect(200);
        *self.reference.available.get_mut(user).expect("a user") += amount;
        format!("top up {user} by {amount}")
    }

    #[track_caller]
    fn assert_same(&self, expected: Answer, got: &Reply) {
        match expected {
            Ok(()) => assert!(got.status < 202, "expected to be done: {}", got.text),
            Err(code) => assert_eq!(got.body["code"], code, "{}", got.text),
        }
    }

    /// Every balance and every hold is what the reference says.
    async fn compare(&self, told: &[String]) {
        for user in USERS {
            let held: i64 = self.reference.holds.iter().filter(|h| h.user == user).map(|h| h.held).sum();
            let owed = self.reference.owed.get(user).copied().unwrap_or(0);
            let expected = vec![("CNY".to_owned(), self.reference.available[user], held, owed)];
            assert_eq!(self.app.balances_of(user).await, expected, "{user} after {told:?}");
        }
        for hold in self.reference.holds.iter().rev().take(8) {
            let found: Value = self.app.find_hold(&hold.id).await;
            let standing = (&found["status"], &found["held"], &found["charged"], &found["units"]);
            let expected =
                (&json!(hold.status), &json!(hold.held), &json!(hold.charged), &json!(hold.reported));
            assert_eq!(standing, expected, "{} after {told:?}", hold.id);
        }
    }
}

impl Reference {
    /// What ran out, as the service says, whose clock runs on while it works: all that was due, and nothing else.
    fn expire(&mut self, ids: &[String]) {
        for index in 0..self.holds.len() {
            let Hold { status, expires_at, id, .. } = &self.holds[index];
            let (is_held, has_run_out, left) = (*status == "HELD", ids.contains(id), expires_at - self.now);
            assert!(!is_held || has_run_out || left > 0, "{id} is still there");
            if is_held && has_run_out {
                assert!(left <= 60 * if is_full() { 60 } else { 1 }, "{id} ran out too early");
                self.free(index, "EXPIRED");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_becomes_of_usage_is_what_the_rules_say() {
    let mut world = World::open().await;
    let steps = if is_full() { 10_000 } else { 400 };
    let mut told = Vec::new();
    for number in 1..=steps {
        told.push(world.step().await);
        if number % 5 == 0 {
            world.compare(&told[told.len().saturating_sub(8)..]).await;
        }
        if number % 50 == 0 {
            world.app.assert_books_balance().await;
        }
    }
    println!("{} holds in {steps} steps", world.reference.holds.len());
    world.app.run_until_idle().await;
    world.app.end().await;
}

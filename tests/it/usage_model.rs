//! Any life of holds against a simple model of the rules of billing: every answer, every balance and every hold is what
//! the rules say, whatever is repeated, comes late or runs out, and every invariant holds. What fails is cut down to the
//! few deeds that it takes.
//!
//! 30 lives by default, 1,000 with `PAYONCE_FULL=1`, and as many again until each answer that tells something was given;
//! `SEED=…` plays them again.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use payonce::usage;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proptest_state_machine::ReferenceStateMachine;
use serde_json::{Value, json};

use crate::support::service::is_full;
use crate::support::{Chance, Reply, TestApp, seconds};

mod rules;

use rules::{Answer, BEGINNING, Books, Deed, Hold, PRODUCTS, USERS};

/// Deeds of a life at most.
const DEEDS: usize = 60;
/// So often are lives begun anew, where something telling was in none of them.
const ROUNDS: usize = 20;
/// Lives and pauses are multiples of so many seconds, and a story is told in less: the service's clock, which runs on
/// while it works, and the model's agree on what has run out.
const STRIDE: i64 = 1_000;

impl ReferenceStateMachine for Books {
    type State = Self;
    type Transition = Deed;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(books: &Self) -> BoxedStrategy<Deed> {
        let key = books.holds.len();
        let take = (0..USERS, 0..PRODUCTS.len(), 0..=600_i64, 1..=4_i64).prop_map(
            move |(user, product, estimate, strides)| Deed::Take {
                key,
                user,
                product,
                estimate,
                life: strides * STRIDE,
            },
        );
        let wait = (0..=2_i64).prop_map(|strides| Deed::Wait { seconds: strides * STRIDE });
        let quota = prop_oneof![Just(None), (0..=1_500_i64).prop_map(Some)];
        let set_quota =
            (0..PRODUCTS.len(), quota).prop_map(|(product, quota)| Deed::SetQuota { product, quota });
        match key {
            0 => prop_oneof![6 => take, 1 => wait, 1 => of_a_user(books), 1 => set_quota].boxed(),
            _ => prop_oneof![
                5 => take,
                11 => of_a_hold(key),
                3 => of_a_message(books),
                2 => of_a_user(books),
                2 => wait,
                1 => set_quota,
            ]
            .boxed(),
        }
    }

    fn apply(books: Self, deed: &Deed) -> Self {
        books.after(deed)
    }

    fn preconditions(books: &Self, deed: &Deed) -> bool {
        books.has(deed)
    }
}

/// The living holds whose last report was not covered.
fn dry(books: &Books) -> impl Iterator<Item = (usize, &Hold)> {
    books.holds.iter().enumerate().filter(|(_, hold)| hold.is_dry && hold.status == "HELD")
}

/// Somebody has more: who lacks something, and plenty, where there is one.
fn of_a_user(books: &Books) -> BoxedStrategy<Deed> {
    let lacking: Vec<_> = dry(books).map(|(_, hold)| hold.user).collect();
    let (users, most) = if lacking.is_empty() { ((0..USERS).collect(), 600_i64) } else { (lacking, 1_500) };
    (select(users), 1..=most).prop_map(|(user, amount)| Deed::TopUp { user, amount }).boxed()
}

/// Says once more what was not covered, where there is something.
fn of_a_message(books: &Books) -> BoxedStrategy<Deed> {
    let messages = |(index, hold): (usize, &Hold)| {
        hold.heard.keys().map(|message| (index, *message)).collect::<Vec<_>>()
    };
    let mut said: Vec<_> = dry(books).flat_map(messages).collect();
    if said.is_empty() {
        said = books.holds.iter().enumerate().flat_map(messages).collect();
    }
    if said.is_empty() {
        // Nothing was said yet, so nothing comes of it.
        said.push((0, 0));
    }
    select(said).prop_map(|(hold, message)| Deed::ReportAgain { hold, message }).boxed()
}

/// What is done with one of so many holds: the newest most of the time.
fn of_a_hold(count: usize) -> BoxedStrategy<Deed> {
    let hold = || prop_oneof![3 => count.saturating_sub(6)..count, 1 => 0..count];
    let units = || prop_oneof![1 => Just(0), 6 => 0..=900_i64];
    prop_oneof![
        2 => (hold(), prop_oneof![2 => Just(0), 1 => Just(1)])
            .prop_map(|(hold, more)| Deed::TakeAgain { hold, more }),
        4 => (hold(), 0..8_u8, units()).prop_map(|(hold, message, units)| Deed::Report { hold, message, units }),
        4 => (hold(), proptest::option::of(units())).prop_map(|(hold, units)| Deed::Confirm { hold, units }),
        1 => hold().prop_map(|hold| Deed::Release { hold }),
    ]
    .boxed()
}

/// One life at the service: users and products of its own.
struct Life<'a> {
    app: &'a TestApp,
    number: usize,
    top_ups: usize,
    /// Ids of the model's holds.
    ids: Vec<String>,
}

impl<'a> Life<'a> {
    async fn begin(app: &'a TestApp, number: usize) -> Self {
        let mut life = Self { app, number, top_ups: 0, ids: Vec::new() };
        for user in 0..USERS {
            life.top_up(user, BEGINNING).await;
        }
        for (product, (.., quota)) in PRODUCTS.iter().enumerate() {
            life.set_product(product, *quota).await;
        }
        life
    }

    fn user(&self, user: usize) -> String {
        format!("u{}-{user}", self.number)
    }

    fn product(&self, product: usize) -> String {
        format!("{}-{}", PRODUCTS[product].0, self.number)
    }

    async fn top_up(&mut self, user: usize, amount: i64) {
        self.top_ups += 1;
        let (app, number) = (self.app, format!("T{}-{}", self.number, self.top_ups));
        let attempt = app.top_up_to_pay(&number, &self.user(user), amount).await;
        let trade = app.sandbox_pay(&attempt, json!({"notify": false})).await.expect(200);
        let paid = app.success(&format!("e-{number}"), &attempt, trade.text_of("transaction_id"), amount);
        app.webhook(&paid).await.expect(200);
    }

    async fn set_product(&self, product: usize, quota: Option<i64>) {
        let (_, pricing, price, _) = PRODUCTS[product];
        let unit_price = format!("{}.{:02}", price / 100, price % 100);
        let more = json!({"product_code": self.product(product), "pricing": pricing, "cycle_quota": quota});
        self.app.tokens_with(&unit_price, more).await.expect(200);
    }

    /// Does it, and hears what the model says.
    async fn act(&mut self, deed: &Deed, books: &Books) {
        let app = self.app;
        let answer = match *deed {
            Deed::Take { key, user, product, estimate, life } => {
                let took = self.take(key, user, product, estimate, life).await;
                if books.holds.len() > self.ids.len() {
                    self.ids.push(took.expect(201).text_of("hold_id").to_owned());
                    return;
                }
                took
            }
            Deed::TakeAgain { hold, more } => {
                let Hold { key, user, product, estimate, .. } = books.holds[hold];
                self.take(key, user, product, estimate + more, STRIDE).await
            }
            Deed::Report { hold, message, units } => {
                app.report(&self.ids[hold], &format!("m{message}"), units).await
            }
            Deed::ReportAgain { hold, message } => {
                app.report(&self.ids[hold], &format!("m{message}"), books.holds[hold].heard[&message]).await
            }
            Deed::Confirm { hold, units } => app.confirm(&self.ids[hold], units).await,
            Deed::Release { hold } => app.release(&self.ids[hold]).await,
            Deed::Wait { seconds: pause } => {
                app.clock.advance(seconds(pause.unsigned_abs()));
                usage::expire_due(&app.instance.app).await.expect("a run");
                return;
            }
            Deed::TopUp { user, amount } => return self.top_up(user, amount).await,
            Deed::SetQuota { product, quota } => return self.set_product(product, quota).await,
        };
        assert_answer(books.answer, &answer);
    }

    async fn take(&self, key: usize, user: usize, product: usize, estimate: i64, life: i64) -> Reply {
        let body = json!({
            "request_id": "r", "user_id": self.user(user), "product_code": self.product(product),
            "idempotency_key": format!("k{key}"), "currency": "CNY", "estimated_units": estimate, "cycle": "c",
            "expires_in": life,
        });
        self.app.post("/usage/holds", body).await
    }

    async fn compare_balances(&self, books: &Books) {
        for user in 0..USERS {
            let held = books.holds.iter().filter(|hold| hold.user == user).map(|hold| hold.held).sum();
            let expected = vec![("CNY".to_owned(), books.available[user], held, books.owed[user])];
            assert_eq!(self.app.balances_of(&self.user(user)).await, expected);
        }
    }

    /// How often it was told of holds that they were exhausted.
    async fn exhaustions(&self) -> BTreeMap<String, i64> {
        let told = "SELECT payload ->> 'hold_id', count(*) FROM outbox
                    WHERE event = 'usage.hold_exhausted' AND payload ->> 'hold_id' = ANY($1) GROUP BY 1";
        let pool = self.app.instance.app.db.pool();
        let told: Vec<(String, i64)> =
            sqlx::query_as(told).bind(&self.ids).fetch_all(pool).await.expect("events");
        told.into_iter().collect()
    }

    async fn compare_holds(&self, books: &Books) {
        let told = self.exhaustions().await;
        for (id, hold) in self.ids.iter().zip(&books.holds) {
            let found: Value = self.app.find_hold(id).await;
            let standing = ["status", "held", "charged", "units", "late"].map(|field| found[field].clone());
            let Hold { status, held, charged, reported, late, .. } = hold;
            assert_eq!(
                standing,
                [json!(status), json!(held), json!(charged), json!(reported), json!(late)],
                "{hold:?}"
            );
            assert_eq!(told.get(id).copied().unwrap_or(0), hold.exhaustions, "{hold:?}");
        }
    }
}

#[track_caller]
fn assert_answer(expected: Answer, got: &Reply) {
    match expected {
        Ok(()) => assert!(got.status < 202, "expected to be done: {}", got.text),
        Err(code) => assert_eq!(got.body["code"], code, "{}", got.text),
    }
}

/// How often it came to what, in all lives.
type Met = Mutex<BTreeMap<&'static str, usize>>;

/// What the lives must have come to.
const TELLING: [&str; 4] = ["INSUFFICIENT_BALANCE", "QUOTA_EXCEEDED", LATE, COVERED];
/// A hold was confirmed behind its end.
const LATE: &str = "late confirm";
/// What could not be set aside when it was reported could be later.
const COVERED: &str = "covered after all";

fn missing(met: &Met) -> Vec<&'static str> {
    let met = met.lock().expect("no panic");
    TELLING.into_iter().filter(|what| !met.contains_key(what)).collect()
}

/// What is telling about such a deed.
fn telling(before: &Books, deed: &Deed, after: &Books) -> Option<&'static str> {
    match *deed {
        Deed::Confirm { hold, .. } if !before.holds[hold].late && after.holds[hold].late => Some(LATE),
        Deed::Report { hold, .. } | Deed::ReportAgain { hold, .. }
            if before.holds[hold].is_dry && !after.holds[hold].is_dry =>
        {
            Some(COVERED)
        }
        _ => after.answer.err(),
    }
}

/// Leads one life; `seen` counts the deeds that it came to.
async fn lead(app: &TestApp, number: usize, deeds: &[Deed], seen: Option<&AtomicUsize>, met: &Met) {
    let (mut life, mut books) = (Life::begin(app, number).await, Books::default());
    for deed in deeds {
        if let Some(seen) = seen {
            seen.fetch_add(1, Ordering::SeqCst);
        }
        let before = books.clone();
        books = books.after(deed);
        life.act(deed, &books).await;
        if let Some(what) = telling(&before, deed, &books) {
            *met.lock().expect("no panic").entry(what).or_default() += 1;
        }
        life.compare_balances(&books).await;
    }
    life.compare_holds(&books).await;
}

/// What hardly any life comes to by chance.
fn runs_dry_and_is_covered() -> [Deed; 4] {
    [
        Deed::Take { key: 0, user: 0, product: 0, estimate: 0, life: 4 * STRIDE },
        Deed::Report { hold: 0, message: 0, units: 2_000 },
        Deed::TopUp { user: 0, amount: 600 },
        Deed::ReportAgain { hold: 0, message: 0 },
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_becomes_of_usage_is_what_the_rules_say() {
    let app = TestApp::start().await;
    let mut chance = Chance::new();
    let seed: Vec<u8> = (0..8).flat_map(|_| chance.number().to_le_bytes()).collect();
    let config = Config {
        cases: if is_full() { 1_000 } else { 30 },
        failure_persistence: None,
        max_shrink_iters: 500,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(config.clone(), rng);
    let (lives, deeds, met, mut rounds) = (AtomicUsize::new(1), AtomicUsize::new(0), Met::default(), 0);
    lead(&app, 0, &runs_dry_and_is_covered(), None, &met).await;
    let runtime = tokio::runtime::Handle::current();
    let outcome = tokio::task::block_in_place(|| {
        while rounds == 0 || rounds < ROUNDS && !missing(&met).is_empty() {
            rounds += 1;
            let told = runner.run(&Books::sequential_strategy(1..=DEEDS), |(_, story, seen)| {
                deeds.fetch_add(story.len(), Ordering::Relaxed);
                let number = lives.fetch_add(1, Ordering::Relaxed);
                runtime.block_on(lead(&app, number, &story, seen.as_deref(), &met));
                Ok(())
            });
            told.map_err(|failure| failure.to_string())?;
            runner = TestRunner::new_with_rng(config.clone(), runner.new_rng());
        }
        Ok::<(), String>(())
    });
    println!("{deeds:?} deeds in {lives:?} lives came to {met:?}");
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    assert_eq!(missing(&met), [""; 0], "it never came to that");
    app.run_until_idle().await;
    app.end().await;
}

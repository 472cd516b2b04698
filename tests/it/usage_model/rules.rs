//! The rules of billing, as simply as they can be told: what every deed is answered, and what is left behind it.

use std::collections::{BTreeMap, BTreeSet};

/// Users of a story; each begins with [`BEGINNING`].
pub const USERS: usize = 3;
/// Minor units that each user begins with.
pub const BEGINNING: i64 = 600;
/// Names of products, what their prices are for, prices in hundredths of a minor unit, and quotas.
pub const PRODUCTS: [(&str, &str, i64, Option<i64>); 4] = [
    ("tokens", "PER_UNIT", 37, None),
    ("metered", "PER_UNIT", 150, Some(600)),
    ("calls", "PER_CALL", 1_250, Some(4)),
    ("monthly", "PER_CYCLE", 30_000, Some(900)),
];

/// What is done.
#[derive(Clone, Debug)]
pub enum Deed {
    Take {
        key: usize,
        user: usize,
        product: usize,
        estimate: i64,
        life: i64,
    },
    /// Takes it once more, by its key, with an estimate that is larger by this.
    TakeAgain {
        hold: usize,
        more: i64,
    },
    Report {
        hold: usize,
        message: u8,
        units: i64,
    },
    /// Says once more what one of its messages said.
    ReportAgain {
        hold: usize,
        message: u8,
    },
    Confirm {
        hold: usize,
        units: Option<i64>,
    },
    Release {
        hold: usize,
    },
    /// Time goes by, and what has run out by then is freed.
    Wait {
        seconds: i64,
    },
    TopUp {
        user: usize,
        amount: i64,
    },
    SetQuota {
        product: usize,
        quota: Option<i64>,
    },
}

/// What a deed is answered: done, or the code of a problem.
pub type Answer = Result<(), &'static str>;

/// A hold as the rules have it.
#[derive(Clone, Debug)]
pub struct Hold {
    pub key: usize,
    pub user: usize,
    pub product: usize,
    pub quota: Option<i64>,
    pub estimate: i64,
    pub reported: Option<i64>,
    pub heard: BTreeMap<u8, i64>,
    pub counted: i64,
    pub status: &'static str,
    pub held: i64,
    pub charged: i64,
    pub late: bool,
    /// Whether its last report was not covered.
    pub is_dry: bool,
    /// How often it came to that.
    pub exhaustions: i64,
    pub expires_at: i64,
}

/// What there is.
#[derive(Clone, Debug)]
pub struct Books {
    pub now: i64,
    pub available: [i64; USERS],
    pub owed: [i64; USERS],
    pub quotas: [Option<i64>; PRODUCTS.len()],
    pub used: BTreeMap<(usize, usize), i64>,
    pub paid: BTreeSet<(usize, usize)>,
    pub holds: Vec<Hold>,
    /// What the last deed was answered.
    pub answer: Answer,
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
    if PRODUCTS[product].1 == "PER_CALL" { units.min(1) } else { units }
}

impl Default for Books {
    fn default() -> Self {
        Self {
            now: 0,
            available: [BEGINNING; USERS],
            owed: [0; USERS],
            quotas: PRODUCTS.map(|(.., quota)| quota),
            used: BTreeMap::new(),
            paid: BTreeSet::new(),
            holds: Vec::new(),
            answer: Ok(()),
        }
    }
}

impl Books {
    /// Whether the deed speaks of what is there.
    pub fn has(&self, deed: &Deed) -> bool {
        match deed {
            Deed::TakeAgain { hold, .. }
            | Deed::Report { hold, .. }
            | Deed::Confirm { hold, .. }
            | Deed::Release { hold } => *hold < self.holds.len(),
            Deed::ReportAgain { hold, message } => {
                self.holds.get(*hold).is_some_and(|hold| hold.heard.contains_key(message))
            }
            Deed::Take { .. } | Deed::Wait { .. } | Deed::TopUp { .. } | Deed::SetQuota { .. } => true,
        }
    }

    pub fn after(mut self, deed: &Deed) -> Self {
        self.answer = match *deed {
            Deed::Take { key, user, product, estimate, life } => {
                self.take(key, user, product, estimate, life)
            }
            Deed::TakeAgain { more: 0, .. } => Ok(()),
            Deed::TakeAgain { .. } => Err("USAGE_KEY_REUSED"),
            Deed::Report { hold, message, units } => self.report(hold, message, units),
            Deed::ReportAgain { hold, message } => {
                self.report(hold, message, self.holds[hold].heard[&message])
            }
            Deed::Confirm { hold, units } => self.confirm(hold, units),
            Deed::Release { hold } => self.release(hold),
            Deed::Wait { seconds } => {
                self.wait(seconds);
                Ok(())
            }
            Deed::TopUp { user, amount } => {
                self.available[user] += amount;
                Ok(())
            }
            Deed::SetQuota { product, quota } => {
                self.quotas[product] = quota;
                Ok(())
            }
        };
        self
    }

    fn take(&mut self, key: usize, user: usize, product: usize, estimate: i64, life: i64) -> Answer {
        if let Some(known) = self.holds.iter().find(|h| (h.key, h.user, h.product) == (key, user, product)) {
            return if known.estimate == estimate { Ok(()) } else { Err("USAGE_KEY_REUSED") };
        }
        let ((_, pricing, price, _), quota) = (PRODUCTS[product], self.quotas[product]);
        let wanted = if pricing == "PER_UNIT" { estimate } else { estimate.max(1) };
        let (amount, counted) = (ceil(cost(product, wanted)), quota.map_or(0, |_| count(product, wanted)));
        let used = self.used.entry((user, product)).or_default();
        if quota.is_some_and(|quota| counted > 0 && *used + counted > quota) {
            return Err("QUOTA_EXCEEDED");
        }
        let is_paid = self.paid.contains(&(user, product));
        let fee = if pricing == "PER_CYCLE" && !is_paid { half_up(price) } else { 0 };
        if amount + fee > self.available[user] {
            return Err("INSUFFICIENT_BALANCE");
        }
        self.available[user] -= amount + fee;
        *used += counted;
        if pricing == "PER_CYCLE" {
            self.paid.insert((user, product));
        }
        self.holds.push(Hold {
            key,
            user,
            product,
            quota,
            estimate,
            reported: None,
            heard: BTreeMap::new(),
            counted,
            status: "HELD",
            held: amount,
            charged: fee,
            late: false,
            is_dry: false,
            exhaustions: 0,
            expires_at: self.now + life,
        });
        Ok(())
    }

    fn report(&mut self, index: usize, message: u8, units: i64) -> Answer {
        let hold = &mut self.holds[index];
        let hears = matches!(hold.status, "HELD" | "EXPIRED");
        if let Some(said) = hold.heard.get(&message) {
            if *said != units {
                return Err("USAGE_MESSAGE_REUSED");
            }
            if !hears {
                return Ok(());
            }
            // It is heard again: what could not be set aside then may be now.
        } else if !hears {
            return Err("HOLD_CLOSED");
        }
        hold.heard.insert(message, units);
        let reported = hold.reported.unwrap_or(0).max(units);
        hold.reported = Some(reported);
        if hold.status == "EXPIRED" {
            // It counts when it is confirmed.
            return Err("HOLD_CLOSED");
        }
        let used = self.used.entry((hold.user, hold.product)).or_default();
        let more = hold.quota.map_or(0, |_| (count(hold.product, reported) - hold.counted).max(0));
        // As far as the quota goes.
        let room = hold.quota.map_or(0, |quota| (quota - *used).max(0));
        let has_room = more <= room;
        *used += more.min(room);
        hold.counted += more.min(room);
        let dearer = (ceil(cost(hold.product, reported)) - hold.held).max(0);
        // What there is of it, where that is not all.
        let aside = dearer.min(self.available[hold.user]);
        self.available[hold.user] -= aside;
        hold.held += aside;
        let is_dry = !has_room || aside < dearer;
        hold.exhaustions += i64::from(is_dry && !hold.is_dry);
        hold.is_dry = is_dry;
        match (has_room, aside == dearer) {
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
        let there = self.available[hold.user] + hold.held;
        let taken = due.min(there);
        self.available[hold.user] = there - taken;
        self.owed[hold.user] += due - taken;
        // What is charged counts, whether there was a quota or not.
        *self.used.entry((hold.user, hold.product)).or_default() += count(hold.product, used) - hold.counted;
        hold.counted = count(hold.product, used);
        hold.reported = Some(used);
        hold.charged += taken;
        hold.held = 0;
        hold.late = hold.status == "EXPIRED";
        hold.status = "CONFIRMED";
        Ok(())
    }

    fn release(&mut self, index: usize) -> Answer {
        match self.holds[index].status {
            "HELD" => self.free(index, "RELEASED"),
            "RELEASED" => {}
            _ => return Err("HOLD_CLOSED"),
        }
        Ok(())
    }

    fn wait(&mut self, seconds: i64) {
        self.now += seconds;
        for index in 0..self.holds.len() {
            if self.holds[index].status == "HELD" && self.holds[index].expires_at <= self.now {
                self.free(index, "EXPIRED");
            }
        }
    }

    fn free(&mut self, index: usize, status: &'static str) {
        let hold = &mut self.holds[index];
        self.available[hold.user] += hold.held;
        *self.used.entry((hold.user, hold.product)).or_default() -= hold.counted;
        (hold.held, hold.counted, hold.status) = (0, 0, status);
    }
}

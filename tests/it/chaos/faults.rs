//! What goes wrong around the shop, at random.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::local::PostgresServer;
use sqlx::Connection;
use tokio::time::sleep;

use super::instances::Instances;
use super::proxy::{Met, Proxy, Silence};
use super::redis_side::RedisSide;
use crate::support::Chance;
use crate::support::service::{LIMIT, Shop};

mod channel;
mod door;
mod round;

pub use self::round::Round;

/// Kills after which it begins anew what is broken with them.
const TURN: usize = 20;
/// Kills after which there has been everything: each store was lost seven times, and each small kind twice.
const ENOUGH: usize = 7 * TURN;
/// Furthest that a machine's clock is off.
const MOST_OFF_SECS: usize = 3_600;

const ONE: &str = "one killed";
const TWO: &str = "two killed at once";
const ALL_THAT_ANSWER: &str = "all that answer killed at once";
const ALL_THAT_WORK: &str = "all that work killed at once";
const ALL: &str = "all killed at once";
const VICTIMS: [&str; 9] = [ONE, ONE, ONE, ONE, TWO, TWO, ALL_THAT_ANSWER, ALL_THAT_WORK, ALL];

const POSTGRES_CRASHED: &str = "PostgreSQL crashed";
const REDIS_LOST: &str = "Redis lost";
const COMMITS_TO_BE_LOST: &str = "answers to commits to be lost";
const CUT: &str = "connections to PostgreSQL cut";
const SILENT: &str = "PostgreSQL silent";
const SILENT_ONE_WAY: &str = "PostgreSQL silent one way";
const TORN: &str = "PostgreSQL gone without a word";
const TERMINATED: &str = "backends terminated";
const FAR_AWAY: &str = "PostgreSQL far away";
const REDIS_STUMBLES: &str = "Redis stumbled";
const HARD_TO_REACH: &str = "an instance was hard to reach";
const CLOCK_JUMPS: &str = "a clock jumped";
const CHANNEL_MISBEHAVES: &str = "the channel misbehaved";
const SMALL: [&str; 19] = [
    COMMITS_TO_BE_LOST,
    COMMITS_TO_BE_LOST,
    CUT,
    SILENT,
    SILENT_ONE_WAY,
    TORN,
    TERMINATED,
    FAR_AWAY,
    REDIS_STUMBLES,
    REDIS_STUMBLES,
    REDIS_STUMBLES,
    HARD_TO_REACH,
    HARD_TO_REACH,
    HARD_TO_REACH,
    CLOCK_JUMPS,
    CLOCK_JUMPS,
    CHANNEL_MISBEHAVES,
    CHANNEL_MISBEHAVES,
    CHANNEL_MISBEHAVES,
];

const CAME_BACK_OFF: &str = "came back with a clock that is off";
const CAME_BACK_TO_WORK: &str = "came back to answer and to work";
const CAME_BACK_TO_ANSWER: &str = "came back to answer only";
const COMMITS_CUT: &str = "commits cut";
const ANSWERS_LOST: &str = "answers of an instance lost while it lived";
const GRANTED_UNHEARD: &str = "wishes granted unheard";

/// At which kill of each turn a store is lost.
#[derive(Clone, Copy)]
pub struct Turns {
    pub postgres_crashes: usize,
    pub redis_is_lost: usize,
}

/// Everything that can go wrong, with the world that it goes wrong in.
pub struct Faults {
    pub shop: Arc<Shop>,
    pub instances: Instances,
    pub postgres: PostgresServer,
    before_postgres: Proxy,
    pub redis: RedisSide,
    chance: Chance,
    turns: Turns,
    /// Those that there were.
    kills: usize,
    counts: BTreeMap<&'static str, usize>,
    victims: Round<&'static str>,
    small: Round<&'static str>,
    misdeeds: Round<(FaultOp, FaultKind)>,
    doors: Round<&'static str>,
}

impl Faults {
    /// A shop over these stores, with nothing wrong yet.
    pub async fn around(
        shop: Arc<Shop>,
        postgres: PostgresServer,
        redis: RedisSide,
        chance: Chance,
        turns: Turns,
    ) -> Self {
        let before_postgres = Proxy::before_postgres(postgres.port()).await;
        let database_url = before_postgres.before_url(&postgres.url(), postgres.port());
        Self {
            instances: Instances::start(&shop, database_url, redis.url_through_the_wire()).await,
            shop,
            postgres,
            before_postgres,
            redis,
            chance,
            turns,
            kills: 0,
            counts: BTreeMap::new(),
            victims: Round::of(&VICTIMS),
            small: Round::of(&SMALL),
            misdeeds: Round::of(&channel::MISDEEDS),
            doors: Round::of(&door::TROUBLES),
        }
    }

    /// Lets so many instances be killed, one or several at once, and other things go wrong in between.
    pub async fn rage(&mut self, kills: usize) {
        let end = self.kills + kills;
        while self.kills < end {
            sleep(self.chance.pause(600_000)).await;
            let victims = self.victims(end - self.kills);
            for &victim in &victims {
                self.instances.kill(victim).await;
            }
            let turns: Vec<_> = (0..victims.len()).map(|more| (self.kills + 1 + more) % TURN).collect();
            self.kills += victims.len();
            self.lose_answers_at_each_door();
            let is_small = !self.lose_a_store(&turns).await;
            // What goes wrong where nobody lives is met by nobody.
            let is_at_once = victims.len() < self.instances.len() && self.chance.one_of(2) == 0;
            if is_small && is_at_once {
                self.something_small().await;
            }
            self.bring_back(&victims).await;
            if is_small && !is_at_once {
                self.something_small().await;
            }
        }
    }

    /// Where it is a store's turn; gives whether it was.
    async fn lose_a_store(&mut self, turns: &[usize]) -> bool {
        if turns.contains(&self.turns.postgres_crashes) {
            self.crash_postgres().await;
        } else if turns.contains(&self.turns.redis_is_lost) {
            let what = self.redis.lose(&mut self.chance).await;
            self.count(what);
            self.count(REDIS_LOST);
        } else {
            return false;
        }
        true
    }

    /// One, sometimes two, sometimes all of a kind, and sometimes all, as when a machine fails.
    fn victims(&mut self, most: usize) -> Vec<usize> {
        let what = self.victims.draw(&mut self.chance);
        let all = self.instances.len();
        let first = self.chance.one_of(all);
        let second = (first + 1 + self.chance.one_of(all - 1)) % all;
        let mut victims = match what {
            ONE => vec![first],
            TWO => vec![first, second],
            ALL_THAT_ANSWER => self.instances.those_that_answer(),
            ALL_THAT_WORK => self.instances.those_that_work(),
            _ => (0..all).collect(),
        };
        self.count(if victims.len() > most { "as many killed as were left to kill" } else { what });
        victims.truncate(most);
        victims
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    async fn bring_back(&mut self, victims: &[usize]) {
        for &victim in victims {
            self.come_back_at_some_time(victim);
            self.come_back_as_something(victim);
        }
        self.instances.serve_again(victims).await;
    }

    /// A clock that was off is mostly put right by a restart; one that was right may come back wrong.
    fn come_back_at_some_time(&mut self, index: usize) {
        if self.chance.one_of(3) > 0 {
            self.instances.set_clock(index, 0);
        } else {
            self.shift_clock(index);
            self.count(CAME_BACK_OFF);
        }
    }

    /// Who answers merchants may leave the work to others.
    fn come_back_as_something(&mut self, index: usize) {
        if self.instances.answers(index) {
            let works = self.chance.one_of(2) == 0;
            self.count(if works { CAME_BACK_TO_WORK } else { CAME_BACK_TO_ANSWER });
            self.instances.let_work(index, works);
        }
    }

    /// Somewhere a clock jumps under whoever runs there: away from the right time, or back to it.
    fn a_clock_jumps(&mut self) {
        let index = self.chance.one_of(self.instances.len());
        if self.instances.is_off(index) {
            self.instances.set_clock(index, 0);
        } else {
            self.shift_clock(index);
        }
    }

    fn shift_clock(&mut self, index: usize) {
        let sign = self.chance.one_of(2);
        let by = i64::try_from(1 + self.chance.one_of(MOST_OFF_SECS)).expect("small");
        self.instances.set_clock(index, if sign == 0 { by } else { -by });
    }

    /// Ends PostgreSQL as a crash does.
    async fn crash_postgres(&mut self) {
        self.count(POSTGRES_CRASHED);
        self.postgres.kill().await.expect("killed");
        sleep(self.chance.pause(1_000_000)).await;
        self.postgres.restart().await.expect("restarted");
    }

    async fn something_small(&mut self) {
        let what = self.small.draw(&mut self.chance);
        let is_so = match what {
            REDIS_STUMBLES => {
                let how = self.redis.stumble(&mut self.chance).await;
                self.count(how);
                true
            }
            HARD_TO_REACH => self.trouble_at_a_door().await,
            CLOCK_JUMPS => {
                self.a_clock_jumps();
                true
            }
            CHANNEL_MISBEHAVES => self.channel_misbehaves().await,
            _ => {
                self.postgres_stumbles(what).await;
                true
            }
        };
        if is_so {
            self.count(what);
        }
    }

    async fn postgres_stumbles(&mut self, what: &str) {
        let (wire, chance) = (&self.before_postgres, &mut self.chance);
        match what {
            COMMITS_TO_BE_LOST => wire.lose_answers(1 + u32::try_from(chance.one_of(6)).expect("small")),
            CUT => wire.cut(),
            SILENT => wire.be_silent(Silence::Both, chance).await,
            SILENT_ONE_WAY => wire.be_silent_one_way(chance).await,
            TORN => wire.be_torn(chance).await,
            TERMINATED => self.terminate_backends().await,
            FAR_AWAY => {
                wire.delay(Duration::from_millis(15));
                sleep(Duration::from_millis(400)).await;
                wire.heal();
            }
            other => panic!("PostgreSQL cannot stumble so: {other}"),
        }
    }

    /// Of everybody, also of whoever looks on.
    async fn terminate_backends(&self) {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()
                           AND backend_type = 'client backend'";
        // Who serves may not see what others do.
        let mut conn = self.shop.app.direct_connection().await;
        let ended = sqlx::query(end).execute(&mut conn).await.expect("ended").rows_affected();
        assert!(ended > 0, "somebody is always there");
        conn.close().await.ok();
    }

    /// Everything as it should be again.
    pub async fn end(&mut self) {
        self.before_postgres.heal();
        self.redis.heal();
        self.instances.wires().for_each(Proxy::heal);
        for index in 0..self.instances.len() {
            self.instances.set_clock(index, 0);
        }
        // Its connections may just have been terminated.
        let since = Instant::now();
        while let Err(error) = self.shop.app.gateway.clear_faults().await {
            assert!(since.elapsed() < LIMIT, "the channel goes on to misbehave: {error}");
        }
    }

    /// Tells what there was, and looks whether it was enough.
    pub fn tell(&mut self, granted_unheard: usize) {
        let (wire, doors) = (self.before_postgres.met(), self.instances.met());
        self.counts.extend([(COMMITS_CUT, wire.lost), (ANSWERS_LOST, doors.lost)]);
        self.counts.insert(GRANTED_UNHEARD, granted_unheard);
        let wires: Vec<Met> = [Some(wire), Some(doors), self.redis.met()].into_iter().flatten().collect();
        println!("{} kills; on the wires {wires:?}; {:?}", self.kills, self.counts);
        let expected = self.expected().into_iter();
        let missing: Vec<_> = expected.filter(|(what, least)| self.counted(what) < *least).collect();
        assert!(missing.is_empty(), "too few {missing:?} of {:?}", self.counts);
        let is_enough = self.kills >= ENOUGH;
        assert!(!is_enough || wires.iter().all(Met::is_all), "something was met by nobody: {wires:?}");
    }

    /// What there was by now.
    pub fn so_far(&self) -> String {
        format!("{} kills; {:?}", self.kills, self.counts)
    }

    fn counted(&self, what: &str) -> usize {
        self.counts.get(what).copied().unwrap_or_default()
    }

    /// What there must have been, and how often at least; each of the rest where enough were killed for that.
    fn expected(&self) -> Vec<(&'static str, usize)> {
        let turns = self.kills / TURN;
        let mut expected = [POSTGRES_CRASHED, REDIS_LOST, ANSWERS_LOST].map(|what| (what, turns)).to_vec();
        // Of the answers that are lost many are no merchant's, or tell of nothing that is kept.
        expected.push((GRANTED_UNHEARD, turns / 2));
        if self.kills >= ENOUGH {
            let small = [&SMALL[..], self.redis.stumbles(), &door::TROUBLES].concat();
            let came_back = [CAME_BACK_OFF, CAME_BACK_TO_WORK, CAME_BACK_TO_ANSWER];
            let once = [&VICTIMS[..], &small, self.redis.losses(), &came_back, &[COMMITS_CUT]].concat();
            expected.extend(once.into_iter().map(|what| (what, 1)));
        }
        expected
    }
}

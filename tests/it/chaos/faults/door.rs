//! What goes wrong between an instance that lives and whoever asks it: merchants, operators and the channel.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::{Faults, Met, Proxy, Silence};

const CUT: &str = "connections to an instance cut";
const SILENT: &str = "an instance silent";
const SILENT_ONE_WAY: &str = "an instance silent one way";
const TORN: &str = "an instance gone without a word";
const FAR_AWAY: &str = "an instance far away";
pub const TROUBLES: [&str; 5] = [CUT, SILENT, SILENT_ONE_WAY, TORN, FAR_AWAY];

/// Answers that are lost at each door with each kill.
const LOST: u32 = 2;
/// Longest that an instance is away, there and back each.
const FURTHEST_MICROS: u64 = 500_000;
/// Longest that nobody asks it anything.
const QUIET: Duration = Duration::from_secs(2);

impl Faults {
    /// Of each that answers, now or once it is back: what was asked is done, and nobody hears of it.
    pub(super) fn lose_answers_at_each_door(&self) {
        self.instances.wires().for_each(|wire| wire.lose_answers(LOST));
    }

    /// At the door of one that lives; gives whether there is one.
    pub(super) async fn trouble_at_a_door(&mut self) -> bool {
        let wires = self.instances.wires_to_the_living();
        if wires.is_empty() {
            return false;
        }
        let (what, chance) = (self.doors.draw(&mut self.chance), &mut self.chance);
        let wire = wires[chance.one_of(wires.len())];
        match what {
            CUT => until_met(wire, Proxy::cut, |met| met.cut).await,
            SILENT => wire.be_silent(Silence::Both, chance).await,
            SILENT_ONE_WAY => wire.be_silent_one_way(chance).await,
            TORN => {
                until_met(wire, Proxy::tear, |met| met.torn).await;
                wire.be_torn(chance).await;
            }
            FAR_AWAY => {
                let by = chance.pause(FURTHEST_MICROS);
                wire.be_far_away(by, chance).await;
            }
            other => panic!("no trouble at a door: {other}"),
        }
        self.count(what);
        true
    }
}

/// Nobody keeps a connection here, so it goes on until somebody was just asking.
async fn until_met(wire: &Proxy, trouble: fn(&Proxy), count: fn(Met) -> usize) {
    let (since, before) = (Instant::now(), count(wire.met()));
    while count(wire.met()) == before && since.elapsed() < QUIET {
        trouble(wire);
        sleep(Duration::from_millis(10)).await;
    }
}

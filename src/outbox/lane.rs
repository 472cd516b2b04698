//! The names of lanes: what shares one, shares its fate. A merchant has a lane for its own endpoint, a few for the hosts
//! that its orders name, and as many for what is sent again.

use sha2::{Digest, Sha256};

/// The lane of everything that goes to the broker; no merchant has such an id.
pub(super) const BROKER: &str = "*";
/// The lane of what was never on its way; no merchant has such an id either.
pub(super) const REFUSED: &str = "?";
/// How the name of a lane ends whose events are sent again. It goes to the same place, and has room of its own: any
/// number of old events never delays a new one.
pub(super) const AGAIN: &str = " again";

/// Lanes of a merchant for the hosts that its orders name. A merchant with a million hosts takes no more turns and
/// memory than this; of two hosts that share one, a slow one slows the other.
const OF_HOSTS: u8 = 16;

/// The lane of a merchant's own endpoint, where `origin` is none, or of a host that its orders name: always the same
/// one of a few, at every instance.
pub(super) fn of_callback(merchant_id: &str, origin: Option<&str>) -> String {
    match origin {
        None => merchant_id.to_owned(),
        Some(origin) => {
            let digest = Sha256::digest(origin.as_bytes());
            format!("{merchant_id} {:02}", digest.first().map_or(0, |byte| byte % OF_HOSTS))
        }
    }
}

/// Whether hosts that have nothing to do with each other may share it.
pub(super) fn is_shared(lane: &str) -> bool {
    lane.strip_suffix(AGAIN).unwrap_or(lane).contains(' ')
}

/// The lane beside this one for what is sent again.
pub(super) fn again(lane: &str) -> String {
    format!("{lane}{AGAIN}")
}

/// Both lanes that lead to where this one does.
pub(super) fn siblings(lane: &str) -> [String; 2] {
    let new = lane.strip_suffix(AGAIN).unwrap_or(lane);
    [new.to_owned(), again(new)]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_sent_again_has_a_lane_beside_that_of_what_is_new() {
        let (new, again) = ("shop".to_owned(), "shop again".to_owned());
        assert_eq!(siblings("shop"), [new.clone(), again.clone()]);
        assert_eq!(siblings("shop again"), [new, again]);
    }

    #[test]
    fn a_merchant_has_a_few_lanes_however_many_hosts_its_orders_name() {
        let lane = |number: u32| of_callback("shop", Some(&format!("https://{number}.shop.example")));
        let lanes: BTreeSet<String> = (0..10_000).map(lane).collect();
        assert_eq!(lanes.len(), usize::from(OF_HOSTS));
        assert_eq!(lane(7), lane(7));
        assert!(lanes.iter().all(|lane| is_shared(lane) && is_shared(&again(lane))));
        assert!(!is_shared("shop") && !is_shared("shop again") && !is_shared(BROKER));
    }
}

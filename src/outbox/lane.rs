//! The names of lanes: what shares one, shares its fate.

/// The lane of everything that goes to the broker; no merchant has such an id.
pub(super) const BROKER: &str = "*";
/// The lane of what was never on its way; no merchant has such an id either.
pub(super) const REFUSED: &str = "?";
/// How the name of a lane ends whose events are sent again. It goes to the same place, and has room of its own: any
/// number of old events never delays a new one.
pub(super) const AGAIN: &str = " again";

/// The lane of a merchant's own endpoint, where `origin` is none, or of a host that its orders name.
pub(super) fn of_callback(merchant_id: &str, origin: Option<&str>) -> String {
    match origin {
        None => merchant_id.to_owned(),
        Some(origin) => format!("{merchant_id} {origin}"),
    }
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
    use super::*;

    #[test]
    fn what_is_sent_again_has_a_lane_beside_that_of_what_is_new() {
        let (new, again) = ("shop".to_owned(), "shop again".to_owned());
        assert_eq!(siblings("shop"), [new.clone(), again.clone()]);
        assert_eq!(siblings("shop again"), [new, again]);
    }
}

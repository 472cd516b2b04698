//! File descriptors: every connection takes one, from outside and to the stores.

/// Raises this process's limit as far as it may, and gives for how many of the wanted connections from outside there
/// is room: many systems start a service with 1,024 descriptors and let it have far more.
///
/// Half of them are kept back: for the stores, and because a request that is let in may need a connection of its own
/// to a channel. So strangers, however many they are, never take what the work needs.
#[must_use]
pub fn room_for(wanted: usize) -> usize {
    let limit = match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
        Err(error) => {
            tracing::warn!(%error, "the limit of file descriptors could not be raised");
            return wanted;
        }
    };
    let room = wanted.min(limit / 2);
    if room < wanted {
        tracing::info!(limit, room, "{limit} file descriptors leave room for {room} connections at once");
    }
    room
}

//! How we know what a channel says of a trade.

/// Where a report comes from.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// The channel called us; the callback is kept.
    Callback {
        /// The channel's id of the event.
        event_id: &'a str,
        /// The body as it came.
        body: &'a [u8],
        /// Whether it speaks for the configured account.
        account_matches: bool,
    },
    /// The channel called us before the pay order existed; the callback is kept already.
    Rematch {
        /// The channel's id of the event.
        event_id: &'a str,
    },
    /// An operator has a kept callback read again.
    Replay {
        /// The channel's id of the event.
        event_id: &'a str,
        /// Whether it speaks for the account that is configured now.
        account_matches: bool,
    },
    /// We asked.
    Query,
    /// We asked for its end, when the attempt was in this version.
    Close {
        /// As it was read before the call.
        version: i32,
    },
    /// It stands in the channel's statement, and we had not heard of it.
    Statement,
}

impl<'a> Origin<'a> {
    pub(super) const fn event_id(&self) -> Option<&'a str> {
        match self {
            Self::Callback { event_id, .. } | Self::Rematch { event_id } | Self::Replay { event_id, .. } => {
                Some(event_id)
            }
            Self::Query | Self::Close { .. } | Self::Statement => None,
        }
    }

    /// Whether the channel has answered to us.
    pub(super) const fn is_answer(&self) -> bool {
        matches!(self, Self::Query | Self::Close { .. })
    }
}

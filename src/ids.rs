//! Typed identifiers: ours (`po_…`, time-ordered) and the merchant's (1–64 of `[0-9A-Za-z_.-]`).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use uuid::Uuid;

use crate::infra::clock::{Clock, unix_millis};

/// A text that is not a valid identifier.
#[derive(Debug, thiserror::Error)]
#[error("expected 1 to 64 characters of 0-9 A-Z a-z _ . -")]
pub struct InvalidId;

/// Most characters an identifier may have.
pub const MAX_ID_LEN: usize = 64;

fn is_identifier(text: &str) -> bool {
    (1..=MAX_ID_LEN).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

macro_rules! text_id {
    ($($(#[$meta:meta])* $name:ident = $example:literal),+ $(,)?) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema, sqlx::Type)]
        #[serde(try_from = "String", into = "String")]
        #[sqlx(transparent)]
        #[schema(value_type = String, min_length = 1, max_length = 64, pattern = "^[0-9A-Za-z_.-]{1,64}$", example = $example)]
        pub struct $name(String);

        impl $name {
            /// The text of the identifier.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                if is_identifier(&text) { Ok(Self(text)) } else { Err(InvalidId) }
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::try_from(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

text_id! {
    /// A merchant, as named by the operator who created it.
    MerchantId = "demo",
    /// The merchant's number of an order, unique per merchant.
    OrderNo = "A-1",
    /// A buyer, as the merchant names them.
    UserId = "u1",
    /// The merchant's name of a thing on sale, unique per merchant.
    Sku = "TEA",
    /// One attempt to collect an order: `po_` and 26 characters, at most 32 as every channel demands.
    PayOrderId = "po_06H8K2M4N6P8R0T2V4X6Z8B0D2",
    /// The merchant's number of a refund, unique per merchant.
    RefundNo = "R-1",
    /// A refund as channels know it: `rf_` and 26 characters.
    RefundId = "rf_06H8K2M4N6P8R0T2V4X6Z8B0D2",
    /// Money taken that no order accepts: `sp_` and 26 characters.
    StrayId = "sp_06H8K2M4N6P8R0T2V4X6Z8B0D2",
    /// The merchant's number of a withdrawal, unique per merchant.
    WithdrawalNo = "W-1",
    /// A withdrawal as channels know it: `wd_` and 26 characters.
    WithdrawalId = "wd_06H8K2M4N6P8R0T2V4X6Z8B0D2",
    /// An operator's number of what is cleared of a user's debt, unique per merchant.
    ClearingNo = "C-1",
    /// What is metered, as the merchant names it.
    ProductCode = "llm-tokens",
    /// A set of prices in one currency, as the merchant names it.
    FxVersion = "fx-2026-11",
    /// What quotas and subscriptions are counted by: a month unless the merchant says otherwise.
    Cycle = "2026-11",
    /// The merchant's name of a piece of metered work, unique per user and product.
    UsageKey = "chat-42",
    /// The merchant's name of a request, for people.
    RequestId = "req-1",
    /// The merchant's name of a report of usage, unique per hold.
    MessageId = "m-1",
    /// Money held for metered work: `uh_` and 26 characters.
    HoldId = "uh_06H8K2M4N6P8R0T2V4X6Z8B0D2",
    /// Something a person must look at: `ex_` and 26 characters.
    ExceptionId = "ex_06H8K2M4N6P8R0T2V4X6Z8B0D2",
    /// Settling many orders in batches: `sr_` and 26 characters.
    SettlementRunId = "sr_06H8K2M4N6P8R0T2V4X6Z8B0D2",
    /// A channel's day compared with ours: `rc_` and 26 characters.
    ReconciliationId = "rc_06H8K2M4N6P8R0T2V4X6Z8B0D2",
    /// One difference: `ri_` and 26 characters.
    ReconciliationItemId = "ri_06H8K2M4N6P8R0T2V4X6Z8B0D2",
}

impl RefundId {
    /// Whether a number that a channel names has the form of ours: others may give money back out of the same account.
    #[must_use]
    pub fn is_formed(text: &str) -> bool {
        let rest = text.strip_prefix("rf_").map(str::as_bytes);
        rest.is_some_and(|rest| rest.len() == 26 && rest.iter().all(|byte| ALPHABET.contains(byte)))
    }
}

/// The source of identifiers and of chance; a seeded one repeats itself in tests.
#[derive(Clone, Debug)]
pub struct Ids {
    clock: Clock,
    random: Arc<Mutex<StdRng>>,
}

impl Ids {
    /// The clock that they are dated by.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Unforeseeable identifiers, seeded by the operating system.
    #[must_use]
    pub fn random(clock: Clock) -> Self {
        Self { clock, random: Arc::new(Mutex::new(StdRng::from_os_rng())) }
    }

    /// The same sequence for the same seed.
    #[must_use]
    pub fn seeded(clock: Clock, seed: u64) -> Self {
        Self { clock, random: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))) }
    }

    fn with_random<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        // A poisoned generator is still a generator: its state holds no invariant.
        draw(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A new UUID of version 7: ordered by time, so that an index over it grows at one end.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        let mut bytes = [0u8; 10];
        self.with_random(|random| random.fill_bytes(&mut bytes));
        let millis = u64::try_from(unix_millis(self.clock.now())).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid()
    }

    /// A secret of 256 bits as 52 characters of base 32.
    #[must_use]
    pub fn secret(&self) -> String {
        let mut bytes = [0u8; 32];
        self.with_random(|random| random.fill_bytes(&mut bytes));
        base32(&bytes)
    }

    /// Fills `bytes` from the same source.
    pub fn fill(&self, bytes: &mut [u8]) {
        self.with_random(|random| random.fill_bytes(bytes));
    }

    /// A whole number from `low` to `high`, both included: jitter for waits.
    #[must_use]
    pub fn between(&self, low: u64, high: u64) -> u64 {
        self.with_random(|random| random.random_range(low..=high))
    }

    fn prefixed(&self, prefix: &str) -> String {
        format!("{prefix}{}", base32(self.uuid().as_bytes()))
    }

    /// A new pay-order id, 29 characters.
    #[must_use]
    pub fn pay_order(&self) -> PayOrderId {
        PayOrderId(self.prefixed("po_"))
    }

    /// A new order number for an order that came without one.
    #[must_use]
    pub fn order_no(&self) -> OrderNo {
        OrderNo(self.prefixed(""))
    }

    /// A new refund id; also the refund number of refunds that the service starts itself.
    #[must_use]
    pub fn refund(&self) -> RefundId {
        RefundId(self.prefixed("rf_"))
    }

    /// A new id of a stray payment.
    #[must_use]
    pub fn stray(&self) -> StrayId {
        StrayId(self.prefixed("sp_"))
    }

    /// A new withdrawal id.
    #[must_use]
    pub fn withdrawal(&self) -> WithdrawalId {
        WithdrawalId(self.prefixed("wd_"))
    }

    /// A new id of a hold.
    #[must_use]
    pub fn hold(&self) -> HoldId {
        HoldId(self.prefixed("uh_"))
    }

    /// A new id of an exception.
    #[must_use]
    pub fn exception(&self) -> ExceptionId {
        ExceptionId(self.prefixed("ex_"))
    }

    /// A new id of a run that settles many orders.
    #[must_use]
    pub fn settlement_run(&self) -> SettlementRunId {
        SettlementRunId(self.prefixed("sr_"))
    }

    /// A new id of a channel's day.
    #[must_use]
    pub fn reconciliation(&self) -> ReconciliationId {
        ReconciliationId(self.prefixed("rc_"))
    }

    /// A new id of an uploaded file.
    #[must_use]
    pub fn statement_file(&self) -> String {
        self.prefixed("sf_")
    }
}

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Crockford's base 32: no letters that are mistaken for digits, and the order of the bytes is kept.
#[must_use]
pub fn base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut pending, mut bits) = (0u32, 0u32);
    for byte in bytes {
        pending = (pending << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[(pending >> bits & 31) as usize]));
        }
        pending &= (1 << bits) - 1;
    }
    if bits > 0 {
        text.push(char::from(ALPHABET[(pending << (5 - bits) & 31) as usize]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_fit_every_channel_and_sort_by_time() {
        let clock = Clock::system();
        let ids = Ids::seeded(clock.clone(), 7);
        let first = ids.pay_order();
        clock.advance(std::time::Duration::from_millis(2));
        let second = ids.pay_order();

        assert_eq!(first.as_str().len(), 29);
        assert!(first.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
        assert!(first < second, "{first} then {second}");
    }

    #[test]
    fn a_refund_of_ours_is_known_by_its_form() {
        let id = Ids::seeded(Clock::system(), 7).refund();
        assert!(RefundId::is_formed(id.as_str()), "{id}");
        for other in ["", "rf_", "rf_nobody", "R-1", &id.as_str().replace("rf_", "po_"), &format!("{id}0")] {
            assert!(!RefundId::is_formed(other), "{other}");
        }
    }

    #[test]
    fn merchants_numbers_are_checked() {
        assert!("a.b_c-9".parse::<OrderNo>().is_ok());
        for bad in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
            assert!(bad.parse::<OrderNo>().is_err(), "{bad}");
        }
    }
}

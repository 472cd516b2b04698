//! The decision over a pay URL as the simulation asks for it: by states, channels and seconds.

use time::OffsetDateTime;

use super::{PayUrlRequest, Step, decide};
use crate::orders::OrderStatus;
use crate::pay::model::PayStatus;
use crate::pay::store::{Facts, LiveAttempt, OrderFacts};

/// What an asker of a link is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The link that stands.
    Link,
    /// To begin an attempt.
    Begin,
    /// To ask for the live attempt's link again.
    DriveOn,
    /// To end the live attempt first.
    Replace,
    /// That there is nothing to pay.
    Refused,
}

/// A live attempt: its channel, its state, when its link dies, and whether a task closes it.
pub(crate) type Live = (usize, PayStatus, i64, bool);

/// The decision, with the texts that are the same each time.
pub(crate) struct Seller {
    facts: Facts,
    live: LiveAttempt,
    request: PayUrlRequest,
}

const CHANNELS: [&str; 2] = ["one", "other"];

fn at(second: i64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(second)
}

impl Seller {
    pub(crate) fn new() -> Self {
        let currency = "CNY".parse().expect("a currency");
        let order = OrderFacts {
            status: OrderStatus::Pending,
            user_id: "u".to_owned(),
            amount: 100,
            currency,
            subject: None,
            expires_at: at(0),
            attempts: 0,
        };
        let live = LiveAttempt {
            pay_order_id: "po_1".parse().expect("an id"),
            payer_id: "u".to_owned(),
            channel: String::new(),
            status: PayStatus::Init,
            pay_url: Some("https://pay.test/".to_owned()),
            expires_at: at(0),
            is_being_closed: false,
        };
        let request = PayUrlRequest {
            merchant_id: "m".parse().expect("a merchant"),
            order_no: "A".parse().expect("a number"),
            payer_id: "u".parse().expect("a user"),
            is_payer_checked: true,
            channel: String::new(),
            amount: None,
            currency: None,
            subject: None,
            return_url: None,
        };
        Self { facts: Facts { order, live: None }, live, request }
    }

    /// What somebody is told at that second who asks for a link of that channel.
    pub(crate) fn tell(
        &mut self,
        (status, expires_at): (OrderStatus, i64),
        live: Option<Live>,
        channel: usize,
        now: i64,
    ) -> Told {
        (self.facts.order.status, self.facts.order.expires_at) = (status, at(expires_at));
        self.facts.live = live.map(|(of, status, dies_at, is_being_closed)| {
            let (channel, expires_at) = (CHANNELS[of].to_owned(), at(dies_at));
            LiveAttempt { channel, status, expires_at, is_being_closed, ..self.live.clone() }
        });
        CHANNELS[channel].clone_into(&mut self.request.channel);
        match decide(&self.facts, &self.request, at(now)) {
            Ok(Step::Answer(_)) => Told::Link,
            Ok(Step::Begin) => Told::Begin,
            Ok(Step::DriveOn(_)) => Told::DriveOn,
            Ok(Step::Replace(_)) => Told::Replace,
            Err(_) => Told::Refused,
        }
    }
}

//! Invariants 7 and 8, the way to the outside: what must be heard of is on its way, has arrived, or is shown to a person.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "event_relayed",
        Eventual,
        "no event waits 60 s for the relay to look where it goes",
        "SELECT format('event %s: %s of %s, not looked at since %s', id, event, coalesce(order_no, 'no order'),
                       created_at)
         FROM outbox WHERE open_deliveries IS NULL AND created_at < $1 - interval '60 s'",
    ),
    check!(
        "delivery_late",
        Eventual,
        "no delivery waits 60 s past its lease, or 5 min past its time unless its endpoint is failing",
        "SELECT format('delivery of event %s: %s in lane %s, due at %s, leased until %s', event_id, kind, lane, due_at,
                       coalesce(leased_until::text, 'never'))
         FROM deliveries
         LEFT JOIN (SELECT DISTINCT lane FROM deliveries
                    WHERE status = 'PENDING' AND last_error IS NOT NULL) AS failing USING (lane)
         WHERE status = 'PENDING'
           AND (leased_until < $1 - interval '60 s'
                OR leased_until IS NULL AND due_at < $1 - interval '5 min' AND failing.lane IS NULL)",
    ),
    check!(
        "event_deliveries_counted",
        Always,
        "an event is published exactly when none of its deliveries is under way",
        "SELECT format('event %s: %s destinations open, %s under way, published at %s', coalesce(id, event_id),
                       open_deliveries, coalesce(waiting, 0), published_at)
         FROM (SELECT id, open_deliveries, published_at FROM outbox
               WHERE open_deliveries NOT IN (0, -1) OR published_at IS NOT NULL) AS event
         FULL JOIN (SELECT event_id, count(*) AS waiting FROM deliveries WHERE status = 'PENDING'
                    GROUP BY event_id) AS under_way ON event_id = id
         WHERE coalesce(waiting, 0) IS DISTINCT FROM open_deliveries
            OR published_at IS NOT NULL AND open_deliveries IS DISTINCT FROM 0",
    ),
    check!(
        "dead_delivery_reported",
        Always,
        "every delivery that was given up was shown to a person",
        "SELECT format('delivery of event %s: %s DEAD in silence: %s', event_id, delivery.kind, last_error)
         FROM deliveries AS delivery
         LEFT JOIN exceptions ON exceptions.subject = 'evt_' || event_id AND exceptions.kind = 'DEAD_TASK'
         WHERE delivery.status = 'DEAD' AND exceptions.subject IS NULL",
    ),
];

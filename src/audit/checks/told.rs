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
        "no delivery waits 60 s past its lease: a dead sender's delivery is taken over",
        "SELECT format('delivery of event %s: %s in lane %s, leased until %s', event_id, kind, lane, leased_until)
         FROM deliveries
         WHERE status = 'PENDING' AND leased_until < $1 - interval '60 s'",
    ),
    check!(
        "lane_tried",
        Eventual,
        "no lane in which something is due for 60 s goes without a try for 60 s, unless its endpoint asked for a pause",
        "SELECT format('lane %s: due since %s, and nothing was tried since %s', lane, due_since,
                       coalesce(tried_at::text, 'ever'))
         FROM (SELECT lane, min(due_at) AS due_since, bool_or(leased_until IS NOT NULL) AS is_held
               FROM (SELECT lane, due_at, leased_until,
                            order_no IS NULL
                            OR row_number() OVER (PARTITION BY merchant_id, order_no, kind ORDER BY event_id) = 1
                            AS is_first
                     FROM deliveries WHERE status = 'PENDING') AS delivery
               WHERE is_first GROUP BY lane) AS waiting
         -- What ended before says nothing of the last minute.
         LEFT JOIN (SELECT lane, max((log -> -1 ->> 'at')::timestamptz) AS tried_at FROM deliveries
                    WHERE (status = 'PENDING' OR updated_at > $1 - interval '60 s') AND log <> '[]'
                    GROUP BY lane) AS tried USING (lane)
         LEFT JOIN resting_lanes USING (lane)
         WHERE due_since < $1 - interval '60 s' AND NOT is_held
           AND coalesce(greatest(tried_at, rests_until) < $1 - interval '60 s', true)",
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

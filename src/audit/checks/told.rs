//! Invariants 7 and 8, the way to the outside: what must be heard of is on its way, has arrived, or is shown to a person.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "event_relayed",
        Eventual,
        "no event waits 60 s for the relay to look where it goes, none that is sent again 10 min",
        "SELECT format('event %s of %s: not looked at since %s', event_id, coalesce(order_no, 'no order'), queued_at)
         FROM outbox_queue
         WHERE queued_at < $1 - CASE WHEN is_again THEN interval '10 min' ELSE interval '60 s' END",
    ),
    check!(
        "delivery_late",
        Eventual,
        "no delivery waits 60 s past its lease, unless its endpoint asked for a pause, or an earlier event of its order \
         waits: a dead sender's delivery is taken over",
        "SELECT format('delivery of event %s: %s in lane %s, leased until %s', event_id, kind, lane, leased_until)
         FROM (SELECT event_id, kind, lane, due_at, leased_until,
                      order_no IS NULL
                      OR row_number() OVER (PARTITION BY merchant_id, order_no, kind ORDER BY event_id) = 1 AS is_first
               FROM deliveries WHERE coalesce(status, 'due') = 'PENDING') AS delivery
         LEFT JOIN resting_lanes USING (lane)
         WHERE is_first AND leased_until IS NOT NULL
           AND greatest(leased_until, due_at, rests_until) < $1 - interval '60 s'",
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
                     FROM deliveries WHERE coalesce(status, 'due') = 'PENDING') AS delivery
               WHERE is_first GROUP BY lane) AS waiting
         -- What ended before says nothing of the last minute.
         LEFT JOIN (WITH tried AS MATERIALIZED ( -- once, and not for each lane
                        SELECT lane, max((log -> -1 ->> 'at')::timestamptz) AS tried_at FROM deliveries
                        WHERE (status = 'PENDING' OR updated_at > $1 - interval '60 s') AND log <> '[]'
                        GROUP BY lane)
                    SELECT lane, tried_at FROM tried) AS tried USING (lane)
         LEFT JOIN resting_lanes USING (lane)
         WHERE due_since < $1 - interval '60 s' AND NOT is_held
           AND coalesce(greatest(tried_at, rests_until) < $1 - interval '60 s', true)",
    ),
    check!(
        "event_in_one_place",
        Always,
        "an event is there, and waits to be looked at once or is on its way, never both",
        "SELECT format('event %s: %s queues, %s deliveries under way, %s', event_id, count(*) FILTER (WHERE is_queued),
                       count(*) FILTER (WHERE NOT is_queued), CASE WHEN bool_and(id IS NULL) THEN 'no event' ELSE 'there' END)
         FROM (SELECT event_id, true AS is_queued FROM outbox_queue
               UNION ALL
               SELECT event_id, false FROM deliveries WHERE coalesce(status, 'due') = 'PENDING') AS open
         LEFT JOIN outbox ON id = event_id
         GROUP BY event_id
         HAVING count(*) FILTER (WHERE is_queued) > 1 OR count(DISTINCT is_queued) > 1 OR bool_and(id IS NULL)",
    ),
    check!(
        "event_handed_out",
        Eventual,
        "an event of the last day whose order has an endpoint, or whose merchant had one two hours before, waits to be looked \
         at, or was handed out",
        "SELECT format('event %s: %s of %s went nowhere', id, outbox.event, coalesce(outbox.order_no, 'no order'))
         -- What is queued and handed out is read once, without a look-up for each event: where that was empty when the plan was
         -- made, each would walk what has come into it since.
         FROM (SELECT id
               FROM (SELECT event.id, true AS is_to_be_told
                     FROM merchants JOIN outbox AS event ON event.merchant_id = merchants.merchant_id
                     LEFT JOIN orders ON orders.merchant_id = event.merchant_id AND orders.order_no = event.order_no
                                     AND orders.notify_url IS NOT NULL
                     WHERE event.created_at > $1 - interval '1 day' AND event.created_at < $1 - interval '60 s'
                       -- By clocks that may be so far apart.
                       AND (orders.notify_url IS NOT NULL
                            OR merchants.notify_url IS NOT NULL
                               AND event.created_at > merchants.updated_at + interval '2 hours')
                     UNION ALL
                     SELECT event_id, false FROM outbox_queue
                     UNION ALL
                     SELECT event_id, false FROM deliveries WHERE coalesce(status, 'age') = 'PENDING'
                     UNION ALL
                     SELECT event_id, false FROM deliveries WHERE status = 'DEAD'
                     UNION ALL
                     -- Between two ends: a plan that knows neither takes a third of all to be behind the one.
                     SELECT event_id, false FROM deliveries
                     WHERE status IN ('DELIVERED', 'DROPPED')
                       AND created_at BETWEEN $1 - interval '26 hours' AND $1 + interval '26 hours') AS tale
               GROUP BY id HAVING bool_and(is_to_be_told)) AS lost
         JOIN outbox USING (id)",
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

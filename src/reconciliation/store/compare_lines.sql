-- A range of the statement's lines against ours: what differs becomes an item, and the rest is counted.
--
-- $1 day, $2 $3 $4 where the range before ended, $5 lines at most, $6 channel, $7 what came here later is not compared,
-- $8 $9 the day's beginning and end, $10 the end of what is recorded for the day, $11 the day before, $12 how far from
-- its day a line may be booked, $13 now, $14 round, $15 the days before whose lines are here, $16 those behind, $17 the next
-- day.
WITH chunk AS MATERIALIZED (
    SELECT line.*,
           -- The same movement twice stands side by side, also across the ranges; of what has a number of ours only, that counts.
           (channel_id <> '' OR our_id = '') AND
           coalesce((lag(kind) OVER walk, lag(channel_id) OVER walk) = (kind, channel_id),
                    (kind, channel_id) = ($2, $3)) AS is_second
    FROM (SELECT * FROM statement_lines
          WHERE reconciliation_id = $1 AND (kind, channel_id, line_no) > ($2, $3, $4)
          ORDER BY kind, channel_id, line_no LIMIT $5) AS line
    WINDOW walk AS (ORDER BY kind, channel_id, line_no)
), known AS MATERIALIZED (
    SELECT chunk.*,
           coalesce(
               -- As EXISTS the planner would read all of yesterday's for every range.
               CASE WHEN channel_id <> '' AND at < $8::timestamptz + $12::interval THEN (
                   SELECT yesterday.reconciliation_id FROM statement_lines AS yesterday
                   WHERE yesterday.reconciliation_id = $11 AND yesterday.kind = chunk.kind
                     AND yesterday.channel_id = chunk.channel_id LIMIT 1) END,
               -- Of ours, what did not move within this day, or did in its first minutes, may be on any statement: it is little.
               CASE WHEN trade.transaction_id IS NOT NULL
                         AND NOT (moved_at >= $8::timestamptz + $12::interval AND moved_at < $9::timestamptz
                                  AND trade.created_at < $10) THEN (
                   SELECT earlier.reconciliation_id FROM statement_lines AS earlier
                   WHERE earlier.reconciliation_id = ANY($15::text[]) AND earlier.kind = 'PAYMENT'
                     AND earlier.channel_id = chunk.channel_id LIMIT 1) END,
               -- What was made twice under one number of ours has another number of theirs each time. A stranger's may stand beside
               -- any number of theirs, and tells what has none.
               CASE WHEN kind IN ('REFUND', 'REFUND_REVERSAL', 'PAYOUT') AND ours.tells THEN (
                   SELECT twin.reconciliation_id FROM statement_lines AS twin
                   WHERE twin.our_id = chunk.our_id AND twin.kind <> 'PAYMENT'
                     -- Found by our number alone: by its day a plan would read all of that day's.
                     AND (twin.kind = chunk.kind AND twin.is_final AND twin.reconciliation_id = ANY($15::text[])) IS TRUE
                   LIMIT 1) END) AS also_listed_by,
           is_second
           OR CASE WHEN kind IN ('REFUND', 'REFUND_REVERSAL', 'PAYOUT') AND ours.tells THEN (
               SELECT true FROM statement_lines AS twin
               WHERE twin.our_id = chunk.our_id AND twin.kind <> 'PAYMENT'
                 AND (twin.kind = chunk.kind AND twin.is_final AND twin.reconciliation_id = $1
                      AND (twin.channel_id, twin.line_no) < (chunk.channel_id, chunk.line_no)) IS TRUE
               LIMIT 1) IS NOT NULL ELSE false END AS is_listed_again,
           ours.known_as, ours.tells,
           coalesce(stray.amount, attempt.amount, refund.amount, payout.amount) AS our_amount,
           coalesce(stray.currency, attempt.currency, refund.currency, payout.currency) AS our_currency,
           coalesce(stray.out_trade_no, attempt.pay_order_id) AS told_of,
           coalesce(stray.status, attempt.status, refund.status, payout.status) AS our_status,
           coalesce(stray.merchant_id, attempt.merchant_id, refund.merchant_id, payout.merchant_id) AS merchant_id,
           coalesce(stray.order_no, attempt.order_no, refund.order_no) AS order_no,
           refund.channel_refund_id IS NOT NULL AS was_made, refund.made_after_all_at IS NOT NULL AS is_made_after_all,
           -- What had arrived, and came back, was sent out, too.
           payout.channel_payout_id IS NOT NULL AND (payout.status = 'SUCCEEDED' OR payout.returned_at IS NULL)
               -- What is listed under another number than had come back, or was booked behind that, has gone out once more.
               AND NOT (payout.returned_at IS NOT NULL
                        AND (chunk.at > payout.returned_at OR chunk.channel_id NOT IN ('', payout.channel_payout_id)))
               AS is_sent_out,
           -- What counts here as moved, and whether on this day.
           coalesce(CASE chunk.kind WHEN 'PAYMENT' THEN trade.transaction_id IS NOT NULL
                                    -- Under a number of ours, a channel may list what another one made. What was made after
                                    -- all has moved, although it stands failed.
                                    WHEN 'REFUND' THEN (refund.status = 'SUCCEEDED' OR refund.made_after_all_at IS NOT NULL)
                                                       AND refund.updated_at < $7
                                                       AND coalesce(paid_out_of.channel, given_back.channel) = $6
                                    WHEN 'PAYOUT' THEN payout.channel_payout_id IS NOT NULL
                                                       AND (payout.status = 'SUCCEEDED' OR payout.returned_at IS NULL)
                                                       AND payout.updated_at < $7 END,
                    false) AS is_counted,
           coalesce(moved_at >= $8::timestamptz AND moved_at < $9::timestamptz
                    AND (trade.created_at IS NULL OR trade.created_at < $10), false) AS is_of_day
    -- A line of another kind looks up nothing.
    FROM chunk
    LEFT JOIN trades AS trade
           ON trade.channel = $6 AND trade.transaction_id = CASE WHEN chunk.kind = 'PAYMENT' THEN chunk.channel_id END
          AND trade.created_at < $7
    LEFT JOIN stray_payments AS stray ON stray.stray_id = trade.stray_id
    LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = trade.pay_order_id
    LEFT JOIN refunds AS refund
           ON refund.refund_id = CASE WHEN chunk.kind IN ('REFUND', 'REFUND_REVERSAL') THEN chunk.our_id END
    LEFT JOIN pay_orders AS paid_out_of ON paid_out_of.pay_order_id = refund.pay_order_id
    LEFT JOIN stray_payments AS given_back ON given_back.stray_id = refund.stray_id
    LEFT JOIN withdrawals AS payout
           ON payout.withdrawal_id = CASE WHEN chunk.kind = 'PAYOUT' THEN chunk.our_id END AND payout.channel = $6
    CROSS JOIN LATERAL (
        SELECT moved_at, known_as, our_id <> '' AND (known_as IS NOT NULL OR channel_id = '') AS tells
        FROM (SELECT least(coalesce(stray.paid_at, attempt.paid_at, refund.updated_at, payout.updated_at), trade.created_at),
                     -- Which of ours it is; each look-up is by a unique key.
                     coalesce(trade.transaction_id, payout.withdrawal_id,
                              CASE WHEN coalesce(paid_out_of.channel, given_back.channel) = $6 THEN refund.refund_id END)
             ) AS known (moved_at, known_as)
    ) AS ours
), classed AS MATERIALIZED (
    SELECT known.*,
           CASE WHEN kind = 'OTHER' THEN NULL
                WHEN is_listed_again OR also_listed_by IS NOT NULL THEN 'DUPLICATE'
                WHEN known_as IS NULL THEN 'MISSING_HERE'
                WHEN (our_amount, our_currency) <> (amount, currency) THEN 'AMOUNT_DIFFERS'
                WHEN kind = 'PAYMENT' AND told_of <> our_id AND our_id <> '' THEN 'STATUS_DIFFERS'
                -- A refund that was made and has failed since came back to us; one that was made after all has not.
                WHEN kind = 'REFUND' AND is_final AND our_status <> 'SUCCEEDED'
                     AND NOT (our_status = 'FAILED' AND was_made) THEN 'STATUS_DIFFERS'
                WHEN kind = 'REFUND' AND NOT is_final AND our_status = 'FAILED' AND NOT is_made_after_all THEN 'STATUS_DIFFERS'
                WHEN kind = 'REFUND_REVERSAL' AND (our_status <> 'FAILED' OR is_made_after_all) THEN 'STATUS_DIFFERS'
                WHEN kind = 'PAYOUT' AND NOT is_sent_out THEN 'STATUS_DIFFERS' END AS class,
           -- Ours counts once: on its own day, whichever statement lists it first, or beside the only line of it.
           CASE WHEN is_counted AND NOT is_listed_again AND (is_of_day OR also_listed_by IS NULL) AND our_currency = currency
                THEN our_amount END AS counted
    FROM known
), differing AS (
    SELECT kind, class, our_id, channel_id, counted, amount, our_status, currency, at, merchant_id, order_no, also_listed_by
    FROM classed WHERE class IS NOT NULL
    UNION ALL
    -- What a later day lists, too, is a repeat there. Where its statement came first, it could not know: then this day shows it.
    SELECT repeat.kind, 'DUPLICATE', repeat.our_id, repeat.channel_id, NULL, repeat.amount, line.our_status, repeat.currency,
           repeat.at, line.merchant_id, line.order_no, repeat.reconciliation_id
    FROM classed AS line
    CROSS JOIN LATERAL (
        -- A payment of ours is there once, whichever days list it; anything else may be the next day's at the edge alone.
        SELECT later.* FROM statement_lines AS later
        WHERE line.kind = 'PAYMENT' AND line.channel_id <> '' AND line.known_as IS NOT NULL
          AND later.reconciliation_id = ANY($16::text[])
          AND later.kind = line.kind AND later.channel_id = line.channel_id
        UNION ALL
        SELECT later.* FROM statement_lines AS later
        WHERE line.kind <> 'OTHER' AND line.channel_id <> '' AND (line.kind = 'PAYMENT' AND line.known_as IS NOT NULL) IS FALSE
          AND later.reconciliation_id = $17 AND later.at < $9::timestamptz + $12::interval
          AND later.kind = line.kind AND later.channel_id = line.channel_id
        UNION ALL
        SELECT later.* FROM statement_lines AS later
        WHERE line.kind IN ('REFUND', 'REFUND_REVERSAL', 'PAYOUT') AND line.tells AND line.is_final
          AND later.our_id = line.our_id AND later.kind <> 'PAYMENT'
          -- Found by our number alone: by its day a plan would read all of that day's.
          AND (later.kind = line.kind AND later.reconciliation_id = ANY($16::text[])) IS TRUE) AS repeat
    WHERE cardinality($16::text[]) > 0
), found AS (
    INSERT INTO reconciliation_items AS item
        (item_id, channel, reconciliation_id, class, kind, subject, our_id, channel_id, merchant_id, order_no, ours,
         theirs, our_status, currency, at, also_listed_by, action, moves_money, seen_round, due_at, created_at, updated_at)
    SELECT DISTINCT ON (class, kind, subject)
           'ri_' || upper(substr(encode(sha256(convert_to(concat_ws('/', $6, class, kind, subject), 'UTF8')), 'hex'), 1, 26)),
           $6, $1, class, kind, subject, our_id, channel_id, merchant_id, order_no, counted, amount, our_status, currency,
           at, also_listed_by, action, action = 'APPLY' AND NOT is_awaited, $14, $13, $13, $13
    FROM (SELECT differing.kind, differing.class, differing.our_id, differing.channel_id, differing.counted, differing.amount,
                 differing.our_status, differing.currency, differing.at, differing.also_listed_by,
                 -- What was made again has another number of theirs each time, or lies on another day; and a stranger's number may
                 -- stand beside many.
                 CASE WHEN differing.kind = 'PAYMENT' OR differing.our_id = '' OR class = 'DUPLICATE' AND differing.channel_id <> ''
                      THEN differing.channel_id
                      WHEN class = 'MISSING_HERE' THEN differing.our_id || ' ' || differing.channel_id
                      WHEN class = 'STATUS_DIFFERS'
                      THEN concat_ws(' ', differing.our_id, nullif(differing.channel_id, ''),
                                     (SELECT day FROM reconciliations AS run WHERE run.reconciliation_id = $1))
                      ELSE differing.our_id END AS subject,
                 coalesce(differing.merchant_id, asked.merchant_id) AS merchant_id,
                 coalesce(differing.order_no, asked.order_no) AS order_no,
                 CASE WHEN class = 'MISSING_HERE' AND differing.kind = 'PAYMENT' THEN
                          -- Of another amount or currency than was asked, it may be the statement that is wrong: the channel's
                          -- own word counts.
                          CASE WHEN (asked.amount, asked.currency) <> (differing.amount, differing.currency)
                               THEN 'ASK' ELSE 'APPLY' END
                      WHEN class IN ('MISSING_HERE', 'DUPLICATE') OR differing.kind = 'PAYMENT' AND class = 'STATUS_DIFFERS'
                          THEN 'ESCALATE'
                      ELSE 'ASK' END AS action,
                 -- What an open order waits for pays it, and gives nothing back.
                 coalesce(orders.status = 'PENDING' AND (asked.amount, asked.currency) = (differing.amount, differing.currency),
                          false) AS is_awaited
          FROM differing
          LEFT JOIN pay_orders AS asked
                 ON differing.kind = 'PAYMENT' AND asked.pay_order_id = differing.our_id AND asked.channel = $6
          LEFT JOIN orders ON orders.merchant_id = asked.merchant_id AND orders.order_no = asked.order_no) AS shown
    -- What this day's own lines say comes first, then what other days list, too.
    ORDER BY class, kind, subject, counted IS NULL, also_listed_by IS NULL
    -- It follows the statement that is read now, but where it was carried out. What was none any more, and what a person
    -- was shown of other amounts, is decided over anew, by nobody yet; what a person dismissed stays so while the same is said
    -- of it. What another day found and finds no longer is this day's, and so is what a person dismissed of another amount.
    ON CONFLICT ON CONSTRAINT reconciliation_items_once DO UPDATE
    SET (status, decided_by, decided_at, moves_money) =
            (SELECT CASE WHEN is_known THEN item.status ELSE 'PROPOSED' END,
                    CASE WHEN is_known THEN item.decided_by END, CASE WHEN is_known THEN item.decided_at END,
                    -- What asking showed stays known, and what was agreed to agreed to.
                    CASE WHEN is_known AND item.status = 'APPLYING' THEN item.moves_money
                         ELSE excluded.moves_money OR excluded.action = 'ASK' AND is_known AND item.moves_money END
             FROM (SELECT item.status <> 'RESOLVED'
                          AND (item.ours, item.theirs, item.our_id, item.currency)
                              IS NOT DISTINCT FROM (excluded.ours, excluded.theirs, excluded.our_id, excluded.currency)
                          AS is_known) AS look),
        reconciliation_id = excluded.reconciliation_id,
        our_id = excluded.our_id, channel_id = excluded.channel_id, merchant_id = excluded.merchant_id,
        order_no = excluded.order_no, ours = excluded.ours, theirs = excluded.theirs, our_status = excluded.our_status,
        currency = excluded.currency, at = excluded.at, action = excluded.action,
        also_listed_by = coalesce(excluded.also_listed_by, CASE WHEN item.status <> 'RESOLVED' THEN item.also_listed_by END),
        seen_round = excluded.seen_round, attempts = 0, due_at = excluded.due_at, version = item.version + 1
    WHERE (item.reconciliation_id = excluded.reconciliation_id OR item.status = 'RESOLVED'
           OR item.status = 'DISMISSED'
              AND (item.theirs, item.our_id, item.currency)
                  IS DISTINCT FROM (excluded.theirs, excluded.our_id, excluded.currency))
      AND item.status <> 'APPLIED'
), last AS (
    SELECT kind, channel_id, line_no FROM chunk ORDER BY kind DESC, channel_id DESC, line_no DESC LIMIT 1
)
SELECT summed.kind AS "kind!: StatementKind", summed.currency AS "currency!: Currency", sum(lines)::bigint AS "lines!",
       sum(theirs)::bigint AS "theirs!", sum(fees)::bigint AS "fees!", sum(differences)::bigint AS "differences!",
       sum(edges)::bigint AS "edges!",
       last.kind AS "last_kind!", last.channel_id AS "last_channel_id!", last.line_no AS "last_line_no!"
FROM (
    SELECT kind, currency, count(*) AS lines, sum(amount) AS theirs, sum(fee) AS fees,
           coalesce(sum(coalesce(counted, 0) - amount) FILTER (WHERE class IS NOT NULL), 0) AS differences,
           -(coalesce(sum(CASE WHEN class IS NULL THEN amount ELSE coalesce(counted, 0) END)
                      FILTER (WHERE NOT (is_counted AND is_of_day)), 0)) AS edges
    FROM classed GROUP BY kind, currency
    UNION ALL
    -- Ours of another currency is a difference there, too.
    SELECT kind, our_currency, 0, 0, 0, sum(our_amount), 0
    FROM classed WHERE our_currency <> currency AND is_counted AND is_of_day AND NOT is_listed_again
    GROUP BY kind, our_currency
) AS summed CROSS JOIN last
GROUP BY summed.kind, summed.currency, last.kind, last.channel_id, last.line_no

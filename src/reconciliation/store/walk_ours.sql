-- What was recorded here in a stretch of time, against the statement's lines: what they lack becomes an item, and the
-- rest is counted.
--
-- $1 day, $2 other days whose lines are here, $3 channel, $4 $5 the stretch, $6 $7 the day's beginning and end, $8 $9
-- what this day answers for: movements before or behind are another day's to miss, $10 now, $11 round.
WITH moved AS MATERIALIZED (
    SELECT 'PAYMENT' AS kind, trade.transaction_id AS channel_id,
           coalesce(stray.out_trade_no, attempt.pay_order_id) AS our_id,
           coalesce(stray.amount, attempt.amount) AS amount, coalesce(stray.currency, attempt.currency) AS currency,
           -- Money moved before it was written down here, whatever the clock says that dated it: else that of a clock
           -- ahead of ours would be walked by one day and answered for by another.
           least(coalesce(stray.paid_at, attempt.paid_at), trade.created_at) AS at, trade.created_at AS recorded_at,
           coalesce(stray.status, attempt.status) AS our_status,
           coalesce(stray.merchant_id, attempt.merchant_id) AS merchant_id,
           coalesce(stray.order_no, attempt.order_no) AS order_no, NULL::integer AS turn, NULL::timestamptz AS back_at
    FROM trades AS trade
    LEFT JOIN stray_payments AS stray ON stray.stray_id = trade.stray_id
    LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = trade.pay_order_id
    -- Found by their age alone: by their channel a plan would read all of them for every stretch.
    WHERE (trade.channel = $3) IS TRUE AND trade.created_at >= $4 AND trade.created_at < $5
    UNION ALL
    SELECT 'REFUND', coalesce(refund.channel_refund_id, ''), refund.refund_id, refund.amount, refund.currency,
           refund.updated_at, refund.updated_at, refund.status, refund.merchant_id, refund.order_no, NULL, NULL
    FROM refunds AS refund
    LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = refund.pay_order_id
    LEFT JOIN stray_payments AS stray ON stray.stray_id = refund.stray_id
    WHERE refund.channel_refund_id IS NOT NULL AND refund.updated_at >= $4 AND refund.updated_at < $5
      AND (refund.status = 'SUCCEEDED' OR refund.made_after_all_at IS NOT NULL)
      AND coalesce(attempt.channel, stray.channel) = $3
    UNION ALL
    SELECT 'PAYOUT', coalesce(channel_payout_id, ''), withdrawal_id, amount, currency, updated_at, updated_at, status,
           merchant_id, NULL,
           -- The how-manieth time it is that it went out, where it had come back before; it stays so when that comes back.
           nullif(returned_times - (returned_at IS NOT NULL)::integer, 0),
           -- Since when its money was back before that: what was listed until then is another time's.
           CASE WHEN returned_times > 0 AND returned_at IS NULL THEN (
               SELECT leg.updated_at FROM withdrawal_legs AS leg
               WHERE leg.withdrawal_id = withdrawals.withdrawal_id AND leg.leg = 'REVERSAL') END
    FROM withdrawals
    -- Also what was made after it had been given back, but where that was never so.
    WHERE channel_payout_id IS NOT NULL AND (status = 'SUCCEEDED' OR returned_at IS NULL)
      AND updated_at >= $4 AND updated_at < $5 AND channel = $3
), looked AS MATERIALIZED (
    SELECT moved.*, at >= $6 AND at < $7 AS is_of_day,
           -- One look-up for each, with LIMIT: as EXISTS the planner would read all lines for every stretch. By our number alone:
           -- by its kind it would read all of that kind.
           CASE kind
               WHEN 'PAYMENT' THEN (
                   SELECT true FROM statement_lines AS line
                   WHERE line.reconciliation_id = $1 AND line.kind = 'PAYMENT' AND line.channel_id = moved.channel_id LIMIT 1)
               WHEN 'REFUND' THEN (
                   SELECT true FROM statement_lines AS line
                   WHERE line.our_id = moved.our_id AND line.kind <> 'PAYMENT'
                     AND (line.kind = 'REFUND' AND line.reconciliation_id = $1) IS TRUE LIMIT 1)
               ELSE (
                   SELECT true FROM statement_lines AS line
                   WHERE line.our_id = moved.our_id AND line.kind <> 'PAYMENT'
                     AND (line.kind = 'PAYOUT' AND line.reconciliation_id = $1
                          AND (moved.turn IS NULL
                               OR line.channel_id IN ('', moved.channel_id) AND (back_at IS NULL OR line.at > back_at)))
                         IS TRUE LIMIT 1) END IS NOT NULL
               AS is_listed
    FROM moved
), judged AS MATERIALIZED (
    SELECT looked.*,
           NOT is_listed AND at < $9::timestamptz
           -- Of this day, or recorded on it and so late that its own day could not know of it.
           AND (at >= $8 OR recorded_at >= $6 AND recorded_at < $7)
           -- Channels may book a movement of one day's edge on the other.
           AND CASE kind
               WHEN 'PAYMENT' THEN (
                   SELECT true FROM statement_lines AS line
                   WHERE line.reconciliation_id = ANY($2::text[]) AND line.kind = 'PAYMENT'
                     AND line.channel_id = looked.channel_id LIMIT 1)
               WHEN 'REFUND' THEN (
                   SELECT true FROM statement_lines AS line
                   WHERE line.our_id = looked.our_id AND line.kind <> 'PAYMENT'
                     AND (line.kind = 'REFUND' AND line.reconciliation_id = ANY($2::text[])) IS TRUE LIMIT 1)
               ELSE (
                   SELECT true FROM statement_lines AS line
                   WHERE line.our_id = looked.our_id AND line.kind <> 'PAYMENT'
                     AND (line.kind = 'PAYOUT' AND line.reconciliation_id = ANY($2::text[])
                          AND (looked.turn IS NULL
                               OR line.channel_id IN ('', looked.channel_id) AND (back_at IS NULL OR line.at > back_at)))
                         IS TRUE LIMIT 1) END IS NULL
           -- Money that was brought in from the statement of a day whose lines are forgotten was on that one.
           AND CASE kind WHEN 'PAYMENT' THEN (
               SELECT (SELECT run.forgotten_at FROM reconciliations AS run WHERE run.reconciliation_id = item.reconciliation_id)
               FROM reconciliation_items AS item
               WHERE item.channel = $3 AND item.class = 'MISSING_HERE' AND item.kind = 'PAYMENT'
                 AND item.subject = looked.channel_id AND item.status = 'APPLIED' LIMIT 1) END IS NULL AS is_missing
    FROM looked
), found AS (
    INSERT INTO reconciliation_items AS item
        (item_id, channel, reconciliation_id, class, kind, subject, our_id, channel_id, merchant_id, order_no, ours,
         our_status, currency, at, action, moves_money, seen_round, due_at, created_at, updated_at)
    SELECT 'ri_' || upper(substr(encode(sha256(convert_to(concat_ws('/', $3::text, 'MISSING_THERE', kind, subject), 'UTF8')),
                                        'hex'), 1, 26)),
           $3, $1, 'MISSING_THERE', kind, subject, our_id, channel_id, merchant_id, order_no, amount, our_status, currency,
           at, 'ASK', false, $11, $10, $10, $10
    FROM (SELECT judged.*, CASE kind WHEN 'PAYMENT' THEN channel_id ELSE concat_ws(' ', our_id, turn) END AS subject FROM judged) AS judged
    WHERE is_missing
    -- It follows the statement that is read now, but where it was carried out. What was none any more, and what a person
    -- was shown of other amounts, is decided over anew, by nobody yet; what a person dismissed stays so while the same is said
    -- of it. What another day missed and misses no longer is this day's.
    ON CONFLICT ON CONSTRAINT reconciliation_items_once DO UPDATE
    SET (status, decided_by, decided_at, action, moves_money) =
            (SELECT CASE WHEN is_known THEN item.status ELSE 'PROPOSED' END,
                    CASE WHEN is_known THEN item.decided_by END, CASE WHEN is_known THEN item.decided_at END,
                    -- What asking showed is not to be asked again.
                    CASE WHEN is_known THEN item.action ELSE excluded.action END, is_known AND item.moves_money
             FROM (SELECT item.status <> 'RESOLVED'
                          AND (item.ours, item.theirs, item.our_id, item.currency)
                              IS NOT DISTINCT FROM (excluded.ours, excluded.theirs, excluded.our_id, excluded.currency)
                          AS is_known) AS look),
        reconciliation_id = excluded.reconciliation_id,
        our_id = excluded.our_id, channel_id = excluded.channel_id, merchant_id = excluded.merchant_id,
        order_no = excluded.order_no, ours = excluded.ours, theirs = excluded.theirs, our_status = excluded.our_status,
        currency = excluded.currency, at = excluded.at,
        seen_round = excluded.seen_round, attempts = 0, due_at = excluded.due_at, version = item.version + 1
    WHERE (item.reconciliation_id = excluded.reconciliation_id OR item.status = 'RESOLVED')
      AND item.status <> 'APPLIED'
)
SELECT kind AS "kind!: StatementKind", currency AS "currency!: Currency",
       count(*) FILTER (WHERE is_of_day) AS "our_count!",
       coalesce(sum(amount) FILTER (WHERE is_of_day), 0)::bigint AS "ours!",
       coalesce(sum(amount) FILTER (WHERE is_missing), 0)::bigint AS "differences!",
       (coalesce(sum(amount) FILTER (WHERE is_of_day AND NOT is_listed AND NOT is_missing), 0)
        - coalesce(sum(amount) FILTER (WHERE is_missing AND NOT is_of_day), 0))::bigint AS "edges!"
FROM judged GROUP BY kind, currency

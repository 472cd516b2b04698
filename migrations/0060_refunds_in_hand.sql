-- A refund may begin in the very statement that asks for it: whoever writes it has its task in hand then, and asks its channel
-- at once. Its history is the same, two changes in one statement: it was asked for, and requested. All else is as it was.
CREATE OR REPLACE FUNCTION write_refund_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO refund_history (refund_id, seq, from_status, to_status, event, created_at)
    SELECT refund_id, coalesce(last.seq, 0) + 1, last.to_status,
           CASE WHEN begins THEN 'PENDING' ELSE status END,
           CASE WHEN last.seq IS NULL AND TG_OP = 'INSERT' THEN 'ASKED'
                WHEN last.seq IS NULL THEN 'FOUND'
                ELSE CASE last.to_status || ' ' || status
                    WHEN 'AWAITING_APPROVAL PENDING' THEN 'APPROVED'
                    WHEN 'AWAITING_APPROVAL FAILED' THEN 'REJECTED'
                    WHEN 'PENDING PROCESSING' THEN 'REQUESTED'
                    WHEN 'PENDING SUCCEEDED' THEN 'SUCCEEDED'
                    WHEN 'PROCESSING SUCCEEDED' THEN 'SUCCEEDED'
                    WHEN 'PENDING FAILED' THEN 'FAILED'
                    WHEN 'PROCESSING FAILED' THEN 'FAILED'
                    WHEN 'SUCCEEDED FAILED' THEN 'FAILED'
                    ELSE 'BY_HAND' END
           END, updated_at
    FROM changed
    LEFT JOIN LATERAL (SELECT seq, to_status FROM refund_history AS past
                       WHERE past.refund_id = changed.refund_id ORDER BY seq DESC LIMIT 1) AS last ON true
    CROSS JOIN LATERAL (SELECT TG_OP = 'INSERT' AND last.seq IS NULL AND status = 'PROCESSING' AS begins) AS it
    WHERE status IS DISTINCT FROM last.to_status
    UNION ALL
    SELECT refund_id, 2, 'PENDING', status, 'REQUESTED', updated_at
    FROM changed
    WHERE TG_OP = 'INSERT' AND status = 'PROCESSING'
      -- As it was before this statement, of which nothing is seen yet.
      AND (SELECT seq FROM refund_history AS past WHERE past.refund_id = changed.refund_id LIMIT 1) IS NULL;
    RETURN NULL;
END
$$;

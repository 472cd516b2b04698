-- A commission's history has as many lines as the version of its settlement says.
--
-- What had been claimed back by the time of 0033 was carried over. Where all of it had been given again by then, nothing was,
-- and what came after stood there as if it had been the first: the audit, which counts the lines, would miss some for ever.

-- What exists is read from end to end.
SET LOCAL enable_seqscan = on;
SET LOCAL enable_hashjoin = on;

-- Nobody writes a line meanwhile.
LOCK TABLE settlements IN SHARE ROW EXCLUSIVE MODE;

CREATE TEMPORARY TABLE unwritten ON COMMIT DROP AS
SELECT merchant_id, order_no, given.created_at
FROM settlements AS given
LEFT JOIN (SELECT merchant_id, order_no, count(*) AS lines, bool_or(event = 'CARRIED_OVER') AS is_carried
           FROM settlement_history GROUP BY merchant_id, order_no) AS history USING (merchant_id, order_no)
WHERE version > 1 AND version - 1 <> coalesce(lines, 0) AND is_carried IS NOT TRUE;

-- What came after makes way, by numbers that no line has.
UPDATE settlement_history AS line SET seq = -seq
FROM unwritten WHERE line.merchant_id = unwritten.merchant_id AND line.order_no = unwritten.order_no;
UPDATE settlement_history SET seq = 1 - seq WHERE seq < 0;
INSERT INTO settlement_history (merchant_id, order_no, seq, from_status, to_status, event, clawed_back, created_at)
SELECT merchant_id, order_no, 1, 'SETTLED', 'SETTLED', 'CARRIED_OVER', 0, created_at FROM unwritten;

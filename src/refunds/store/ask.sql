-- `Ask`: new refunds, a task for each that need not wait for an operator, and the kept answers.
WITH new AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[],
                         $9::text[], $10::boolean[], $11::text[])
                  AS new (refund_id, merchant_id, refund_no, order_no, pay_order_id, amount, currency, status, reason,
                          return_stock, asked_by)
  ), made AS (
    INSERT INTO refunds (refund_id, merchant_id, refund_no, order_no, pay_order_id, amount, currency, status, reason,
                         return_stock, asked_by, created_at, updated_at)
    SELECT new.*, $18, $18 FROM new
  ), driven AS (
    INSERT INTO compensations (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
    SELECT 'REDO_BUSINESS', 'DRIVE_REFUND', refund_id, merchant_id, order_no, $18, $18, $18
    FROM new WHERE status = 'PENDING'
  )
INSERT INTO idempotency_keys (merchant_id, key, request_hash, order_no, status, body, created_at)
SELECT *, $18::timestamptz FROM unnest($12::text[], $13::text[], $14::bytea[], $15::text[], $16::smallint[], $17::bytea[])

-- `Ask`: new refunds, a task for each that need not wait for an operator, taken where the refund has begun, and the kept
-- answers. Gives the tasks that are taken.
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
    INSERT INTO compensations (kind, action, subject, merchant_id, order_no, status, attempts, claims, due_at, created_at,
                               updated_at)
    SELECT 'REDO_BUSINESS', 'DRIVE_REFUND', refund_id, merchant_id, order_no,
           CASE WHEN begun THEN 'RUNNING' ELSE 'READY' END, begun::integer, begun::integer,
           CASE WHEN begun THEN $19::timestamptz ELSE $18 END, $18, $18
    FROM (SELECT new.*, status = $20 AS begun FROM new WHERE status <> $21) AS let_go
    RETURNING id, subject, status
  ), kept AS (
    INSERT INTO idempotency_keys (merchant_id, key, request_hash, order_no, status, body, created_at)
    SELECT *, $18::timestamptz FROM unnest($12::text[], $13::text[], $14::bytea[], $15::text[], $16::smallint[], $17::bytea[])
  )
SELECT id, subject FROM driven WHERE status = 'RUNNING'

-- `Ask`: new refunds, a task for each that need not wait for an operator, taken where the refund has begun, and the kept
-- answers. Gives the tasks that are taken.
WITH new AS MATERIALIZED (
    SELECT unnest($1::text[]) AS refund_id, unnest($2::text[]) AS merchant_id, unnest($3::text[]) AS refund_no,
           unnest($4::text[]) AS order_no, unnest($5::text[]) AS pay_order_id, unnest($6::bigint[]) AS amount,
           unnest($7::text[]) AS currency, unnest($8::text[]) AS status, unnest($9::text[]) AS reason,
           unnest($10::boolean[]) AS return_stock, unnest($11::text[]) AS asked_by
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
    SELECT unnest($12::text[]), unnest($13::text[]), unnest($14::bytea[]), unnest($15::text[]),
           unnest($16::smallint[]), unnest($17::bytea[]), $18::timestamptz
  )
SELECT id, subject FROM driven WHERE status = 'RUNNING'

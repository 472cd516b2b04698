-- A healthy world, half a day old at 2030-01-01 00:00 UTC: one thing in every state that needs no further look.
SET LOCAL timezone = 'UTC';

INSERT INTO merchants (merchant_id, name, notify_secret, created_at, updated_at)
VALUES ('m', 'Merchant', '\x00', '2029-12-31 12:00', '2029-12-31 12:00');
INSERT INTO skus (merchant_id, sku, stock, lock_stock, created_at, updated_at)
VALUES ('m', 'a', 100, 2, '2029-12-31 12:00', '2029-12-31 12:00');

-- P waits for money, D is paid (its first attempt was given up), C was closed and paid late, T topped its user up.
INSERT INTO orders (merchant_id, order_no, user_id, kind, status, close_reason, amount, currency, paid_by, paid_at,
                    expires_at, attempts, created_at, updated_at, version)
VALUES ('m', 'P', 'u', 'SALE', 'PENDING', NULL, 100, 'CNY', NULL, NULL, '2030-01-02', 1, '2029-12-31 12:00', '2029-12-31 12:00', 1),
       ('m', 'D', 'u', 'SALE', 'PAID', NULL, 100, 'CNY', 'po_d1', '2029-12-31 12:00', '2029-12-31 12:30', 2, '2029-12-31 12:00', '2029-12-31 12:00', 2),
       ('m', 'C', 'u', 'SALE', 'CLOSED', 'TIMEOUT', 100, 'CNY', NULL, NULL, '2029-12-31 12:30', 2, '2029-12-31 12:00', '2029-12-31 12:00', 2),
       ('m', 'T', 'u', 'TOPUP', 'PAID', NULL, 300, 'CNY', 'po_t1', '2029-12-31 12:00', '2029-12-31 12:30', 1, '2029-12-31 12:00', '2029-12-31 12:00', 2);
INSERT INTO order_items
VALUES ('m', 'P', 1, 'a', 2, 50), ('m', 'D', 1, 'a', 1, 100), ('m', 'C', 1, 'a', 4, 25);
INSERT INTO stock_reservations
VALUES ('m', 'P', 1, 'a', 2, 'LOCKED', '2029-12-31 12:00', '2029-12-31 12:00'),
       ('m', 'D', 1, 'a', 1, 'DEDUCTED', '2029-12-31 12:00', '2029-12-31 12:00'),
       ('m', 'C', 1, 'a', 4, 'RELEASED', '2029-12-31 12:00', '2029-12-31 12:00');

INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, status, amount, currency, pay_url,
                        transaction_id, paid_at, expires_at, created_at, updated_at, version)
VALUES ('po_p1', 'm', 'P', 'u', 'sandbox', 'PAYING', 100, 'CNY', 'https://pay', NULL, NULL, '2030-01-02', '2029-12-31 12:00', '2029-12-31 12:00', 2),
       ('po_d0', 'm', 'D', 'u', 'sandbox', 'CLOSED', 100, 'CNY', 'https://pay', NULL, NULL, '2029-12-31 12:30', '2029-12-31 12:00', '2029-12-31 12:00', 3),
       ('po_d1', 'm', 'D', 'u', 'sandbox', 'PAID', 100, 'CNY', 'https://pay', 'T-d1', '2029-12-31 12:00', '2029-12-31 12:30', '2029-12-31 12:00', '2029-12-31 12:00', 3),
       ('po_c0', 'm', 'C', 'u', 'sandbox', 'CLOSED', 100, 'CNY', 'https://pay', NULL, NULL, '2029-12-31 12:30', '2029-12-31 12:00', '2029-12-31 12:00', 3),
       ('po_c1', 'm', 'C', 'u', 'sandbox', 'PAID', 100, 'CNY', NULL, 'T-c1', '2029-12-31 12:00', '2029-12-31 12:30', '2029-12-31 12:00', '2029-12-31 12:00', 3),
       ('po_t1', 'm', 'T', 'u', 'sandbox', 'PAID', 300, 'CNY', 'https://pay', 'T-t1', '2029-12-31 12:00', '2029-12-31 12:30', '2029-12-31 12:00', '2029-12-31 12:00', 3);
INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event, created_at)
SELECT 'm', order_no, pay_order_id, seq, from_status, to_status, event, '2029-12-31 12:00'
FROM (VALUES ('P', '', 1, NULL, 'PENDING', 'CREATED'),
             ('D', '', 1, NULL, 'PENDING', 'CREATED'), ('D', '', 2, 'PENDING', 'PAID', 'PAYMENT_CONFIRMED'),
             ('C', '', 1, NULL, 'PENDING', 'CREATED'), ('C', '', 2, 'PENDING', 'CLOSED', 'DEADLINE_PASSED'),
             ('T', '', 1, NULL, 'PENDING', 'CREATED'), ('T', '', 2, 'PENDING', 'PAID', 'PAYMENT_CONFIRMED'),
             ('T', 'po_t1', 1, NULL, 'INIT', 'BEGUN'), ('T', 'po_t1', 2, 'INIT', 'PAYING', 'LINK_MADE'),
             ('T', 'po_t1', 3, 'PAYING', 'PAID', 'PAYMENT_CONFIRMED'),
             ('P', 'po_p1', 1, NULL, 'INIT', 'BEGUN'), ('P', 'po_p1', 2, 'INIT', 'PAYING', 'LINK_MADE'),
             ('D', 'po_d0', 1, NULL, 'INIT', 'BEGUN'), ('D', 'po_d0', 2, 'INIT', 'PAYING', 'LINK_MADE'),
             ('D', 'po_d0', 3, 'PAYING', 'CLOSED', 'ATTEMPT_CLOSED'),
             ('D', 'po_d1', 1, NULL, 'INIT', 'BEGUN'), ('D', 'po_d1', 2, 'INIT', 'PAYING', 'LINK_MADE'),
             ('D', 'po_d1', 3, 'PAYING', 'PAID', 'PAYMENT_CONFIRMED'),
             ('C', 'po_c0', 1, NULL, 'INIT', 'BEGUN'), ('C', 'po_c0', 2, 'INIT', 'PAYING', 'LINK_MADE'),
             ('C', 'po_c0', 3, 'PAYING', 'CLOSED', 'ATTEMPT_CLOSED'),
             ('C', 'po_c1', 1, NULL, 'INIT', 'BEGUN'), ('C', 'po_c1', 2, 'INIT', 'CLOSED', 'ATTEMPT_CLOSED'),
             ('C', 'po_c1', 3, 'CLOSED', 'PAID', 'PAYMENT_CONFIRMED'))
     AS change (order_no, pay_order_id, seq, from_status, to_status, event);

-- Stray: C's late money is back (after a refusal, and after a refund that the channel took back), D's second money is held, D's wrong money is on its way back, nobody's is kept.
INSERT INTO stray_payments (stray_id, channel, transaction_id, out_trade_no, pay_order_id, merchant_id, order_no,
                            amount, currency, reason, status, paid_at, created_at, updated_at)
SELECT stray_id, 'sandbox', transaction_id, out_trade_no, pay_order_id, merchant_id, order_no, amount, currency,
       reason, status, '2029-12-31 12:00', '2029-12-31 12:00', '2029-12-31 12:00'
FROM (VALUES ('sp_c', 'T-c1', 'po_c1', 'po_c1', 'm', 'C', 100, 'CNY', 'LATE_PAYMENT', 'REFUNDED'),
             ('sp_d', 'T-d2', 'po_d1', 'po_d1', 'm', 'D', 100, 'CNY', 'DUPLICATE_PAYMENT', 'HELD'),
             ('sp_r', 'T-d3', 'po_d0', 'po_d0', 'm', 'D', 70, 'CNY', 'AMOUNT_MISMATCH', 'REFUNDING'),
             ('sp_k', 'T-k', 'nobody', NULL, NULL, NULL, 5, 'USD', 'UNKNOWN_ORDER', 'KEPT'))
     AS stray (stray_id, transaction_id, out_trade_no, pay_order_id, merchant_id, order_no, amount, currency,
               reason, status);
-- Beside the strays' refunds, part of what D paid is on its way back.
INSERT INTO refunds (refund_id, merchant_id, refund_no, order_no, pay_order_id, stray_id, amount, currency, status,
                     reason, failure, created_at, updated_at)
SELECT refund_id, 'm', refund_id, order_no, pay_order_id, stray_id, amount, 'CNY', status, 'R', failure,
       '2029-12-31 12:00', '2029-12-31 12:00'
FROM (VALUES ('rf_c0', 'C', NULL, 'sp_c', 100, 'FAILED', 'no'), ('rf_c1', 'C', NULL, 'sp_c', 100, 'SUCCEEDED', NULL),
             ('rf_cx', 'C', NULL, 'sp_c', 100, 'FAILED', 'taken back'),
             ('rf_r', 'D', NULL, 'sp_r', 70, 'PENDING', NULL), ('rf_d', 'D', 'po_d1', NULL, 40, 'PROCESSING', NULL))
     AS refund (refund_id, order_no, pay_order_id, stray_id, amount, status, failure);

INSERT INTO webhook_inbox (channel, event_id, subject, merchant_id, order_no, verdict, body, received_at, updated_at)
SELECT 'sandbox', event_id, subject, merchant_id, order_no, verdict, '\x00', received_at::timestamptz, received_at::timestamptz
FROM (VALUES ('e1', 'po_d1', 'm', 'D', 'APPLIED', '2029-12-31 12:00'),
             ('e2', 'po_c1', 'm', 'C', 'STRAY', '2029-12-31 12:00'),
             ('e3', 'nobody', NULL, NULL, 'UNKNOWN_ORDER', '2029-12-31 12:00'),
             ('e4', 'po_d0', 'm', 'D', 'AMOUNT_MISMATCH', '2029-12-31 12:00'),
             ('e5', 'po_new', NULL, NULL, 'UNMATCHED', '2029-12-31 23:55'))
     AS inbox (event_id, subject, merchant_id, order_no, verdict, received_at);

INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
VALUES ('m', 'D', 'order.paid', 1, '{}', '2029-12-31 12:00'),
       ('m', 'T', 'order.paid', 1, '{}', '2029-12-31 12:00'),
       ('m', 'C', 'order.closed', 1, '{}', '2029-12-31 12:00'),
       ('m', 'C', 'stray_payment.received', 1, '{"stray_id": "sp_c"}', '2029-12-31 12:00'),
       ('m', 'D', 'stray_payment.received', 1, '{"stray_id": "sp_d"}', '2029-12-31 12:00'),
       ('m', 'D', 'stray_payment.received', 1, '{"stray_id": "sp_r"}', '2029-12-31 12:00'),
       (NULL, NULL, 'stray_payment.received', 1, '{"stray_id": "sp_k"}', '2029-12-31 12:00'),
       (NULL, NULL, 'stray_payment.kept', 1, '{"stray_id": "sp_k"}', '2029-12-31 12:00'),
       ('m', 'C', 'refund.finished', 1, '{"refund_no": "rf_c0", "status": "FAILED"}', '2029-12-31 12:00'),
       ('m', 'C', 'refund.finished', 1, '{"refund_no": "rf_cx", "status": "SUCCEEDED"}', '2029-12-31 12:00'),
       ('m', 'C', 'refund.reversed', 1, '{"refund_no": "rf_cx"}', '2029-12-31 12:00'),
       ('m', 'C', 'refund.finished', 1, '{"refund_no": "rf_c1", "status": "SUCCEEDED"}', '2029-12-31 12:00');

INSERT INTO compensations (kind, action, subject, status, due_at, created_at, updated_at)
VALUES ('REDO_BUSINESS', 'DRIVE_REFUND', 'rf_r', 'READY', '2030-01-01 00:01', '2029-12-31 12:00', '2029-12-31 12:00'),
       ('REDO_BUSINESS', 'DRIVE_REFUND', 'rf_d', 'RUNNING', '2030-01-01 00:00:20', '2029-12-31 12:00', '2029-12-31 12:00'),
       ('REDO_BUSINESS', 'REMATCH_CALLBACK', 'sandbox/e5', 'READY', '2030-01-01 00:01', '2029-12-31 23:55', '2029-12-31 23:55'),
       ('REDO_BUSINESS', 'CLOSE_PAY_ORDER', 'po_d0', 'DEAD', '2029-12-31 18:00', '2029-12-31 12:00', '2029-12-31 18:00');
INSERT INTO exceptions (exception_id, kind, subject, detail, status, action, resolved_by, reason, created_at, updated_at)
VALUES ('ex_d', 'STRAY_MONEY', 'sp_d', 'twice', 'OPEN', NULL, NULL, NULL, '2029-12-31 12:00', '2029-12-31 12:00'),
       ('ex_r', 'AMOUNT_MISMATCH', 'sp_r', 'wrong', 'OPEN', NULL, NULL, NULL, '2029-12-31 12:00', '2029-12-31 12:00'),
       ('ex_k', 'UNKNOWN_ORDER', 'sp_k', 'whose?', 'RESOLVED', 'KEEP', 'ann', 'ours', '2029-12-31 12:00', '2029-12-31 12:00'),
       ('ex_t', 'DEAD_TASK', 'po_d0', 'silent', 'RESOLVED', 'NONE', 'ann', 'seen', '2029-12-31 18:00', '2029-12-31 18:00');

INSERT INTO trades (channel, transaction_id, pay_order_id, created_at)
SELECT channel, transaction_id, pay_order_id, pay_orders.paid_at FROM pay_orders JOIN orders USING (merchant_id, order_no)
WHERE orders.paid_by = pay_order_id;
INSERT INTO trades (channel, transaction_id, stray_id, created_at)
SELECT channel, transaction_id, stray_id, paid_at FROM stray_payments;

-- Requests with a key: one made P, one linked it, one closed C.
INSERT INTO idempotency_keys (merchant_id, key, request_hash, order_no, status, body, created_at)
VALUES ('m', 'made P', sha256('1'), 'P', 201, '{"order_no": "P", "close_reason": null}', '2029-12-31 12:00'),
       ('m', 'linked P', sha256('2'), 'P', 200, '{"pay_order_id": "po_p1", "pay_url": "https://pay"}', '2029-12-31 12:00'),
       ('m', 'closed C', sha256('3'), 'C', 200, '{"order_no": "C", "close_reason": "CANCELLED"}', '2029-12-31 12:00');

-- ==== the books, and what came after them ====
-- All above is a world of the version before the books: `upgrade.rs` migrates it. What a later version adds or changes
-- stands below.

-- Triggers are off, so the balances are written here too: two of them are not folded yet.
INSERT INTO accounts (account_id, balance, created_at, updated_at)
SELECT account_id, balance, '2029-12-31 12:00', '2029-12-31 12:00'
FROM (VALUES ('CHANNEL:sandbox:CNY', 500), ('CHANNEL:sandbox:USD', 5), ('SUSPENSE:sandbox:CNY', 170),
             ('SUSPENSE:sandbox:USD', 0), ('MERCHANT:m:CNY', 0), ('USER_AVAILABLE:m:u:CNY', 300),
             ('PLATFORM_REVENUE:USD', 5))
     AS account (account_id, balance);
INSERT INTO account_movements VALUES ('CHANNEL:sandbox:CNY', 70), ('MERCHANT:m:CNY', 40), ('MERCHANT:m:CNY', 60);
INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, reverses, created_at)
SELECT transaction_id, kind, merchant_id, order_no, reverses, '2029-12-31 12:00'
FROM (VALUES ('PAYMENT:po_d1', 'PAYMENT', 'm', 'D', NULL), ('PAYMENT:po_t1', 'PAYMENT', 'm', 'T', NULL),
             ('STRAY_PAYMENT:sp_c', 'STRAY_PAYMENT', 'm', 'C', NULL),
             ('STRAY_PAYMENT:sp_d', 'STRAY_PAYMENT', 'm', 'D', NULL),
             ('STRAY_PAYMENT:sp_r', 'STRAY_PAYMENT', 'm', 'D', NULL),
             ('STRAY_PAYMENT:sp_k', 'STRAY_PAYMENT', NULL, NULL, NULL),
             ('STRAY_KEPT:sp_k', 'STRAY_KEPT', NULL, NULL, NULL),
             ('REFUND:rf_cx', 'REFUND', 'm', 'C', NULL), ('REFUND:rf_c1', 'REFUND', 'm', 'C', NULL),
             ('REVERSAL:REFUND:rf_cx', 'REVERSAL', 'm', 'C', 'REFUND:rf_cx'))
     AS booked (transaction_id, kind, merchant_id, order_no, reverses);
INSERT INTO ledger_entries (transaction_id, account_id, amount)
SELECT transaction_id, side.account_id, side.amount
FROM (VALUES ('PAYMENT:po_d1', 'CHANNEL:sandbox:CNY', 'MERCHANT:m:CNY', 100),
             ('PAYMENT:po_t1', 'CHANNEL:sandbox:CNY', 'USER_AVAILABLE:m:u:CNY', 300),
             ('STRAY_PAYMENT:sp_c', 'CHANNEL:sandbox:CNY', 'SUSPENSE:sandbox:CNY', 100),
             ('STRAY_PAYMENT:sp_d', 'CHANNEL:sandbox:CNY', 'SUSPENSE:sandbox:CNY', 100),
             ('STRAY_PAYMENT:sp_r', 'CHANNEL:sandbox:CNY', 'SUSPENSE:sandbox:CNY', 70),
             ('STRAY_PAYMENT:sp_k', 'CHANNEL:sandbox:USD', 'SUSPENSE:sandbox:USD', 5),
             ('STRAY_KEPT:sp_k', 'SUSPENSE:sandbox:USD', 'PLATFORM_REVENUE:USD', 5),
             ('REFUND:rf_cx', 'SUSPENSE:sandbox:CNY', 'CHANNEL:sandbox:CNY', 100),
             ('REVERSAL:REFUND:rf_cx', 'CHANNEL:sandbox:CNY', 'SUSPENSE:sandbox:CNY', 100),
             ('REFUND:rf_c1', 'SUSPENSE:sandbox:CNY', 'CHANNEL:sandbox:CNY', 100))
     AS moved (transaction_id, debit, credit, amount),
     LATERAL (VALUES (debit, moved.amount), (credit, -moved.amount)) AS side (account_id, amount);

-- Commissions: S is paid and settled at 5 % by half, of Z nothing was earned; a run has come to its end, one goes on.
INSERT INTO orders (merchant_id, order_no, user_id, status, amount, currency, paid_by, paid_at, expires_at, attempts,
                    settle_status, created_at, updated_at, version)
SELECT 'm', order_no, 'u', 'PAID', 200, 'CNY', pay_order_id, '2029-12-31 12:00', '2029-12-31 12:30', 1, 'SETTLED',
       '2029-12-31 12:00', '2029-12-31 12:00', 2
FROM (VALUES ('S', 'po_s'), ('Z', 'po_z')) AS paid (order_no, pay_order_id);
INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, status, amount, currency, pay_url,
                        transaction_id, paid_at, expires_at, created_at, updated_at, version)
SELECT paid_by, 'm', order_no, 'u', 'sandbox', 'PAID', amount, currency, 'https://pay', 'T-' || order_no, paid_at,
       expires_at, created_at, updated_at, 3
FROM orders WHERE settle_status = 'SETTLED';
INSERT INTO trades (channel, transaction_id, pay_order_id, created_at)
SELECT 'sandbox', 'T-' || order_no, paid_by, paid_at FROM orders WHERE settle_status = 'SETTLED';
INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event, created_at)
SELECT 'm', order_no, CASE WHEN is_attempt THEN paid_by ELSE '' END, seq, from_status, to_status, event, paid_at
FROM orders, (VALUES (false, 1, NULL, 'PENDING', 'CREATED'), (false, 2, 'PENDING', 'PAID', 'PAYMENT_CONFIRMED'),
                     (true, 1, NULL, 'INIT', 'BEGUN'), (true, 2, 'INIT', 'PAYING', 'LINK_MADE'),
                     (true, 3, 'PAYING', 'PAID', 'PAYMENT_CONFIRMED'))
             AS change (is_attempt, seq, from_status, to_status, event)
WHERE settle_status = 'SETTLED';
INSERT INTO settlements (merchant_id, order_no, user_id, base_amount, rate, line_rates, factor, commission, currency,
                         created_at, updated_at)
SELECT 'm', order_no, 'u', 200, rate, ARRAY[rate], 0.5, commission, 'CNY', '2029-12-31 12:00', '2029-12-31 12:00'
FROM (VALUES ('S', 0.05, 5), ('Z', 0, 0)) AS given (order_no, rate, commission);
INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
SELECT 'm', order_no, event, 1, '{}', '2029-12-31 12:00'
FROM settlements, (VALUES ('order.paid'), ('order.settled')) AS told (event);
INSERT INTO idempotency_keys (merchant_id, key, request_hash, order_no, status, body, created_at)
VALUES ('m', 'settled S', sha256('4'), 'S', 201, '{"order_no": "S", "commission": 5}', '2029-12-31 12:30');
INSERT INTO settlement_runs (run_id, paid_before, status, leased_until, created_at, updated_at, finished_at)
VALUES ('sr_1', '2029-12-31', 'DONE', '2029-12-31 12:00', '2029-12-31 12:00', '2029-12-31 12:00', '2029-12-31 12:00'),
       ('sr_2', '2029-12-31', 'RUNNING', '2030-01-01 00:00:20', '2029-12-31 12:00', '2029-12-31 12:00', NULL);
-- Their bookings. Triggers are off here, so balances are written too.
CREATE TEMPORARY TABLE commission_entry ON COMMIT DROP AS
SELECT kind, kind || ':' || reference AS transaction_id, order_no, account_id, amount
FROM (SELECT 'PAYMENT' AS kind, paid_by AS reference, order_no, 'CHANNEL:sandbox:CNY' AS account_id, amount
      FROM orders WHERE settle_status = 'SETTLED'
      UNION ALL
      SELECT 'PAYMENT', paid_by, order_no, 'MERCHANT:m:CNY', -amount FROM orders WHERE settle_status = 'SETTLED'
      UNION ALL
      SELECT 'SETTLEMENT', 'm:S', 'S', account_id, amount
      FROM (VALUES ('COMMISSION_EXPENSE:m:CNY', 5), ('USER_AVAILABLE:m:u:CNY', -5)) AS entry (account_id, amount))
     AS booked;
INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
SELECT DISTINCT transaction_id, kind, 'm', order_no, '2029-12-31 12:00'::timestamptz FROM commission_entry;
INSERT INTO ledger_entries (transaction_id, account_id, amount)
SELECT transaction_id, account_id, amount FROM commission_entry;
INSERT INTO accounts (account_id, created_at, updated_at)
SELECT DISTINCT account_id, '2029-12-31 12:00'::timestamptz, '2029-12-31 12:00'::timestamptz FROM commission_entry
ON CONFLICT (account_id) DO NOTHING;
UPDATE accounts SET balance = balance + sense * moved.amount
FROM (SELECT account_id, sum(amount) AS amount FROM commission_entry GROUP BY account_id) AS moved
WHERE accounts.account_id = moved.account_id;

-- Refunds that were made: 40 of the 100 that R cost, all that V topped u up with, and all of B with what it had sold.
INSERT INTO orders (merchant_id, order_no, user_id, kind, status, amount, refunded_amount, currency, paid_by, paid_at,
                    expires_at, attempts, created_at, updated_at, version)
SELECT 'm', order_no, 'u', kind, status, amount, refunded, 'CNY', 'po_' || order_no, '2029-12-31 12:00', '2029-12-31 12:30',
       1, '2029-12-31 12:00', '2029-12-31 12:00', 3
FROM (VALUES ('R', 'SALE', 'PARTIALLY_REFUNDED', 100, 40), ('V', 'TOPUP', 'REFUNDED', 50, 50), ('B', 'SALE', 'REFUNDED', 60, 60))
     AS paid (order_no, kind, status, amount, refunded);
INSERT INTO order_items VALUES ('m', 'B', 1, 'a', 2, 30);
INSERT INTO stock_reservations VALUES ('m', 'B', 1, 'a', 2, 'RETURNED', '2029-12-31 12:00', '2029-12-31 12:00');
INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, status, amount, currency, pay_url,
                        transaction_id, paid_at, expires_at, created_at, updated_at, version)
SELECT paid_by, 'm', order_no, 'u', 'sandbox', 'PAID', amount, currency, 'https://pay', 'T-' || order_no, paid_at,
       expires_at, created_at, updated_at, 3
FROM orders WHERE refunded_amount > 0;
INSERT INTO trades (channel, transaction_id, pay_order_id, created_at)
SELECT 'sandbox', 'T-' || order_no, paid_by, paid_at FROM orders WHERE refunded_amount > 0;
INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event, created_at)
SELECT 'm', order_no, CASE WHEN is_attempt THEN paid_by ELSE '' END, seq, from_status, coalesce(to_status, status),
       coalesce(event, CASE status WHEN 'REFUNDED' THEN 'REFUNDED_IN_FULL' ELSE 'REFUNDED_IN_PART' END), paid_at
FROM orders, (VALUES (false, 1, NULL, 'PENDING', 'CREATED'), (false, 2, 'PENDING', 'PAID', 'PAYMENT_CONFIRMED'),
                     (false, 3, 'PAID', NULL, NULL), (true, 1, NULL, 'INIT', 'BEGUN'),
                     (true, 2, 'INIT', 'PAYING', 'LINK_MADE'), (true, 3, 'PAYING', 'PAID', 'PAYMENT_CONFIRMED'))
             AS change (is_attempt, seq, from_status, to_status, event)
WHERE refunded_amount > 0;
INSERT INTO refunds (refund_id, merchant_id, refund_no, order_no, pay_order_id, amount, currency, status, reason, return_stock,
                     created_at, updated_at)
SELECT 'rf_' || order_no, 'm', 'rf_' || order_no, order_no, paid_by, refunded_amount, 'CNY', 'SUCCEEDED', 'R', order_no = 'B',
       paid_at, paid_at
FROM orders WHERE refunded_amount > 0;
INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
SELECT 'm', order_no, event, 1, payload, '2029-12-31 12:00'
FROM orders, LATERAL (VALUES ('order.paid', '{}'::jsonb),
                             ('refund.finished', jsonb_build_object('refund_no', 'rf_' || order_no, 'status', 'SUCCEEDED')))
             AS told (event, payload)
WHERE refunded_amount > 0;
-- The channel told of one of them.
INSERT INTO webhook_inbox (channel, event_id, subject, merchant_id, order_no, verdict, body, received_at, updated_at)
VALUES ('sandbox', 'e6', 'rf_R', 'm', 'R', 'APPLIED', '\x00', '2029-12-31 12:00', '2029-12-31 12:00');
CREATE TEMPORARY TABLE refund_entry ON COMMIT DROP AS
SELECT kind, kind || ':' || reference AS transaction_id, order_no, account_id, amount
FROM (VALUES ('PAYMENT', 'po_R', 'R', 'CHANNEL:sandbox:CNY', 100), ('PAYMENT', 'po_R', 'R', 'MERCHANT:m:CNY', -100),
             ('REFUND', 'rf_R', 'R', 'MERCHANT:m:CNY', 40), ('REFUND', 'rf_R', 'R', 'CHANNEL:sandbox:CNY', -40),
             ('PAYMENT', 'po_B', 'B', 'CHANNEL:sandbox:CNY', 60), ('PAYMENT', 'po_B', 'B', 'MERCHANT:m:CNY', -60),
             ('REFUND', 'rf_B', 'B', 'MERCHANT:m:CNY', 60), ('REFUND', 'rf_B', 'B', 'CHANNEL:sandbox:CNY', -60),
             ('PAYMENT', 'po_V', 'V', 'CHANNEL:sandbox:CNY', 50), ('PAYMENT', 'po_V', 'V', 'USER_AVAILABLE:m:u:CNY', -50),
             ('REFUND_HOLD', 'rf_V', 'V', 'USER_AVAILABLE:m:u:CNY', 50), ('REFUND_HOLD', 'rf_V', 'V', 'USER_HELD:m:u:CNY', -50),
             ('REFUND', 'rf_V', 'V', 'USER_HELD:m:u:CNY', 50), ('REFUND', 'rf_V', 'V', 'CHANNEL:sandbox:CNY', -50))
     AS entry (kind, reference, order_no, account_id, amount);
INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
SELECT DISTINCT transaction_id, kind, 'm', order_no, '2029-12-31 12:00'::timestamptz FROM refund_entry;
INSERT INTO ledger_entries (transaction_id, account_id, amount)
SELECT transaction_id, account_id, amount FROM refund_entry;
INSERT INTO accounts (account_id, created_at, updated_at)
SELECT DISTINCT account_id, '2029-12-31 12:00'::timestamptz, '2029-12-31 12:00'::timestamptz FROM refund_entry
ON CONFLICT (account_id) DO NOTHING;
UPDATE accounts SET balance = balance + sense * moved.amount
FROM (SELECT account_id, sum(amount) AS amount FROM refund_entry GROUP BY account_id) AS moved
WHERE accounts.account_id = moved.account_id;

-- Withdrawals of u: one set aside, one on its way, one that arrived, one that was refused.
INSERT INTO withdrawals (withdrawal_id, merchant_id, withdrawal_no, user_id, amount, currency, channel, account, status,
                         failure, channel_payout_id, created_at, updated_at, version)
SELECT withdrawal_id, 'm', withdrawal_id, 'u', amount, 'CNY', 'sandbox', 'a', status, failure, payout,
       '2029-12-31 12:00', '2029-12-31 12:00', version
FROM (VALUES ('wd_d', 20, 'DEBITED', NULL, NULL, 2), ('wd_p', 30, 'PAYING', NULL, NULL, 3),
             ('wd_s', 10, 'SUCCEEDED', NULL, 'P-s', 4), ('wd_r', 40, 'REVERSED', 'no', NULL, 5))
     AS sent (withdrawal_id, amount, status, failure, payout, version);
INSERT INTO withdrawal_legs (withdrawal_id, leg, status, created_at, updated_at)
SELECT withdrawal_id, leg, status, '2029-12-31 12:00', '2029-12-31 12:00'
FROM (VALUES ('wd_d', 'DEBIT', 'SUCCEEDED'), ('wd_d', 'PAYOUT', 'PENDING'),
             ('wd_p', 'DEBIT', 'SUCCEEDED'), ('wd_p', 'PAYOUT', 'PROCESSING'),
             ('wd_s', 'DEBIT', 'SUCCEEDED'), ('wd_s', 'PAYOUT', 'SUCCEEDED'),
             ('wd_r', 'DEBIT', 'SUCCEEDED'), ('wd_r', 'PAYOUT', 'FAILED'), ('wd_r', 'REVERSAL', 'SUCCEEDED'))
     AS leg (withdrawal_id, leg, status);
INSERT INTO withdrawal_history (withdrawal_id, seq, from_status, to_status, event, created_at)
SELECT withdrawal_id, seq, from_status, to_status, event, '2029-12-31 12:00'
FROM withdrawals
JOIN (VALUES ('', 1, NULL, 'CREATED', 'CREATED'), ('', 2, 'CREATED', 'DEBITED', 'DEBITED'),
             ('', 3, 'DEBITED', 'PAYING', 'PAYOUT_ASKED'), ('SUCCEEDED', 4, 'PAYING', 'SUCCEEDED', 'PAYOUT_SUCCEEDED'),
             ('REVERSED', 4, 'PAYING', 'REVERSING', 'PAYOUT_REFUSED'), ('REVERSED', 5, 'REVERSING', 'REVERSED', 'GIVEN_BACK'))
     AS change (of_status, seq, from_status, to_status, event) ON seq <= version AND of_status IN ('', status);
INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
SELECT 'm', NULL, 'withdrawal.finished', 1,
       jsonb_build_object('withdrawal_no', withdrawal_no, 'status', status), '2029-12-31 12:00'
FROM withdrawals WHERE status IN ('SUCCEEDED', 'REVERSED');
INSERT INTO compensations (kind, action, subject, status, due_at, created_at, updated_at)
SELECT 'REDO_BUSINESS', 'DRIVE_WITHDRAWAL', withdrawal_id, 'READY', '2030-01-01 00:01', '2029-12-31 12:00', '2029-12-31 12:00'
FROM withdrawals WHERE status IN ('DEBITED', 'PAYING');
CREATE TEMPORARY TABLE withdrawal_entry ON COMMIT DROP AS
SELECT kind, kind || ':' || withdrawal_id AS transaction_id, NULL::text AS reverses, side.account_id,
       sign * amount AS amount, status
FROM withdrawals,
     (VALUES ('WITHDRAWAL', 'USER_AVAILABLE:m:u:CNY', 1), ('WITHDRAWAL', 'USER_HELD:m:u:CNY', -1),
             ('PAYOUT', 'PAYOUTS_IN_TRANSIT:sandbox:CNY', 1), ('PAYOUT', 'CHANNEL:sandbox:CNY', -1),
             ('PAYOUT_DONE', 'USER_HELD:m:u:CNY', 1), ('PAYOUT_DONE', 'PAYOUTS_IN_TRANSIT:sandbox:CNY', -1))
     AS side (kind, account_id, sign)
WHERE kind = 'WITHDRAWAL' OR kind = 'PAYOUT' AND status <> 'DEBITED' OR kind = 'PAYOUT_DONE' AND status = 'SUCCEEDED';
INSERT INTO withdrawal_entry
SELECT 'REVERSAL', 'REVERSAL:' || transaction_id, transaction_id, account_id, -amount, status
FROM withdrawal_entry WHERE status = 'REVERSED';
INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, reverses, created_at)
SELECT DISTINCT transaction_id, kind, 'm', reverses, '2029-12-31 12:00'::timestamptz FROM withdrawal_entry;
INSERT INTO ledger_entries (transaction_id, account_id, amount)
SELECT transaction_id, account_id, amount FROM withdrawal_entry;
INSERT INTO accounts (account_id, created_at, updated_at)
SELECT DISTINCT account_id, '2029-12-31 12:00'::timestamptz, '2029-12-31 12:00'::timestamptz FROM withdrawal_entry
ON CONFLICT (account_id) DO NOTHING;
UPDATE accounts SET balance = balance + sense * moved.amount
FROM (SELECT account_id, sum(amount) AS amount FROM withdrawal_entry GROUP BY account_id) AS moved
WHERE accounts.account_id = moved.account_id;

-- A day that was compared: of what was missing here one was applied, the other a person has seen to.
INSERT INTO reconciliations (reconciliation_id, channel, day, begins_at, ends_at, status, source, leased_until, created_at,
                             updated_at, finished_at)
VALUES ('rc_1', 'sandbox', '2029-12-30', '2029-12-30', '2029-12-31', 'DONE', 'CHANNEL', '2029-12-31 12:00',
        '2029-12-31 12:00', '2029-12-31 12:00', '2029-12-31 12:00');
INSERT INTO reconciliation_history
SELECT 'rc_1', seq, before, after, event, '2029-12-31 12:00'
FROM (VALUES (1, NULL, 'OPEN', 'BEGUN'), (2, 'OPEN', 'FETCHING', 'FETCH_BEGUN'), (3, 'FETCHING', 'MATCHING', 'FETCHED'),
             (4, 'MATCHING', 'ACTING', 'MATCHED'), (5, 'ACTING', 'DONE', 'FINISHED')) AS step (seq, before, after, event);
INSERT INTO reconciliation_items (item_id, channel, reconciliation_id, class, kind, subject, our_id, channel_id, merchant_id,
                                  order_no, theirs, currency, at, action, moves_money, status, decided_at, seen_round,
                                  due_at, created_at, updated_at)
SELECT item_id, 'sandbox', 'rc_1', 'MISSING_HERE', kind, channel_id, our_id, channel_id, 'm', 'D', 100, 'CNY',
       '2029-12-30 12:00', action, false, status, '2029-12-31 12:00', 1, '2029-12-31 12:00', '2029-12-31 12:00',
       '2029-12-31 12:00'
FROM (VALUES ('ri_a', 'PAYMENT', 'po_d1', 'T-d1', 'APPLY', 'APPLIED'),
             ('ri_e', 'REFUND', 'rf_gone', 'sr_gone', 'ESCALATE', 'ESCALATED'))
     AS item (item_id, kind, our_id, channel_id, action, status);
INSERT INTO exceptions (exception_id, kind, subject, detail, status, action, resolved_by, reason, created_at, updated_at)
VALUES ('ex_ri_e', 'RECONCILIATION', 'ri_e', 'gone', 'RESOLVED', 'NONE', 'anna', 'seen to', '2029-12-31 12:00',
        '2029-12-31 12:00');
-- The money of T never came: its user was charged, has paid a part of the rest off, and was given all of it back.
INSERT INTO reconciliation_items (item_id, channel, reconciliation_id, class, kind, subject, our_id, channel_id, merchant_id,
                                  order_no, ours, currency, at, action, moves_money, status, decided_at, seen_round,
                                  due_at, created_at, updated_at)
VALUES ('ri_c', 'sandbox', 'rc_1', 'MISSING_THERE', 'PAYMENT', 'T-t1', 'po_t1', 'T-t1', 'm', 'T', 300, 'CNY',
        '2029-12-30 12:00', 'CHARGE', true, 'REVERSED', '2029-12-31 12:00', 1, '2029-12-31 12:00', '2029-12-31 12:00',
        '2029-12-31 12:00');
INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
VALUES ('m', 'T', 'compensating_charge.made', 1, '{"charge_id": "ri_c", "amount": 300}', '2029-12-31 12:00'),
       ('m', 'T', 'compensating_charge.reversed', 1, '{"charge_id": "ri_c", "amount": 300}', '2029-12-31 12:00');
CREATE TEMPORARY TABLE charge_entry ON COMMIT DROP AS
SELECT kind, kind || ':ri_c' AS transaction_id, NULL::text AS reverses, account_id, amount
FROM (VALUES ('COMPENSATING_CHARGE', 'CHANNEL:sandbox:CNY', -300), ('COMPENSATING_CHARGE', 'USER_AVAILABLE:m:u:CNY', 200),
             ('COMPENSATING_CHARGE', 'USER_RECEIVABLE:m:u:CNY', 100),
             ('CHARGE_PAID_BACK', 'USER_AVAILABLE:m:u:CNY', -40), ('CHARGE_PAID_BACK', 'USER_RECEIVABLE:m:u:CNY', 40))
     AS side (kind, account_id, amount);
INSERT INTO charge_entry
SELECT 'REVERSAL', 'REVERSAL:' || transaction_id, transaction_id, account_id, -amount
FROM charge_entry WHERE kind = 'COMPENSATING_CHARGE';
INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, reverses, created_at)
SELECT DISTINCT transaction_id, kind, 'm', 'T', reverses, '2029-12-31 12:00'::timestamptz FROM charge_entry;
INSERT INTO ledger_entries (transaction_id, account_id, amount)
SELECT transaction_id, account_id, amount FROM charge_entry;
INSERT INTO accounts (account_id, created_at, updated_at)
SELECT DISTINCT account_id, '2029-12-31 12:00'::timestamptz, '2029-12-31 12:00'::timestamptz FROM charge_entry
ON CONFLICT (account_id) DO NOTHING;
UPDATE accounts SET balance = balance + sense * moved.amount
FROM (SELECT account_id, sum(amount) AS amount FROM charge_entry GROUP BY account_id) AS moved
WHERE accounts.account_id = moved.account_id;

-- Usage: uh_h waits, uh_c was charged 7 of 10, uh_r was released, uh_e ran out, uh_l was
-- charged late and owes 5, uh_m paid for its cycle.
INSERT INTO products (merchant_id, product_code, pricing, key_scope, cycle_quota, created_at, updated_at)
VALUES ('m', 'tokens', 'PER_UNIT', 'REQUEST', 100, '2029-12-31 12:00', '2029-12-31 12:00'),
       ('m', 'monthly', 'PER_CYCLE', 'REQUEST', NULL, '2029-12-31 12:00', '2029-12-31 12:00'),
       ('m', 'abroad', 'PER_UNIT', 'REQUEST_CURRENCY_FX', NULL, '2029-12-31 12:00', '2029-12-31 12:00');
INSERT INTO usage_holds (hold_id, merchant_id, request_id, user_id, product_code, idempotency_key, key_currency,
                         key_fx_version, currency, fx_version, cycle, pricing, unit_price, cycle_quota, estimated_units,
                         units, counted_units, carries_fee, held, charged, shortfall, late, status, expires_at,
                         created_at, updated_at, version)
SELECT hold_id, 'm', 'r', 'u', product_code, hold_id, '', '', 'CNY', '', '2029-12',
       CASE product_code WHEN 'tokens' THEN 'PER_UNIT' ELSE 'PER_CYCLE' END,
       CASE product_code WHEN 'tokens' THEN 0.5 ELSE 40 END, CASE product_code WHEN 'tokens' THEN 100 END, 20, units,
       counted, product_code = 'monthly', held, charged, shortfall, late, status,
       CASE status WHEN 'HELD' THEN '2030-01-02'::timestamptz ELSE '2029-12-31 12:15' END, '2029-12-31 12:00',
       '2029-12-31 12:00', version
FROM (VALUES ('uh_h', 'tokens', 'HELD', 5, 20, 10, 0, 0, false, 1),
             ('uh_c', 'tokens', 'CONFIRMED', 13, 13, 0, 7, 0, false, 2),
             ('uh_r', 'tokens', 'RELEASED', NULL, 0, 0, 0, 0, false, 2),
             ('uh_e', 'tokens', 'EXPIRED', NULL, 0, 0, 0, 0, false, 2),
             ('uh_l', 'tokens', 'CONFIRMED', 20, 20, 0, 5, 5, true, 3),
             ('uh_m', 'monthly', 'HELD', NULL, 0, 0, 40, 0, false, 1))
     AS hold (hold_id, product_code, status, units, counted, held, charged, shortfall, late, version);
-- Another currency, or another version of its rates, where that makes another key.
INSERT INTO usage_holds
SELECT (jsonb_populate_record(hold, jsonb_build_object(
           'hold_id', 'uh_' || other.currency || other.fx_version, 'product_code', 'abroad', 'idempotency_key', 'k',
           'key_currency', other.currency, 'key_fx_version', other.fx_version, 'currency', other.currency, 'fx_version',
           other.fx_version, 'cycle_quota', NULL))).*
FROM usage_holds AS hold, (VALUES ('CNY', ''), ('CNY', '2'), ('USD', '')) AS other (currency, fx_version)
WHERE hold_id = 'uh_r';
INSERT INTO usage_cycles (merchant_id, user_id, product_code, cycle, used_units, fee_hold_id)
VALUES ('m', 'u', 'tokens', '2029-12', 53, NULL), ('m', 'u', 'monthly', '2029-12', 0, 'uh_m');
INSERT INTO usage_messages (hold_id, message_id, units, created_at)
VALUES ('uh_h', 'm1', 5, '2029-12-31 12:00'), ('uh_c', 'm1', 13, '2029-12-31 12:00');
INSERT INTO usage_history (hold_id, seq, from_status, to_status, event, created_at)
SELECT hold_id, seq, from_status, to_status, event, '2029-12-31 12:00'
FROM usage_holds
JOIN (VALUES (NULL, NULL, 1, NULL, 'HELD', 'TAKEN'), ('CONFIRMED', false, 2, 'HELD', 'CONFIRMED', 'CONFIRMED'),
             ('RELEASED', false, 2, 'HELD', 'RELEASED', 'RELEASED'),
             ('EXPIRED', false, 2, 'HELD', 'EXPIRED', 'DEADLINE_PASSED'),
             ('CONFIRMED', true, 2, 'HELD', 'EXPIRED', 'DEADLINE_PASSED'),
             ('CONFIRMED', true, 3, 'EXPIRED', 'CONFIRMED', 'CONFIRMED'))
     AS change (of_status, of_late, seq, from_status, to_status, event)
     ON (of_status IS NULL OR of_status = status AND of_late = late);
INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
SELECT 'm', NULL, event, 1, jsonb_build_object('hold_id', hold_id, 'charged', charged), '2029-12-31 12:00'
FROM (VALUES ('uh_c', 'usage.charged', 7), ('uh_e', 'usage.hold_expired', NULL), ('uh_l', 'usage.hold_expired', NULL),
             ('uh_l', 'usage.charged', 5), ('uh_m', 'usage.cycle_charged', 40)) AS told (hold_id, event, charged);
INSERT INTO exceptions (exception_id, kind, merchant_id, subject, detail, created_at, updated_at)
VALUES ('ex_l', 'USAGE_SHORTFALL', 'm', 'uh_l', 'owed', '2029-12-31 12:00', '2029-12-31 12:00');
CREATE TEMPORARY TABLE usage_entry ON COMMIT DROP AS
SELECT kind || ':' || reference AS transaction_id, kind, account_id, amount
FROM (VALUES ('USAGE_HOLD', 'uh_h', 'USER_AVAILABLE:m:u:CNY', 10), ('USAGE_HOLD', 'uh_h', 'USER_HELD:m:u:CNY', -10),
             ('USAGE_HOLD', 'uh_c', 'USER_AVAILABLE:m:u:CNY', 10), ('USAGE_HOLD', 'uh_c', 'USER_HELD:m:u:CNY', -10),
             ('USAGE_CHARGE', 'uh_c', 'USER_HELD:m:u:CNY', 10), ('USAGE_CHARGE', 'uh_c', 'USER_AVAILABLE:m:u:CNY', -3),
             ('USAGE_CHARGE', 'uh_c', 'MERCHANT:m:CNY', -7),
             ('USAGE_HOLD', 'uh_r', 'USER_AVAILABLE:m:u:CNY', 10), ('USAGE_HOLD', 'uh_r', 'USER_HELD:m:u:CNY', -10),
             ('USAGE_RELEASE', 'uh_r', 'USER_HELD:m:u:CNY', 10), ('USAGE_RELEASE', 'uh_r', 'USER_AVAILABLE:m:u:CNY', -10),
             ('USAGE_CHARGE', 'uh_l', 'USER_AVAILABLE:m:u:CNY', 5), ('USAGE_CHARGE', 'uh_l', 'USER_RECEIVABLE:m:u:CNY', 5),
             ('USAGE_CHARGE', 'uh_l', 'MERCHANT:m:CNY', -10),
             ('USAGE_CHARGE', 'uh_m', 'USER_AVAILABLE:m:u:CNY', 40), ('USAGE_CHARGE', 'uh_m', 'MERCHANT:m:CNY', -40))
     AS entry (kind, reference, account_id, amount);
INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, created_at)
SELECT DISTINCT transaction_id, kind, 'm', '2029-12-31 12:00'::timestamptz FROM usage_entry;
INSERT INTO ledger_entries (transaction_id, account_id, amount)
SELECT transaction_id, account_id, amount FROM usage_entry;
INSERT INTO accounts (account_id, created_at, updated_at)
SELECT DISTINCT account_id, '2029-12-31 12:00'::timestamptz, '2029-12-31 12:00'::timestamptz FROM usage_entry
ON CONFLICT (account_id) DO NOTHING;
UPDATE accounts SET balance = balance + sense * moved.amount
FROM (SELECT account_id, sum(amount) AS amount FROM usage_entry GROUP BY account_id) AS moved
WHERE accounts.account_id = moved.account_id;
-- Everybody has heard of all of it, and of what seeds add by themselves.
DELETE FROM outbox_queue;
ALTER TABLE outbox DISABLE TRIGGER outbox_is_queued;

-- ==== the histories of what goes back ====
-- As above: what is older is a world of the version before, and is carried over.

INSERT INTO refund_history (refund_id, seq, from_status, to_status, event, created_at)
SELECT refund_id, seq, from_status, to_status, event, '2029-12-31 12:00'
FROM (VALUES ('rf_c0', 1, NULL, 'PENDING', 'ASKED'), ('rf_c0', 2, 'PENDING', 'FAILED', 'FAILED'),
             ('rf_cx', 1, NULL, 'PENDING', 'ASKED'), ('rf_cx', 2, 'PENDING', 'SUCCEEDED', 'SUCCEEDED'),
             ('rf_cx', 3, 'SUCCEEDED', 'FAILED', 'FAILED'),
             ('rf_c1', 1, NULL, 'AWAITING_APPROVAL', 'ASKED'), ('rf_c1', 2, 'AWAITING_APPROVAL', 'PENDING', 'APPROVED'),
             ('rf_c1', 3, 'PENDING', 'PROCESSING', 'REQUESTED'), ('rf_c1', 4, 'PROCESSING', 'SUCCEEDED', 'SUCCEEDED'),
             ('rf_R', 1, NULL, 'SUCCEEDED', 'CARRIED_OVER'), ('rf_V', 1, NULL, 'SUCCEEDED', 'CARRIED_OVER'),
             ('rf_B', 1, NULL, 'SUCCEEDED', 'CARRIED_OVER'),
             ('rf_r', 1, NULL, 'PENDING', 'CARRIED_OVER'),
             ('rf_d', 1, NULL, 'PENDING', 'ASKED'), ('rf_d', 2, 'PENDING', 'PROCESSING', 'REQUESTED'))
     AS change (refund_id, seq, from_status, to_status, event);
INSERT INTO stray_history (stray_id, seq, from_status, to_status, event, created_at)
SELECT stray_id, seq, from_status, to_status, event, '2029-12-31 12:00'
FROM (VALUES ('sp_c', 1, NULL, 'HELD', 'RECEIVED'), ('sp_c', 2, 'HELD', 'REFUNDING', 'REFUND_ASKED'),
             ('sp_c', 3, 'REFUNDING', 'HELD', 'REFUND_FAILED'), ('sp_c', 4, 'HELD', 'REFUNDING', 'REFUND_ASKED'),
             ('sp_c', 5, 'REFUNDING', 'REFUNDED', 'REFUND_SUCCEEDED'), ('sp_c', 6, 'REFUNDED', 'HELD', 'REFUND_FAILED'),
             ('sp_c', 7, 'HELD', 'REFUNDING', 'REFUND_ASKED'), ('sp_c', 8, 'REFUNDING', 'REFUNDED', 'REFUND_SUCCEEDED'),
             ('sp_d', 1, NULL, 'HELD', 'CARRIED_OVER'),
             ('sp_r', 1, NULL, 'HELD', 'RECEIVED'), ('sp_r', 2, 'HELD', 'REFUNDING', 'REFUND_ASKED'),
             ('sp_k', 1, NULL, 'HELD', 'RECEIVED'), ('sp_k', 2, 'HELD', 'KEPT', 'KEPT'))
     AS change (stray_id, seq, from_status, to_status, event);
-- A part of what S gave was claimed back once, and the rest of it; the channel took both refunds back.
INSERT INTO settlement_history (merchant_id, order_no, seq, from_status, to_status, event, clawed_back, created_at)
SELECT 'm', 'S', seq, from_status, to_status, event, clawed_back, '2029-12-31 12:00'
FROM (VALUES (1, 'SETTLED', 'SETTLED', 'PART_CLAWED_BACK', 3), (2, 'SETTLED', 'CLAWED_BACK', 'ALL_CLAWED_BACK', 5),
             (3, 'CLAWED_BACK', 'SETTLED', 'RESTORED', 3), (4, 'SETTLED', 'SETTLED', 'RESTORED', 0))
     AS change (seq, from_status, to_status, event, clawed_back);
UPDATE settlements SET version = 5 WHERE order_no = 'S';
INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
SELECT 'm', 'S', 'settlement.clawed_back', 1, jsonb_build_object('amount', amount, 'clawed_back', clawed_back), '2029-12-31 12:00'
FROM (VALUES (3, 3), (2, 5), (-2, 3), (-3, 0)) AS change (amount, clawed_back);

-- Requests with a key: one gave 40 of R back, one sent 10 out, one held for usage.
INSERT INTO idempotency_keys (merchant_id, key, request_hash, order_no, status, body, created_at)
VALUES ('m', 'refunded R', sha256('5'), 'R', 201, '{"refund_no": "rf_R", "order_no": "R"}', '2029-12-31 12:30'),
       ('m', 'sent wd_s', sha256('6'), NULL, 201, '{"withdrawal_no": "wd_s"}', '2029-12-31 12:30'),
       ('m', 'held uh_h', sha256('7'), NULL, 201, '{"hold_id": "uh_h"}', '2029-12-31 12:30');

-- ==== debts that were cleared ====

-- All of what S had given was claimed back once, and owed. Of what u owes 3 were collected and 5 written off, of which 2 came
-- back when the channel took the refund back.
INSERT INTO receivable_clearings (merchant_id, clearing_no, kind, user_id, amount, currency, recovered, created_at, updated_at)
VALUES ('m', 'C1', 'COLLECTION', 'u', 3, 'CNY', 0, '2029-12-31 12:00', '2029-12-31 12:00'),
       ('m', 'C2', 'WRITE_OFF', 'u', 5, 'CNY', 2, '2029-12-31 12:00', '2029-12-31 12:00');
INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
SELECT 'm', NULL, event, 1, jsonb_build_object('clearing_no', clearing_no, 'amount', amount), '2029-12-31 12:00'
FROM (VALUES ('receivable.collected', 'C1', 3), ('receivable.written_off', 'C2', 5), ('receivable.recovered', 'C2', 2))
     AS told (event, clearing_no, amount);
CREATE TEMPORARY TABLE clearing_entry ON COMMIT DROP AS
SELECT kind, kind || ':' || reference AS transaction_id, order_no, account_id, amount
FROM (VALUES ('CLAW_BACK', 'rf_s', 'S', 'USER_RECEIVABLE:m:u:CNY', 5), ('CLAW_BACK', 'rf_s', 'S', 'COMMISSION_EXPENSE:m:CNY', -5),
             ('COLLECTION', 'm:C1', NULL, 'USER_AVAILABLE:m:u:CNY', 3), ('COLLECTION', 'm:C1', NULL, 'USER_RECEIVABLE:m:u:CNY', -3),
             ('WRITE_OFF', 'm:C2', NULL, 'MERCHANT:m:CNY', 5), ('WRITE_OFF', 'm:C2', NULL, 'USER_RECEIVABLE:m:u:CNY', -5),
             ('CLAW_BACK', 'rf_s:taken-back', 'S', 'COMMISSION_EXPENSE:m:CNY', 5),
             ('CLAW_BACK', 'rf_s:taken-back', 'S', 'MERCHANT:m:CNY', -2),
             ('CLAW_BACK', 'rf_s:taken-back', 'S', 'USER_AVAILABLE:m:u:CNY', -3))
     AS entry (kind, reference, order_no, account_id, amount);
INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
SELECT DISTINCT transaction_id, kind, 'm', order_no, '2029-12-31 12:00'::timestamptz FROM clearing_entry;
INSERT INTO ledger_entries (transaction_id, account_id, amount)
SELECT transaction_id, account_id, amount FROM clearing_entry;
INSERT INTO accounts (account_id, created_at, updated_at)
SELECT DISTINCT account_id, '2029-12-31 12:00'::timestamptz, '2029-12-31 12:00'::timestamptz FROM clearing_entry
ON CONFLICT (account_id) DO NOTHING;
UPDATE accounts SET balance = balance + sense * moved.amount
FROM (SELECT account_id, sum(amount) AS amount FROM clearing_entry GROUP BY account_id) AS moved
WHERE accounts.account_id = moved.account_id;

-- ==== a withdrawal that was made after all ====

-- It was refused and given back, and its channel made it all the same: u had 20 of it left.
INSERT INTO withdrawals (withdrawal_id, merchant_id, withdrawal_no, user_id, amount, currency, channel, account, status,
                         failure, channel_payout_id, created_at, updated_at, version)
VALUES ('wd_a', 'm', 'wd_a', 'u', 25, 'CNY', 'sandbox', 'a', 'REVERSED', 'no', 'P-a', '2029-12-31 12:00', '2029-12-31 12:00', 5);
INSERT INTO withdrawal_legs (withdrawal_id, leg, status, created_at, updated_at)
VALUES ('wd_a', 'DEBIT', 'SUCCEEDED', '2029-12-31 12:00', '2029-12-31 12:00'),
       ('wd_a', 'PAYOUT', 'FAILED', '2029-12-31 12:00', '2029-12-31 12:00'),
       ('wd_a', 'REVERSAL', 'SUCCEEDED', '2029-12-31 12:00', '2029-12-31 12:00');
INSERT INTO withdrawal_history (withdrawal_id, seq, from_status, to_status, event, created_at)
SELECT 'wd_a', seq, from_status, to_status, event, created_at FROM withdrawal_history WHERE withdrawal_id = 'wd_r';
INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
VALUES ('m', NULL, 'withdrawal.finished', 1, '{"withdrawal_no": "wd_a", "status": "REVERSED"}', '2029-12-31 12:00'),
       ('m', NULL, 'withdrawal.made_after_all', 1, '{"withdrawal_no": "wd_a"}', '2029-12-31 12:00');
CREATE TEMPORARY TABLE after_all_entry ON COMMIT DROP AS
SELECT kind, prefix || kind || ':wd_a' AS transaction_id, account_id, amount
FROM (VALUES ('', 'WITHDRAWAL', 'USER_AVAILABLE:m:u:CNY', 25), ('', 'WITHDRAWAL', 'USER_HELD:m:u:CNY', -25),
             ('', 'PAYOUT', 'PAYOUTS_IN_TRANSIT:sandbox:CNY', 25), ('', 'PAYOUT', 'CHANNEL:sandbox:CNY', -25),
             ('REVERSAL:', 'WITHDRAWAL', 'USER_AVAILABLE:m:u:CNY', -25), ('REVERSAL:', 'WITHDRAWAL', 'USER_HELD:m:u:CNY', 25),
             ('REVERSAL:', 'PAYOUT', 'PAYOUTS_IN_TRANSIT:sandbox:CNY', -25), ('REVERSAL:', 'PAYOUT', 'CHANNEL:sandbox:CNY', 25),
             ('', 'PAYOUT_AFTER_ALL', 'CHANNEL:sandbox:CNY', -25), ('', 'PAYOUT_AFTER_ALL', 'USER_AVAILABLE:m:u:CNY', 20),
             ('', 'PAYOUT_AFTER_ALL', 'USER_RECEIVABLE:m:u:CNY', 5))
     AS side (prefix, kind, account_id, amount);
INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, reverses, created_at)
SELECT DISTINCT transaction_id, CASE WHEN starts_with(transaction_id, 'REVERSAL:') THEN 'REVERSAL' ELSE kind END, 'm',
       CASE WHEN starts_with(transaction_id, 'REVERSAL:') THEN kind || ':wd_a' END, '2029-12-31 12:00'::timestamptz
FROM after_all_entry;
INSERT INTO ledger_entries (transaction_id, account_id, amount)
SELECT transaction_id, account_id, amount FROM after_all_entry;
UPDATE accounts SET balance = balance + sense * moved.amount
FROM (SELECT account_id, sum(amount) AS amount FROM after_all_entry GROUP BY account_id) AS moved
WHERE accounts.account_id = moved.account_id;

-- Another one had arrived and came back, went out after all, and came back once more: u had paid a part of the rest off.
INSERT INTO withdrawals (withdrawal_id, merchant_id, withdrawal_no, user_id, amount, currency, channel, account, status,
                         channel_payout_id, returned_at, returned_times, created_at, updated_at, version)
VALUES ('wd_b', 'm', 'wd_b', 'u', 35, 'CNY', 'sandbox', 'a', 'SUCCEEDED', 'P-b', '2029-12-31 12:00', 2, '2029-12-31 12:00',
        '2029-12-31 12:00', 4);
INSERT INTO withdrawal_legs (withdrawal_id, leg, status, created_at, updated_at)
SELECT 'wd_b', leg, 'SUCCEEDED', '2029-12-31 12:00', '2029-12-31 12:00' FROM unnest('{DEBIT,PAYOUT,REVERSAL}'::text[]) AS leg;
INSERT INTO withdrawal_history (withdrawal_id, seq, from_status, to_status, event, created_at)
SELECT 'wd_b', seq, from_status, to_status, event, created_at FROM withdrawal_history WHERE withdrawal_id = 'wd_s';
INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
SELECT 'm', NULL, event, 1, '{"withdrawal_no": "wd_b"}'::jsonb || more, '2029-12-31 12:00'
FROM (VALUES ('withdrawal.finished', '{"status": "SUCCEEDED"}'::jsonb), ('withdrawal.returned', '{}'),
             ('withdrawal.made_after_all', '{}'), ('withdrawal.returned', '{}')) AS told (event, more);
CREATE TEMPORARY TABLE returned_entry ON COMMIT DROP AS
SELECT transaction_id || ':wd_b' AS transaction_id, split_part(transaction_id, ':', 1) AS kind,
       CASE WHEN starts_with(transaction_id, 'REVERSAL:') THEN substr(transaction_id, 10) || ':wd_b' END AS reverses, account_id, amount
FROM (VALUES ('WITHDRAWAL', 'USER_AVAILABLE:m:u:CNY', 35), ('WITHDRAWAL', 'USER_HELD:m:u:CNY', -35),
             ('PAYOUT', 'PAYOUTS_IN_TRANSIT:sandbox:CNY', 35), ('PAYOUT', 'CHANNEL:sandbox:CNY', -35),
             ('PAYOUT_DONE', 'USER_HELD:m:u:CNY', 35), ('PAYOUT_DONE', 'PAYOUTS_IN_TRANSIT:sandbox:CNY', -35),
             ('REVERSAL:WITHDRAWAL', 'USER_AVAILABLE:m:u:CNY', -35), ('REVERSAL:WITHDRAWAL', 'USER_HELD:m:u:CNY', 35),
             ('REVERSAL:PAYOUT', 'PAYOUTS_IN_TRANSIT:sandbox:CNY', -35), ('REVERSAL:PAYOUT', 'CHANNEL:sandbox:CNY', 35),
             ('REVERSAL:PAYOUT_DONE', 'USER_HELD:m:u:CNY', -35), ('REVERSAL:PAYOUT_DONE', 'PAYOUTS_IN_TRANSIT:sandbox:CNY', 35),
             ('PAYOUT_AFTER_ALL', 'CHANNEL:sandbox:CNY', -35), ('PAYOUT_AFTER_ALL', 'USER_AVAILABLE:m:u:CNY', 30),
             ('PAYOUT_AFTER_ALL', 'USER_RECEIVABLE:m:u:CNY', 5),
             ('CHARGE_PAID_BACK', 'USER_AVAILABLE:m:u:CNY', -2), ('CHARGE_PAID_BACK', 'USER_RECEIVABLE:m:u:CNY', 2),
             ('REVERSAL:PAYOUT_AFTER_ALL', 'CHANNEL:sandbox:CNY', 35), ('REVERSAL:PAYOUT_AFTER_ALL', 'USER_AVAILABLE:m:u:CNY', -30),
             ('REVERSAL:PAYOUT_AFTER_ALL', 'USER_RECEIVABLE:m:u:CNY', -5)) AS side (transaction_id, account_id, amount);
INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, reverses, created_at)
SELECT DISTINCT transaction_id, kind, 'm', reverses, '2029-12-31 12:00'::timestamptz FROM returned_entry;
INSERT INTO ledger_entries (transaction_id, account_id, amount)
SELECT transaction_id, account_id, amount FROM returned_entry;
UPDATE accounts SET balance = balance + sense * moved.amount
FROM (SELECT account_id, sum(amount) AS amount FROM returned_entry GROUP BY account_id) AS moved
WHERE accounts.account_id = moved.account_id;

-- A refund of the top-up T failed, was made after all and taken back, and made once more: its user had paid a part of the rest off.
INSERT INTO refunds (refund_id, merchant_id, refund_no, order_no, pay_order_id, amount, currency, status, reason, failure,
                     channel_refund_id, made_after_all_at, made_after_all_times, created_at, updated_at)
VALUES ('rf_a', 'm', 'rf_a', 'T', 'po_t1', 30, 'CNY', 'FAILED', 'R', 'no', 'S-a', '2029-12-31 12:00', 2, '2029-12-31 12:00',
        '2029-12-31 12:00');
INSERT INTO refund_history (refund_id, seq, from_status, to_status, event, created_at)
VALUES ('rf_a', 1, NULL, 'PENDING', 'ASKED', '2029-12-31 12:00'), ('rf_a', 2, 'PENDING', 'FAILED', 'FAILED', '2029-12-31 12:00');
INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
SELECT 'm', 'T', event, 1, '{"refund_no": "rf_a"}'::jsonb || more, '2029-12-31 12:00'
FROM (VALUES ('refund.finished', '{"status": "FAILED"}'::jsonb), ('refund.made_after_all', '{}'), ('refund.reversed', '{}'),
             ('refund.made_after_all', '{}')) AS told (event, more);
CREATE TEMPORARY TABLE gone_entry ON COMMIT DROP AS
SELECT transaction_id, split_part(transaction_id, ':', 1) AS kind,
       CASE WHEN starts_with(transaction_id, 'REVERSAL:') THEN substr(transaction_id, 10) END AS reverses, account_id, amount
FROM (VALUES ('REFUND_HOLD:rf_a', 'USER_AVAILABLE:m:u:CNY', 30), ('REFUND_HOLD:rf_a', 'USER_HELD:m:u:CNY', -30),
             ('REVERSAL:REFUND_HOLD:rf_a', 'USER_AVAILABLE:m:u:CNY', -30), ('REVERSAL:REFUND_HOLD:rf_a', 'USER_HELD:m:u:CNY', 30),
             ('REFUND_AFTER_ALL:rf_a:1', 'CHANNEL:sandbox:CNY', -30), ('REFUND_AFTER_ALL:rf_a:1', 'USER_AVAILABLE:m:u:CNY', 20),
             ('REFUND_AFTER_ALL:rf_a:1', 'USER_RECEIVABLE:m:u:CNY', 10),
             ('CHARGE_PAID_BACK:rf_a:1', 'USER_AVAILABLE:m:u:CNY', -4), ('CHARGE_PAID_BACK:rf_a:1', 'USER_RECEIVABLE:m:u:CNY', 4),
             ('REVERSAL:REFUND_AFTER_ALL:rf_a:1', 'CHANNEL:sandbox:CNY', 30),
             ('REVERSAL:REFUND_AFTER_ALL:rf_a:1', 'USER_AVAILABLE:m:u:CNY', -20),
             ('REVERSAL:REFUND_AFTER_ALL:rf_a:1', 'USER_RECEIVABLE:m:u:CNY', -10),
             ('REFUND_AFTER_ALL:rf_a:2', 'CHANNEL:sandbox:CNY', -30), ('REFUND_AFTER_ALL:rf_a:2', 'USER_AVAILABLE:m:u:CNY', 1),
             ('REFUND_AFTER_ALL:rf_a:2', 'USER_RECEIVABLE:m:u:CNY', 29)) AS side (transaction_id, account_id, amount);
INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, reverses, created_at)
SELECT DISTINCT transaction_id, kind, 'm', 'T', reverses, '2029-12-31 12:00'::timestamptz FROM gone_entry;
INSERT INTO ledger_entries (transaction_id, account_id, amount)
SELECT transaction_id, account_id, amount FROM gone_entry;
UPDATE accounts SET balance = balance + sense * moved.amount
FROM (SELECT account_id, sum(amount) AS amount FROM gone_entry GROUP BY account_id) AS moved
WHERE accounts.account_id = moved.account_id;

-- Much is over, little is open: so many rows of each table, or as many as a story has room for.
SET LOCAL session_replication_role = replica;
INSERT INTO orders (merchant_id, order_no, user_id, status, amount, currency, paid_by, paid_at, expires_at,
                    created_at, updated_at)
SELECT 'shop', 'O' || g, 'u', CASE WHEN g > 5 THEN 'PAID' ELSE 'PENDING' END, 1, 'CNY',
       CASE WHEN g > 5 THEN 'po_' || g END, CASE WHEN g > 5 THEN now() END, now(), now(), now()
FROM generate_series(1, {20000}) AS g;
INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, status, amount, currency,
                        transaction_id, paid_at, expires_at, created_at, updated_at)
SELECT 'po_' || g, 'shop', 'O' || g, 'u', 'sandbox', CASE WHEN g > 5 THEN 'PAID' ELSE 'INIT' END, 1, 'CNY',
       CASE WHEN g > 5 THEN 't' || g END, CASE WHEN g > 5 THEN now() END, now(), now(), now()
FROM generate_series(1, {20000}) AS g;
INSERT INTO compensations (kind, action, subject, status, due_at, created_at, updated_at)
SELECT 'REDO_BUSINESS', 'DRIVE_PAY_ORDER', 'po_' || g, 'DONE', now(), now(), now()
FROM generate_series(1, {5000}) AS g;
INSERT INTO skus (merchant_id, sku, stock, created_at, updated_at)
SELECT 'shop', 'S' || g, 1, now(), now() FROM generate_series(1, {1000}) AS g;
INSERT INTO stock_reservations (merchant_id, order_no, line_no, sku, quantity, status, created_at, updated_at)
SELECT 'shop', 'O' || g, 1, 'S1', 1, 'DEDUCTED', now(), now() FROM generate_series(1, {1000}) AS g;
INSERT INTO webhook_inbox (channel, event_id, verdict, body, received_at, updated_at)
SELECT 'sandbox', 'e' || g, 'APPLIED', '', now(), now() FROM generate_series(1, {1000}) AS g;
INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
SELECT 'shop', 'O' || g, 'order.paid', 1, '{}', now() FROM generate_series(1, {20000}) AS g;
INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, body, status, due_at, created_at,
                        updated_at)
SELECT id, 'REPLAY_CALLBACK', event, merchant_id, order_no, 'shop', '{}', 'DELIVERED', now(), now(), now()
FROM outbox;
INSERT INTO trades (channel, transaction_id, pay_order_id, created_at)
SELECT 'sandbox', 't' || g, 'po_' || g, now() FROM generate_series(1, {1000}) AS g;
INSERT INTO stray_payments (stray_id, channel, transaction_id, out_trade_no, amount, currency, reason,
                            paid_at, created_at, updated_at)
SELECT 's' || g, 'sandbox', 's' || g, 'po', 1, 'CNY', 'LATE_PAYMENT', now(), now(), now()
FROM generate_series(1, {1000}) AS g;
INSERT INTO refunds (refund_id, merchant_id, refund_no, order_no, pay_order_id, amount, currency, status, reason,
                     created_at, updated_at)
SELECT 'rf_' || g, 'shop', 'R' || g, 'O' || g, 'po_' || g, 1, 'CNY', 'SUCCEEDED', 'r', now(), now()
FROM generate_series(1, {5000}) AS g;
INSERT INTO products (merchant_id, product_code, pricing, key_scope, created_at, updated_at)
SELECT 'shop', 'p' || g, 'PER_UNIT', 'REQUEST', now(), now() FROM generate_series(1, {1000}) AS g;
INSERT INTO product_prices (merchant_id, product_code, currency, fx_version, unit_price, created_at, updated_at)
SELECT 'shop', 'p' || g, 'CNY', '', 1, now(), now() FROM generate_series(1, {1000}) AS g;
INSERT INTO usage_holds (hold_id, merchant_id, request_id, user_id, product_code, idempotency_key, key_currency,
                         key_fx_version, currency, fx_version, cycle, pricing, unit_price, estimated_units, units,
                         counted_units, carries_fee, held, status, expires_at, created_at, updated_at)
SELECT 'uh_' || g, 'shop', 'r', 'u', 'p1', 'k' || g, '', '', 'CNY', '', 'c', 'PER_UNIT', 1, 1, 1, 0, false, 0,
       'CONFIRMED', now(), now(), now()
FROM generate_series(1, {5000}) AS g;
INSERT INTO usage_cycles (merchant_id, user_id, product_code, cycle)
SELECT 'shop', 'u' || g, 'p1', 'c' FROM generate_series(1, {1000}) AS g;
INSERT INTO reconciliations (reconciliation_id, channel, day, begins_at, ends_at, status, source, leased_until,
                             created_at, updated_at, finished_at)
SELECT 'rc_' || g, 'sandbox', current_date - g, now(), now(), 'DONE', 'CHANNEL', now(), now(), now(), now()
FROM generate_series(1, 10) AS g;
INSERT INTO statement_lines
SELECT 'rc_' || g % 10, g, CASE WHEN g % 10 = 1 THEN 'REFUND' ELSE 'PAYMENT' END, 'po_' || g, 't' || g, 1, 'CNY', 0, true,
       now()
FROM generate_series(1, {10000}) AS g;
INSERT INTO reconciliation_items (item_id, channel, reconciliation_id, class, kind, subject, our_id, channel_id, theirs,
                                  currency, at, action, moves_money, status, seen_round, due_at, created_at, updated_at)
SELECT 'ri_' || g, 'sandbox', 'rc_' || g % 10 + 1, 'MISSING_HERE', 'PAYMENT', 't' || g, '', 't' || g, 1, 'CNY', now(), 'APPLY',
       false, 'APPLIED', 1, now(), now(), now()
FROM generate_series(1, {1000}) AS g;
INSERT INTO usage_messages (hold_id, message_id, units, created_at)
SELECT 'uh_' || g, 'm', 1, now() FROM generate_series(1, {1000}) AS g;
INSERT INTO refund_history (refund_id, seq, to_status, event, created_at)
SELECT 'rf_' || g, 1, 'PENDING', 'e', now() FROM generate_series(1, {5000}) AS g;
INSERT INTO stray_history (stray_id, seq, to_status, event, created_at)
SELECT 's' || g, 1, 'UNHANDLED', 'e', now() FROM generate_series(1, {1000}) AS g;
INSERT INTO accounts (account_id, created_at, updated_at)
SELECT 'USER_AVAILABLE:shop:u' || g || ':CNY', now(), now() FROM generate_series(1, {1000}) AS g;
INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at, account_ids, amounts)
SELECT 'PAYMENT:po_' || g, 'PAYMENT', 'shop', 'O' || g, now(),
       ARRAY['CHANNEL:sandbox:CNY', 'USER_AVAILABLE:shop:u' || g || ':CNY'], '{1,-1}'
FROM generate_series(1, {20000}) AS g;

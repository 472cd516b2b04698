-- The lists of the orders whose money went back, by merchant and number. They are few beside those that stay paid, all of
-- which the lists would walk; only a refund writes to this index. By itself: no transaction waits for two tables.
CREATE INDEX orders_refunded ON orders (status, merchant_id, order_no)
    WHERE status IN ('PARTIALLY_REFUNDED', 'REFUNDED');

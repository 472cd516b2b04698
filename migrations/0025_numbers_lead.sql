-- Numbers lead, not merchants. While few rows are known of, an index whose first column is the merchant looks as good for
-- any look-up within a merchant as the one that is meant, and a plan that was made then walks all that the merchant has.

ALTER TABLE refunds
    DROP CONSTRAINT refunds_merchant_refund_no_key,
    ADD CONSTRAINT refunds_merchant_refund_no_key UNIQUE NULLS NOT DISTINCT (refund_no, merchant_id);
DROP INDEX refunds_of_order;
CREATE INDEX refunds_of_order ON refunds (order_no, merchant_id);
DROP INDEX outbox_of_order;
CREATE INDEX outbox_of_order ON outbox (order_no, merchant_id);

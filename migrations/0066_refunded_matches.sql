-- What went back of an order and its state say the same, whoever writes them. What stood before is as the audit found it.

ALTER TABLE orders
    DROP CONSTRAINT orders_refunded_within_amount,
    ADD CONSTRAINT orders_refunded_matches CHECK (
        CASE status WHEN 'PARTIALLY_REFUNDED' THEN refunded_amount BETWEEN 1 AND amount - 1
                    WHEN 'REFUNDED' THEN refunded_amount = amount
                    ELSE refunded_amount = 0 END) NOT VALID;

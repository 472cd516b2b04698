-- Refunds of orders, asked for by their merchants and by operators.

ALTER TABLE refunds
    -- Whether the order's stock comes back once all of its money has gone back.
    ADD COLUMN return_stock boolean NOT NULL DEFAULT false,
    -- The operator who asked for it; NULL where a merchant did, or the service itself.
    ADD COLUMN asked_by text;

-- What the write paths want: keys of browsers apart from those of backends, a word for a channel that contradicts
-- itself, and tasks that are counted and forgotten in time.

-- A browser's key is kept with a mark before it (idempotency/model.rs), so it never meets one of the backend. What is
-- there obeys the tighter rule that goes, so nothing need be read.
ALTER TABLE idempotency_keys
    DROP CONSTRAINT idempotency_keys_key_length,
    ADD CONSTRAINT idempotency_keys_key_length CHECK (octet_length(key) BETWEEN 1 AND 258) NOT VALID;

-- The same: one word more than before.
ALTER TABLE exceptions
    DROP CONSTRAINT exceptions_kind_is_known,
    ADD CONSTRAINT exceptions_kind_is_known
        CHECK (kind IN ('AMOUNT_MISMATCH', 'STRAY_MONEY', 'UNKNOWN_ORDER', 'WRONG_ACCOUNT',
                        'UNREADABLE_CALLBACK', 'CONTRADICTION', 'DEAD_TASK')) NOT VALID;

-- Plans must follow the living tasks, which come and go by thousands beside any number of done ones.
ALTER TABLE compensations SET (autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000);
-- The retention duty walks it by age; BRIN because rows arrive in that order.
CREATE INDEX compensations_by_age ON compensations USING brin (created_at);

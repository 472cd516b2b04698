-- Usage: every page of holds is a range of an index, and a quota counts what was charged before there was one.

-- What was charged without a quota, as it is counted from now on.
WITH counted AS (
    UPDATE usage_holds SET counted_units = CASE pricing WHEN 'PER_CALL' THEN least(units, 1) ELSE units END
    WHERE status = 'CONFIRMED' AND cycle_quota IS NULL AND units > 0
    RETURNING merchant_id, user_id, product_code, cycle, counted_units
)
INSERT INTO usage_cycles AS taken (merchant_id, user_id, product_code, cycle, used_units)
SELECT merchant_id, user_id, product_code, cycle, sum(counted_units) FROM counted GROUP BY 1, 2, 3, 4
ON CONFLICT (merchant_id, user_id, product_code, cycle)
DO UPDATE SET used_units = taken.used_units + excluded.used_units;

-- Pages, newest first in each state: of one merchant, of one user. In this order: of two that seem to cost the same the
-- planner takes the later one, which here is the narrower.
CREATE INDEX usage_holds_of_merchant ON usage_holds (merchant_id, status, hold_id);
DROP INDEX usage_holds_of_user;
CREATE INDEX usage_holds_of_user ON usage_holds (merchant_id, user_id, status, hold_id);

-- Usage: every page of holds is a range of an index.

-- Pages, newest first in each state: of one merchant, of one user. In this order: of two that seem to cost the same the
-- planner takes the later one, which here is the narrower.
CREATE INDEX usage_holds_of_merchant ON usage_holds (merchant_id, status, hold_id);
DROP INDEX usage_holds_of_user;
CREATE INDEX usage_holds_of_user ON usage_holds (merchant_id, user_id, status, hold_id);

-- The pages of holds have their indexes in words of their own, which are true of each hold: whoever looks a key up does not
-- say them, and so does not come by these indexes, on which every hold of the user would be read, or of the merchant.
-- In this order (0018): of two that seem to cost the same the planner takes the later one, which here is the narrower.
DROP INDEX usage_holds_of_merchant;
CREATE INDEX usage_holds_of_merchant ON usage_holds (merchant_id, status, hold_id) WHERE hold_id <> '';
DROP INDEX usage_holds_of_user;
CREATE INDEX usage_holds_of_user ON usage_holds (merchant_id, user_id, status, hold_id) WHERE hold_id <> '';

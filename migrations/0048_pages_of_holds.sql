-- The pages of holds have their indexes in words of their own, which are true of each hold: whoever looks a key up does not
-- say them, and so does not come by these indexes, on which every hold of the user would be read, or of the merchant.
-- Built before anything is dropped: reads go on meanwhile. In this order (0018): of two that seem to cost the same the
-- planner takes the later one, which here is the narrower.
CREATE INDEX usage_holds_by_merchant ON usage_holds (merchant_id, status, hold_id) WHERE hold_id <> '';
CREATE INDEX usage_holds_by_user ON usage_holds (merchant_id, user_id, status, hold_id) WHERE hold_id <> '';
DROP INDEX usage_holds_of_merchant, usage_holds_of_user;
ALTER INDEX usage_holds_by_merchant RENAME TO usage_holds_of_merchant;
ALTER INDEX usage_holds_by_user RENAME TO usage_holds_of_user;

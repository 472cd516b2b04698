-- The lists of withdrawals, newest first: of a merchant, of one of its users, and of those that were given back, which are few. The
-- first two in words of their own: a plan that was made over a small table would look up one by its id in them, walking all.
CREATE INDEX withdrawals_of_merchant ON withdrawals (merchant_id, (withdrawal_id || ''));
CREATE INDEX withdrawals_of_user ON withdrawals (merchant_id, user_id, (withdrawal_id || ''));
CREATE INDEX withdrawals_reversed ON withdrawals (withdrawal_id) WHERE status = 'REVERSED';

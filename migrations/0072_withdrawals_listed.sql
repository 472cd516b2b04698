-- The lists of withdrawals, newest first: of a merchant, of one of its users, and of those that were given back, which are few.
-- What is of a merchant stands in words of its own: a plan that was made over a small table would look up one by its number or its
-- id in these indexes, walking all of the merchant, and a list would walk those of all others.
CREATE INDEX withdrawals_of_merchant ON withdrawals ((merchant_id || ''), (withdrawal_id || ''));
CREATE INDEX withdrawals_of_user ON withdrawals ((merchant_id || ''), user_id, (withdrawal_id || ''));
CREATE INDEX withdrawals_reversed ON withdrawals (withdrawal_id) WHERE status = 'REVERSED';
CREATE INDEX withdrawals_reversed_of_merchant ON withdrawals ((merchant_id || ''), (withdrawal_id || ''))
    WHERE status = 'REVERSED';

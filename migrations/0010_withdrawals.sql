-- Withdrawals: a user's money sent out through a channel, leg by leg.

CREATE TABLE withdrawals (
    -- What channels know it by: the key under which a payout is made once.
    withdrawal_id      text COLLATE "C" PRIMARY KEY,
    merchant_id        text COLLATE "C" NOT NULL CONSTRAINT withdrawals_merchant_fkey REFERENCES merchants,
    withdrawal_no      text COLLATE "C" NOT NULL,
    user_id            text COLLATE "C" NOT NULL,
    amount             bigint NOT NULL,
    currency           text NOT NULL,
    channel            text COLLATE "C" NOT NULL,
    -- Where the money goes, in the channel's own form.
    account            text NOT NULL,
    status             text NOT NULL,
    failure            text,
    channel_payout_id  text COLLATE "C",
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    version            integer NOT NULL,
    CONSTRAINT withdrawals_merchant_withdrawal_no_key UNIQUE (merchant_id, withdrawal_no),
    CONSTRAINT withdrawals_amount_in_range CHECK (amount BETWEEN 1 AND 1000000000000),
    CONSTRAINT withdrawals_status_is_known
        CHECK (status IN ('CREATED', 'DEBITED', 'PAYING', 'SUCCEEDED', 'REVERSING', 'REVERSED')),
    CONSTRAINT withdrawals_failure_matches CHECK ((status IN ('REVERSING', 'REVERSED')) = (failure IS NOT NULL)),
    CONSTRAINT withdrawals_succeeded_names_its_payout CHECK (status <> 'SUCCEEDED' OR channel_payout_id IS NOT NULL)
);
-- What is not at its end yet: what the audit and the overview count.
CREATE INDEX withdrawals_unfinished ON withdrawals (created_at)
    WHERE status IN ('CREATED', 'DEBITED', 'PAYING', 'REVERSING');

-- Each movement of a withdrawal's money, and how far it has come.
CREATE TABLE withdrawal_legs (
    withdrawal_id   text COLLATE "C" NOT NULL CONSTRAINT withdrawal_legs_withdrawal_fkey REFERENCES withdrawals,
    leg             text NOT NULL,
    status          text NOT NULL,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    CONSTRAINT withdrawal_legs_pkey PRIMARY KEY (withdrawal_id, leg),
    CONSTRAINT withdrawal_legs_leg_is_known CHECK (leg IN ('DEBIT', 'PAYOUT', 'REVERSAL')),
    CONSTRAINT withdrawal_legs_status_is_known CHECK (status IN ('PENDING', 'PROCESSING', 'SUCCEEDED', 'FAILED'))
);

-- Every change of state, as order_history has those of orders.
CREATE TABLE withdrawal_history (
    withdrawal_id  text COLLATE "C" NOT NULL,
    seq            integer NOT NULL,
    from_status    text,
    to_status      text NOT NULL,
    event          text NOT NULL,
    created_at     timestamptz NOT NULL,
    CONSTRAINT withdrawal_history_pkey PRIMARY KEY (withdrawal_id, seq),
    CONSTRAINT withdrawal_history_first_has_no_past CHECK ((seq = 1) = (from_status IS NULL))
);

INSERT INTO service_rules (table_name, rights) VALUES
    -- Money, and whose it is: never deleted.
    ('public.withdrawals', '{SELECT, INSERT, UPDATE}'),
    ('public.withdrawal_legs', '{SELECT, INSERT, UPDATE}'),
    -- Written once, and evidence from then on.
    ('public.withdrawal_history', '{SELECT, INSERT}');
SELECT grant_service_rights();

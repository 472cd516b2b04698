-- The money of a withdrawal that had gone out may come back, be it that it never went: its user has it again. The withdrawal stays as
-- it had ended, as its merchant was told.
--
-- Instances of the version before go on to take such a one for sent out, and show a person what they hear of it.

ALTER TABLE withdrawals
    -- When it came back; nothing where it went out once more since.
    ADD COLUMN returned_at timestamptz,
    -- How often it did: each time that it goes out after all is booked by itself.
    ADD COLUMN returned_times integer NOT NULL DEFAULT 0,
    ADD CONSTRAINT withdrawals_returned_had_gone_out
        CHECK (returned_at IS NULL
               OR returned_times > 0 AND channel_payout_id IS NOT NULL AND status IN ('SUCCEEDED', 'REVERSED')) NOT VALID;

ALTER TABLE sandbox.payouts ADD COLUMN taken_back_at timestamptz;

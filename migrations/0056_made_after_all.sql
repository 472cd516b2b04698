-- A refund that failed here, and of which the channel says that it made it after all, is known to be gone: nothing goes back in its
-- place, and statements are compared with it. It stays FAILED, and a person sees to it.

ALTER TABLE refunds
    -- When the channel said so; not there any more once it has taken that back. An instance of the version before keeps only the
    -- channel's number then, which one that was made and taken back has, too.
    ADD COLUMN made_after_all_at timestamptz,
    ADD CONSTRAINT refunds_made_after_all_has_failed
        CHECK (made_after_all_at IS NULL OR status = 'FAILED' AND channel_refund_id IS NOT NULL) NOT VALID;
-- Whether a stray payment has gone by one of these, before it goes by another. They are hardly ever any.
CREATE INDEX refunds_made_after_all ON refunds (stray_id) WHERE made_after_all_at IS NOT NULL;

-- Of what was there that can be said only where a person is still shown it, which is so of none that the channel had taken back
-- when it was asked; whether it has taken one back since, nobody listened to. Of what people have resolved nothing says what they
-- found, and it stays as it was.
UPDATE refunds SET made_after_all_at = refunds.updated_at, version = version + 1
FROM exceptions
WHERE exceptions.kind = 'CONTRADICTION' AND exceptions.status = 'OPEN' AND exceptions.subject = refunds.refund_id
  AND exceptions.detail LIKE '% had refused refund %'
  AND refunds.status = 'FAILED' AND refunds.channel_refund_id IS NOT NULL;

-- The list of the refunds that failed, newest first. They are few beside those that succeeded, all of which the list would
-- walk; whatever else a refund goes through does not write to this index.
CREATE INDEX refunds_failed ON refunds (refund_id) WHERE status = 'FAILED';

-- What the relay has yet to look at waits in a queue of its own, and events stay as they were written: that one was looked
-- at and arrived cost it two new versions and six index entries. Where it stands is said by the queue and by its deliveries.

-- Nothing is appended or handed out between the look at what waits and the end.
LOCK TABLE outbox, deliveries IN ACCESS EXCLUSIVE MODE;

CREATE TABLE outbox_queue (
    -- What is sent again waits in a row of its own, so that new events, whose ids are higher, do not wait behind it.
    is_again     boolean NOT NULL,
    event_id     bigint NOT NULL,
    merchant_id  text COLLATE "C",
    order_no     text COLLATE "C",
    -- When it happened, or was wished for again.
    queued_at    timestamptz NOT NULL,
    CONSTRAINT outbox_queue_pkey PRIMARY KEY (is_again, event_id)
    -- Rows come and go: what went is swept up whatever there still is.
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

INSERT INTO outbox_queue (is_again, event_id, merchant_id, order_no, queued_at)
SELECT open_deliveries IS NOT NULL, id, merchant_id, order_no, coalesce(again_at, created_at)
FROM outbox WHERE open_deliveries IS NULL OR open_deliveries = -1;

-- Before the columns, because rights to a column outlive it.
UPDATE service_rules SET rights = '{SELECT, INSERT, UPDATE(again_at)}' WHERE table_name = 'public.outbox';
SELECT grant_service_rights();
-- With them go the indexes that name them.
ALTER TABLE outbox DROP COLUMN open_deliveries, DROP COLUMN published_at;
ALTER TABLE outbox RESET (fillfactor);

-- What is appended is queued, whoever appends it.
CREATE FUNCTION queue_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO outbox_queue (is_again, event_id, merchant_id, order_no, queued_at)
    SELECT false, id, merchant_id, order_no, created_at FROM appended;
    RETURN NULL;
END $$;
CREATE TRIGGER outbox_is_queued AFTER INSERT ON outbox
    REFERENCING NEW TABLE AS appended FOR EACH STATEMENT EXECUTE FUNCTION queue_events();

-- What becomes of a stray payment has its history too.
--
-- The database writes it itself, one statement for all that a statement changed, whoever that is: no path of this service, no
-- instance of the version before, and nobody at a prompt leaves it out, but who switches triggers off.

-- What exists is read from end to end.
SET LOCAL enable_seqscan = on;

CREATE TABLE stray_history (
    stray_id     text COLLATE "C" NOT NULL,
    seq          integer NOT NULL,
    from_status  text,
    to_status    text NOT NULL,
    event        text NOT NULL,
    created_at   timestamptz NOT NULL,
    CONSTRAINT stray_history_pkey PRIMARY KEY (stray_id, seq),
    CONSTRAINT stray_history_first_has_no_past CHECK ((seq = 1) = (from_status IS NULL))
);

-- As for refunds.
CREATE FUNCTION write_stray_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stray_history (stray_id, seq, from_status, to_status, event, created_at)
    SELECT stray_id, coalesce(last.seq, 0) + 1, last.to_status, status,
           CASE WHEN last.seq IS NULL AND TG_OP = 'INSERT' THEN 'RECEIVED'
                WHEN last.seq IS NULL THEN 'FOUND'
                ELSE CASE last.to_status || ' ' || status
                    WHEN 'HELD REFUNDING' THEN 'REFUND_ASKED'
                    WHEN 'REFUNDING REFUNDED' THEN 'REFUND_SUCCEEDED'
                    WHEN 'REFUNDING HELD' THEN 'REFUND_FAILED'
                    WHEN 'REFUNDED HELD' THEN 'REFUND_FAILED'
                    WHEN 'HELD KEPT' THEN 'KEPT'
                    ELSE 'BY_HAND' END
           END, updated_at
    FROM changed
    LEFT JOIN LATERAL (SELECT seq, to_status FROM stray_history AS past
                       WHERE past.stray_id = changed.stray_id ORDER BY seq DESC LIMIT 1) AS last ON true
    WHERE status IS DISTINCT FROM last.to_status;
    RETURN NULL;
END
$$;
CREATE TRIGGER stray_payments_begin_history AFTER INSERT ON stray_payments
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION write_stray_history();
CREATE TRIGGER stray_payments_go_on_in_history AFTER UPDATE ON stray_payments
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION write_stray_history();

-- What exists is carried over: nobody writes it since its trigger is there.
INSERT INTO stray_history (stray_id, seq, to_status, event, created_at)
SELECT stray_id, 1, status, 'CARRIED_OVER', updated_at FROM stray_payments;

INSERT INTO service_rules (table_name, rights) VALUES
    -- Written once, and evidence from then on.
    ('public.stray_history', '{SELECT, INSERT}');
SELECT grant_service_rights();

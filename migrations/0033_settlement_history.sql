-- What becomes of a commission has its history too.
--
-- The database writes it itself, one statement for all that a statement changed, whoever that is: no path of this service, no
-- instance of the version before, and nobody at a prompt leaves it out.

-- What exists is read from end to end.
SET LOCAL enable_seqscan = on;

-- What came after the settlement, which is its own birth: SETTLED, with nothing claimed back. Most have nothing here.
CREATE TABLE settlement_history (
    merchant_id  text COLLATE "C" NOT NULL,
    order_no     text COLLATE "C" NOT NULL,
    seq          integer NOT NULL,
    from_status  text NOT NULL,
    to_status    text NOT NULL,
    event        text NOT NULL,
    -- In all, by then.
    clawed_back  bigint NOT NULL,
    created_at   timestamptz NOT NULL,
    CONSTRAINT settlement_history_pkey PRIMARY KEY (merchant_id, order_no, seq)
);

-- Not when orders are settled, by thousands at a time: only when something is claimed back, or given again.
CREATE FUNCTION write_settlement_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO settlement_history (merchant_id, order_no, seq, from_status, to_status, event, clawed_back, created_at)
    SELECT merchant_id, order_no, coalesce(last.seq, 0) + 1, coalesce(last.to_status, 'SETTLED'), status,
           CASE WHEN changed.clawed_back < last.clawed_back THEN 'RESTORED'
                WHEN status = 'CLAWED_BACK' THEN 'ALL_CLAWED_BACK'
                ELSE 'PART_CLAWED_BACK' END,
           changed.clawed_back, updated_at
    FROM changed
    LEFT JOIN LATERAL (SELECT seq, to_status, clawed_back FROM settlement_history AS past
                       WHERE past.merchant_id = changed.merchant_id AND past.order_no = changed.order_no
                       ORDER BY seq DESC LIMIT 1) AS last ON true
    WHERE (status, changed.clawed_back) <> (coalesce(last.to_status, 'SETTLED'), coalesce(last.clawed_back, 0));
    RETURN NULL;
END
$$;
CREATE TRIGGER settlements_go_on_in_history AFTER UPDATE ON settlements
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION write_settlement_history();

-- What exists is carried over: nobody writes it since its trigger is there.
INSERT INTO settlement_history (merchant_id, order_no, seq, from_status, to_status, event, clawed_back, created_at)
SELECT merchant_id, order_no, 1, 'SETTLED', status, 'CARRIED_OVER', clawed_back, updated_at
FROM settlements WHERE clawed_back > 0;

INSERT INTO service_rules (table_name, rights) VALUES
    -- Written once, and evidence from then on.
    ('public.settlement_history', '{SELECT, INSERT}');
SELECT grant_service_rights();

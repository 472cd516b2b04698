-- What the last audit found, and when the next one is due: one row, for all instances. That one of them audits just now is
-- an advisory lock, which dies with it.
CREATE TABLE last_audit (
    is_only     boolean CONSTRAINT last_audit_pkey PRIMARY KEY DEFAULT true CONSTRAINT last_audit_is_one_row CHECK (is_only),
    -- The moment that it speaks of.
    audited_at  timestamptz NOT NULL,
    next_at     timestamptz NOT NULL,
    report      jsonb NOT NULL
);

SELECT grant_service_rights();

-- What the last audit found, and when the next one is due: one row, for all instances. That one of them audits just now is
-- an advisory lock of its transaction.
CREATE TABLE last_audit (
    is_only     boolean CONSTRAINT last_audit_pkey PRIMARY KEY DEFAULT true CONSTRAINT last_audit_is_one_row CHECK (is_only),
    next_at     timestamptz NOT NULL,
    -- The moment that it speaks of, and what it found; nothing as long as none came to its end.
    audited_at  timestamptz,
    report      jsonb,
    CONSTRAINT last_audit_is_whole CHECK ((audited_at IS NULL) = (report IS NULL))
);

SELECT grant_service_rights();

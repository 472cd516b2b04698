-- Reconciliation: what channels say of a day, beside what is written here.

-- One row for a channel's day: run again, it begins anew and keeps what it found before.
CREATE TABLE reconciliations (
    reconciliation_id  text COLLATE "C" PRIMARY KEY,
    channel            text COLLATE "C" NOT NULL,
    -- Of the channel's own calendar; it lasts from begins_at to ends_at.
    day                date NOT NULL,
    begins_at          timestamptz NOT NULL,
    ends_at            timestamptz NOT NULL,
    status             text NOT NULL DEFAULT 'OPEN',
    -- How often it was begun.
    round              integer NOT NULL DEFAULT 1,
    source             text NOT NULL,
    -- Of an upload: what it looks like, and where it is kept.
    format             text,
    file_id            text COLLATE "C",
    file_sha256        text,
    -- Where fetching goes on: lines that are here, and the channel's own word for its next page.
    lines              bigint NOT NULL DEFAULT 0,
    next_page          text,
    -- Where comparing goes on: a place in the lines, then an instant of ours, and what was compared by then.
    after_kind         text COLLATE "C" NOT NULL DEFAULT '',
    after_channel_id   text COLLATE "C" NOT NULL DEFAULT '',
    after_line_no      bigint NOT NULL DEFAULT 0,
    is_walked          boolean NOT NULL DEFAULT false,
    walked_until       timestamptz,
    -- What came here later is not compared: it would be seen from one side only.
    compared_at        timestamptz,
    -- Ours against theirs, by kind of movement and currency.
    totals             jsonb NOT NULL DEFAULT '{}',
    -- Why it waits for another statement, or for the same one later.
    fault              text,
    detail             text,
    attempts           integer NOT NULL DEFAULT 0,
    leased_until       timestamptz NOT NULL,
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    finished_at        timestamptz,
    version            integer NOT NULL DEFAULT 1,
    CONSTRAINT reconciliations_day_once UNIQUE (channel, day),
    CONSTRAINT reconciliations_status_is_known
        CHECK (status IN ('OPEN', 'FETCHING', 'MATCHING', 'ACTING', 'DONE')),
    CONSTRAINT reconciliations_source_is_known CHECK (source IN ('CHANNEL', 'UPLOAD')),
    CONSTRAINT reconciliations_format_is_known CHECK (format IN ('sandbox', 'alipay', 'wechat', 'stripe')),
    CONSTRAINT reconciliations_file_matches CHECK (source <> 'UPLOAD' OR format IS NOT NULL),
    CONSTRAINT reconciliations_finished_at_matches CHECK ((status = 'DONE') = (finished_at IS NOT NULL)),
    CONSTRAINT reconciliations_fault_is_told CHECK ((fault IS NULL) = (detail IS NULL) AND (fault IS NULL OR status = 'OPEN'))
);
-- What a worker may take.
CREATE INDEX reconciliations_open ON reconciliations (leased_until) WHERE status <> 'DONE';

-- Every change of state, as order_history has those of orders.
CREATE TABLE reconciliation_history (
    reconciliation_id  text COLLATE "C" NOT NULL,
    seq                integer NOT NULL,
    from_status        text,
    to_status          text NOT NULL,
    event              text NOT NULL,
    created_at         timestamptz NOT NULL,
    CONSTRAINT reconciliation_history_pkey PRIMARY KEY (reconciliation_id, seq),
    CONSTRAINT reconciliation_history_first_has_no_past CHECK ((seq = 1) = (from_status IS NULL))
);

-- Files that operators brought, in pieces, until their lines are read and some days more. A piece is one commit, so
-- nothing of a file is ever held in memory, and any instance can read it.
CREATE TABLE statement_files (
    file_id     text COLLATE "C" NOT NULL,
    part        integer NOT NULL,
    bytes       bytea NOT NULL,
    created_at  timestamptz NOT NULL,
    CONSTRAINT statement_files_pkey PRIMARY KEY (file_id, part)
);
-- The retention duty walks it by age; BRIN because rows come in that order.
CREATE INDEX statement_files_by_age ON statement_files USING brin (created_at);

-- The lines of statements while they are compared, and some days more for the days beside. Logged, although it could be
-- had again: an unlogged table is empty after a crash and on every standby, and an empty statement reads as "they have
-- nothing of ours". A chunk commits together with the place behind it in `reconciliations`, so that a kill costs one
-- chunk, and no key of its own is needed.
CREATE TABLE statement_lines (
    reconciliation_id  text COLLATE "C" NOT NULL,
    line_no            bigint NOT NULL,
    kind               text COLLATE "C" NOT NULL,
    our_id             text COLLATE "C" NOT NULL,
    channel_id         text COLLATE "C" NOT NULL,
    amount             bigint NOT NULL,
    currency           text COLLATE "C" NOT NULL,
    fee                bigint NOT NULL,
    is_final           boolean NOT NULL,
    at                 timestamptz NOT NULL
);
-- Comparing walks it in this order, in which the trades stand too and the same movement twice is side by side; and
-- looks movements of ours up in it. In no other order is a line ever wanted.
CREATE INDEX statement_lines_by_key ON statement_lines (reconciliation_id, kind, channel_id, line_no);
-- Refunds and payouts of ours are looked up by our own number. Payments, which are most, stay out of it.
CREATE INDEX statement_lines_by_our_id ON statement_lines (our_id) WHERE kind <> 'PAYMENT';

-- One difference, once, however often its day is compared.
CREATE TABLE reconciliation_items (
    item_id            text COLLATE "C" PRIMARY KEY,
    channel            text COLLATE "C" NOT NULL,
    reconciliation_id  text COLLATE "C" NOT NULL
        CONSTRAINT reconciliation_items_run_fkey REFERENCES reconciliations,
    class              text NOT NULL,
    kind               text NOT NULL,
    -- What it is about: the channel's number of a payment, our own of anything else.
    subject            text COLLATE "C" NOT NULL,
    our_id             text COLLATE "C" NOT NULL,
    channel_id         text COLLATE "C" NOT NULL,
    merchant_id        text COLLATE "C",
    order_no           text COLLATE "C",
    -- Minor units here and there; NULL where there is nothing.
    ours               bigint,
    theirs             bigint,
    our_status         text,
    currency           text NOT NULL,
    -- When, by the channel's clock where it says so.
    at                 timestamptz NOT NULL,
    action             text NOT NULL,
    -- Whether carrying the action out may make money move, which RECON_AUTO and the day's cap decide over.
    moves_money        boolean NOT NULL,
    status             text NOT NULL DEFAULT 'PROPOSED',
    -- The operator who decided; NULL where the service did.
    decided_by         text,
    decided_at         timestamptz,
    -- What came of it, for people.
    outcome            text,
    -- The round of its day in which it was seen last.
    seen_round         integer NOT NULL,
    attempts           integer NOT NULL DEFAULT 0,
    -- When it may be tried next; while somebody works on it, when they count as dead.
    due_at             timestamptz NOT NULL,
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    version            integer NOT NULL DEFAULT 1,
    -- Also when the days beside each other both come upon it.
    CONSTRAINT reconciliation_items_once UNIQUE (channel, class, kind, subject),
    CONSTRAINT reconciliation_items_class_is_known
        CHECK (class IN ('MISSING_HERE', 'MISSING_THERE', 'AMOUNT_DIFFERS', 'STATUS_DIFFERS', 'DUPLICATE')),
    CONSTRAINT reconciliation_items_kind_is_known CHECK (kind IN ('PAYMENT', 'REFUND', 'REFUND_REVERSAL', 'PAYOUT')),
    CONSTRAINT reconciliation_items_action_is_known CHECK (action IN ('APPLY', 'ASK', 'ESCALATE')),
    CONSTRAINT reconciliation_items_status_is_known
        CHECK (status IN ('PROPOSED', 'WAITING', 'APPLYING', 'APPLIED', 'RESOLVED', 'DISMISSED', 'ESCALATED')),
    CONSTRAINT reconciliation_items_decision_is_dated CHECK (decided_by IS NULL OR decided_at IS NOT NULL),
    CONSTRAINT reconciliation_items_has_a_side CHECK (ours IS NOT NULL OR theirs IS NOT NULL)
);
-- The items of a day, page by page.
CREATE INDEX reconciliation_items_of_run ON reconciliation_items (reconciliation_id, item_id);
-- What a worker may take, in the order in which it does.
CREATE INDEX reconciliation_items_due ON reconciliation_items (action, due_at) WHERE status IN ('PROPOSED', 'APPLYING');
-- What waits for an end or for a person: counted by the overview, the audit and the figures.
CREATE INDEX reconciliation_items_open ON reconciliation_items (created_at)
    WHERE status IN ('PROPOSED', 'WAITING', 'APPLYING', 'ESCALATED');
-- The money that went by itself on a day, for its cap.
CREATE INDEX reconciliation_items_automatic ON reconciliation_items (decided_at)
    WHERE moves_money AND decided_by IS NULL AND decided_at IS NOT NULL;
CREATE INDEX reconciliation_items_of_order ON reconciliation_items (merchant_id, order_no) WHERE order_no IS NOT NULL;

-- ---- what comparing walks of ours -------------------------------------------------------------------------------------

-- Trades are only ever added, in the order of time: a BRIN costs the payment that writes one nothing.
CREATE INDEX trades_by_age ON trades USING brin (created_at) WITH (pages_per_range = 16, autosummarize = on);
-- The end of a refund or a withdrawal moves its row to another place in any case, so this is one entry at the right end
-- of an index whose last page is in memory.
-- In words that no look-up of a refund by its order uses, which must not walk it.
CREATE INDEX refunds_made ON refunds (updated_at) WHERE channel_refund_id IS NOT NULL;
CREATE INDEX withdrawals_succeeded ON withdrawals (updated_at) WHERE status = 'SUCCEEDED';

-- One word more than before; what is there obeys the tighter rule that goes.
ALTER TABLE exceptions
    DROP CONSTRAINT exceptions_kind_is_known,
    ADD CONSTRAINT exceptions_kind_is_known
        CHECK (kind IN ('AMOUNT_MISMATCH', 'STRAY_MONEY', 'UNKNOWN_ORDER', 'WRONG_ACCOUNT', 'UNREADABLE_CALLBACK',
                        'CONTRADICTION', 'DEAD_TASK', 'ENDPOINT_DISABLED', 'USAGE_SHORTFALL', 'RECONCILIATION',
                        'LATE_STATEMENT')) NOT VALID;

INSERT INTO service_rules (table_name, rights) VALUES
    -- What was found is evidence: it comes to an end, and stays.
    ('public.reconciliations', '{SELECT, INSERT, UPDATE}'),
    ('public.reconciliation_items', '{SELECT, INSERT, UPDATE}'),
    ('public.reconciliation_history', '{SELECT, INSERT}'),
    -- Kept for some days; a line is never changed.
    ('public.statement_files', '{SELECT, INSERT, DELETE}'),
    ('public.statement_lines', '{SELECT, INSERT, DELETE}');
SELECT grant_service_rights();

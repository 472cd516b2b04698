-- Compensation grows: tasks of two lanes, updates that are applied again, and lanes that a person may pause.

ALTER TABLE compensations
    -- Whose workers take it: REALTIME is for what somebody waits for, SWEEP for what is old, so that any number of old
    -- things never delays a fresh one.
    ADD COLUMN lane text COLLATE "C" NOT NULL DEFAULT 'REALTIME',
    -- What a REPLAY_UPDATE applies; text that came by way of Redis, and is read as such.
    ADD COLUMN payload jsonb,
    DROP CONSTRAINT IF EXISTS compensations_kind_is_known,
    -- What is there obeys, so nothing need be read.
    ADD CONSTRAINT compensations_kind_is_known
        CHECK (kind IN ('RESEND_EVENT', 'REPLAY_CALLBACK', 'REPLAY_UPDATE', 'REDO_BUSINESS')) NOT VALID,
    ADD CONSTRAINT compensations_lane_is_known CHECK (lane IN ('REALTIME', 'SWEEP')) NOT VALID,
    ADD CONSTRAINT compensations_update_is_given CHECK (kind <> 'REPLAY_UPDATE' OR payload IS NOT NULL) NOT VALID;

-- What is due in a lane; also finds tasks whose worker died, whose lease is their due time. Done and dead rows stay
-- outside, so it is as small with ten million of them as with none.
DROP INDEX compensations_due;
CREATE INDEX compensations_due ON compensations (lane, due_at) WHERE status IN ('READY', 'RUNNING');

-- What was given up last about a thing, when many are tried again.
CREATE INDEX compensations_dead_by_subject ON compensations (subject, action) WHERE status = 'DEAD';

-- The lanes, and whether their workers rest. Every claim looks here, so a pause is obeyed by all instances at once,
-- and outlives them.
CREATE TABLE compensation_lanes (
    lane        text COLLATE "C" PRIMARY KEY,
    -- Since when; NULL while they work.
    paused_at   timestamptz,
    paused_by   text,
    reason      text,
    CONSTRAINT compensation_lanes_lane_is_known CHECK (lane IN ('REALTIME', 'SWEEP')),
    CONSTRAINT compensation_lanes_pause_is_owned
        CHECK ((paused_at IS NULL) = (paused_by IS NULL) AND (paused_at IS NULL) = (reason IS NULL))
);
INSERT INTO compensation_lanes (lane) VALUES ('REALTIME'), ('SWEEP');

INSERT INTO service_rules (table_name, rights) VALUES ('public.compensation_lanes', '{SELECT, UPDATE}');
SELECT grant_service_rights();

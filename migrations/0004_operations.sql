-- Operations: a log that only grows, a database role for the service that can do no more than the service does,
-- and what the lists of the operators walk.

-- An entry may concern one order: it then stands in that order's timeline.
ALTER TABLE admin_log
    ADD COLUMN merchant_id text COLLATE "C",
    ADD COLUMN order_no text COLLATE "C";
CREATE INDEX admin_log_of_order ON admin_log (merchant_id, order_no) WHERE order_no IS NOT NULL;

-- The service's role may only add to the log. This stops everybody else too, the owner's own slips included; who
-- must remove rows for good has to drop the trigger first, which nobody does by accident.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: its rows are only ever added', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER admin_log_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON admin_log
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The inbox of the operators, newest first. Nearly every callback is APPLIED and stays out of this index, so the
-- hot insert does not write to it.
CREATE INDEX webhook_inbox_uncommon ON webhook_inbox (received_at, channel, event_id) WHERE verdict <> 'APPLIED';
-- The orders of the last day, counted for the overview: BRIN, because rows come in that order.
CREATE INDEX orders_by_age ON orders USING brin (created_at);

-- What the overview counts, and the list of tasks that were given up. Both are rare, so the indexes stay small.
CREATE INDEX refunds_unfinished ON refunds (created_at)
    WHERE status IN ('AWAITING_APPROVAL', 'PENDING', 'PROCESSING');
CREATE INDEX compensations_dead ON compensations (id) WHERE status = 'DEAD';

-- Exactly what the service does with each table, beside what its role may do: the list that is granted, that
-- `payonce doctor` compares, and that a later migration replaces when a table needs something else.
CREATE VIEW service_rights AS
SELECT format('%I.%I', nspname, relname) AS table_name, wanted.rights AS wanted, granted.rights AS granted
FROM pg_class AS class
JOIN pg_namespace ON pg_namespace.oid = relnamespace
CROSS JOIN LATERAL (
    SELECT ARRAY(SELECT unnest(CASE
        WHEN relname = '_sqlx_migrations' THEN '{SELECT}'
        -- Written once, and evidence from then on.
        WHEN nspname = 'public' AND relname IN ('admin_log', 'order_history', 'order_items', 'trades')
            THEN '{SELECT, INSERT}'
        -- An event never changes; that it has left is noted.
        WHEN nspname = 'public' AND relname = 'outbox' THEN '{SELECT, INSERT, UPDATE(published_at)}'
        -- Money, and whose it is: never deleted.
        WHEN nspname = 'public'
             AND relname IN ('merchants', 'api_keys', 'skus', 'orders', 'stock_reservations', 'pay_orders',
                             'stray_payments', 'refunds', 'exceptions')
            THEN '{SELECT, INSERT, UPDATE}'
        ELSE '{SELECT, INSERT, UPDATE, DELETE}'
    END::text[]) ORDER BY 1) AS rights
) AS wanted
CROSS JOIN LATERAL (
    SELECT ARRAY(
        SELECT privilege_type FROM aclexplode(relacl) WHERE grantee = to_regrole('payonce_service')
        UNION ALL
        SELECT format('%s(%s)', privilege_type, attname) FROM pg_attribute, aclexplode(attacl)
        WHERE attrelid = class.oid AND grantee = to_regrole('payonce_service')
        ORDER BY 1
    ) AS rights
) AS granted
WHERE nspname IN ('public', 'sandbox') AND relkind IN ('r', 'p');

-- `payonce migrate` calls this after every run, so that it also takes in the tables of later migrations, and a
-- role that was made later.
CREATE FUNCTION grant_service_rights() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    item record;
BEGIN
    IF to_regrole('payonce_service') IS NULL THEN
        RETURN;
    END IF;
    -- Instances that start together: changing the rights of one table twice at once is an error.
    PERFORM pg_advisory_xact_lock(hashtext('grant_service_rights'));
    GRANT SELECT ON service_rights TO payonce_service;
    GRANT USAGE ON SCHEMA public, sandbox TO payonce_service;
    FOR item IN SELECT * FROM service_rights WHERE wanted <> granted LOOP
        EXECUTE format('REVOKE ALL ON %s FROM payonce_service', item.table_name);
        EXECUTE format('GRANT %s ON %s TO payonce_service', array_to_string(item.wanted, ', '), item.table_name);
    END LOOP;
END
$$;

-- The service's connections run as this role (infra/db.rs); migrations run as the role of DATABASE_URL. Roles
-- belong to the whole cluster: another database of it may have made this one, even in this very moment.
DO $$
BEGIN
    IF to_regrole('payonce_service') IS NULL THEN
        CREATE ROLE payonce_service NOLOGIN;
    END IF;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN
        NULL;
    WHEN insufficient_privilege THEN
        RAISE WARNING 'the role payonce_service could not be made: the service will run with all rights of %; `payonce doctor` has the line that mends it', current_user;
END
$$;
DO $$
BEGIN
    IF to_regrole('payonce_service') IS NOT NULL
       -- Since 16 who made a role is its member, but may not act as it.
       AND NOT pg_has_role(current_user, 'payonce_service',
                           CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'SET' END)
    THEN
        EXECUTE format('GRANT payonce_service TO %I', current_user);
    END IF;
EXCEPTION
    WHEN unique_violation THEN
        NULL;
    WHEN insufficient_privilege THEN
        RAISE WARNING '% is no member of the role payonce_service: the service will run with all its rights; `payonce doctor` has the line that mends it', current_user;
END
$$;
SELECT grant_service_rights();

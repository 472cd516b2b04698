//! The right time of a world, which is its database's: it can be moved on, and tells when orders were made and closed,
//! whatever the clocks of the instances show.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::instances::Instances;
use super::life::LONGEST_LIFE_SECS;
use crate::support::TestApp;
use crate::support::clocks::knows_to_be_ahead;

/// Time that passes after a storm: more than any order lives, so that one whose only callback was lost runs out, which is
/// when the channel is asked about it.
const PASSES: Duration = Duration::from_secs(LONGEST_LIFE_SECS + 5 * 60);

/// Takes the clock's place for every session that begins afterwards, and notes what the clock showed.
const TAKE_OVER: &str = "
    CREATE SCHEMA world;
    GRANT USAGE ON SCHEMA world TO PUBLIC;
    CREATE TABLE world.time (passed interval NOT NULL);
    GRANT SELECT ON world.time TO PUBLIC;
    INSERT INTO world.time VALUES ('0');
    CREATE FUNCTION world.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
        'SELECT pg_catalog.clock_timestamp() + passed FROM world.time';

    CREATE TABLE world.lives (order_no text PRIMARY KEY, made_at timestamptz NOT NULL, closed_at timestamptz);
    CREATE FUNCTION world.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        IF TG_OP = 'INSERT' THEN
            INSERT INTO world.lives VALUES (NEW.order_no, world.clock_timestamp());
        ELSE
            UPDATE world.lives SET closed_at = world.clock_timestamp() WHERE order_no = NEW.order_no;
        END IF;
        RETURN NULL;
    END $$;
    INSERT INTO world.lives SELECT order_no, created_at, CASE WHEN close_reason = 'TIMEOUT' THEN expires_at END FROM orders;
    CREATE TRIGGER note_made AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION world.note();
    CREATE TRIGGER note_closed AFTER UPDATE ON orders FOR EACH ROW
        WHEN (NEW.close_reason = 'TIMEOUT' AND OLD.close_reason IS NULL) EXECUTE FUNCTION world.note();
    ";

/// Begins to keep the time of a database with the schema in it, before anybody else comes.
pub async fn keep(database_url: &str) {
    let mut conn = PgConnection::connect(database_url).await.expect("connect");
    sqlx::raw_sql(TAKE_OVER).execute(&mut conn).await.expect("a clock");
    let database: String = sqlx::query_scalar("SELECT quote_ident(current_database())")
        .fetch_one(&mut conn)
        .await
        .expect("a name");
    let first = format!("ALTER DATABASE {database} SET search_path = world, pg_catalog, public");
    sqlx::raw_sql(AssertSqlSafe(first)).execute(&mut conn).await.expect("found first");
    conn.close().await.ok();
}

/// Time passes for everybody: all that was put off is due. The channel goes last, which listens to nobody who is far from
/// its own time, and to which nobody listens.
pub async fn pass(app: &TestApp, instances: &Instances) {
    app.sql(&format!("UPDATE world.time SET passed = passed + interval '{} s'", PASSES.as_secs())).await;
    let mut conn = app.direct_connection().await;
    let passed = "SELECT extract(epoch FROM passed)::bigint FROM world.time";
    let passed: i64 = sqlx::query_scalar(passed).fetch_one(&mut conn).await.expect("a time");
    conn.close().await.ok();
    for service in instances.living() {
        let has_passed = async || knows_to_be_ahead(service, -passed).await;
        service.until("time has passed there", has_passed).await.expect("it lives");
    }
    app.instance.app.db.keep_time().await.expect("the time");
}

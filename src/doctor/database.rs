//! PostgreSQL: reachable, new enough, migrated, durable, roomy, and in step with our clock.

use std::time::Duration;

use secrecy::ExposeSecret;

use super::model::Finding;
use super::settings::Settings;
use super::store::{Facts, Probe};
use crate::config::{DatabaseConfig, LEAST_POOL};
use crate::infra::clock::MOST_SKEW;

/// Longest wait for all of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// The oldest PostgreSQL that will do.
const OLDEST: i32 = 150_000;

/// Every check that needs a connection.
const NEEDING_IT: [&str; 8] = [
    "database.version",
    "database.primary",
    "database.schema",
    "database.role",
    "database.durability",
    "database.connections",
    "database.clock",
    "database.time_zone",
];

pub(super) async fn examine(settings: &Settings, instances: u32) -> Vec<Finding> {
    let Some(config) = settings.with("DATABASE_URL") else {
        return unreachable(Finding::unknown("database.reachable", "DATABASE_URL is wrong"));
    };
    let time_zone = &config.reconciliation.time_zone;
    let looked = tokio::time::timeout(PATIENCE, look(&config.database, time_zone)).await;
    let (facts, skew, is_known) = match looked {
        Ok(Ok(looked)) => looked,
        Ok(Err(error)) => return unreachable(not_reached(&error.to_string())),
        Err(_) => return unreachable(not_reached("no answer within ten seconds")),
    };
    let needed = i64::from(config.database.pool_size) * i64::from(instances);
    vec![
        Finding::fine("database.reachable", format!("as {} in {}", facts.user_name, facts.database_name)),
        version(&facts),
        primary(&facts),
        schema(&facts),
        role(&facts),
        durability(&facts),
        connections(&facts, needed, instances),
        in_step(skew),
        match settings.with("RECON_TZ") {
            Some(_) => known(time_zone, is_known),
            None => Finding::unknown("database.time_zone", "RECON_TZ is wrong"),
        },
    ]
}

async fn look(
    config: &DatabaseConfig,
    time_zone: &str,
) -> Result<(Facts, time::Duration, bool), sqlx::Error> {
    let mut probe = Probe::connect(config.url.expose_secret()).await?;
    let facts = probe.facts().await?;
    let skew = probe.skew().await?.abs();
    let is_known = probe.knows_time_zone(time_zone).await?;
    probe.close().await;
    Ok((facts, skew, is_known))
}

fn not_reached(error: &str) -> Finding {
    Finding::wrong(
        "database.reachable",
        error,
        "start PostgreSQL, or set DATABASE_URL; then: psql \"$DATABASE_URL\" -c 'SELECT 1'",
    )
}

fn unreachable(why: Finding) -> Vec<Finding> {
    let rest = NEEDING_IT.map(|check| Finding::unknown(check, "the database was not reached"));
    std::iter::once(why).chain(rest).collect()
}

fn version(facts: &Facts) -> Finding {
    if facts.version_num >= OLDEST {
        return Finding::fine("database.version", &facts.version);
    }
    let found = format!("{}; expected 15 or later", facts.version);
    Finding::wrong("database.version", found, "apt-get install postgresql-17, then pg_upgradecluster")
}

fn primary(facts: &Facts) -> Finding {
    if facts.is_standby {
        let line = "set DATABASE_URL to the primary, or promote this one: psql \"$DATABASE_URL\" -c 'SELECT pg_promote()'";
        return Finding::wrong("database.primary", "it is a standby, which takes nothing", line);
    }
    Finding::fine("database.primary", "it is in charge")
}

fn schema(facts: &Facts) -> Finding {
    match (facts.schema.missing.as_slice(), facts.schema.unknown) {
        ([], 0) => Finding::fine("database.schema", "every migration is applied"),
        ([], newer) => {
            let found = format!("{newer} migrations are of a newer version of payonce");
            Finding::wrong("database.schema", found, "install the version of payonce that migrated it")
        }
        (missing, _) => {
            let found = format!("not applied: {}", missing.join(", "));
            Finding::wrong("database.schema", found, "payonce migrate")
        }
    }
}

fn role(facts: &Facts) -> Finding {
    let check = "database.role";
    let grant = format!("GRANT payonce_service TO \"{}\"", facts.user_name);
    let as_superuser = |statement: &str| {
        format!("sudo -u postgres psql -d {} -c '{statement}' && payonce migrate", facts.database_name)
    };
    if !facts.has_role {
        let found = "there is no role payonce_service, so the service runs with all rights of its user";
        return Finding::wrong(
            check,
            found,
            as_superuser(&format!("CREATE ROLE payonce_service NOLOGIN; {grant}")),
        );
    }
    if !facts.may_take_role {
        let found = format!(
            "{} may not act as payonce_service, so the service runs with all its rights",
            facts.user_name
        );
        return Finding::wrong(check, found, as_superuser(&grant));
    }
    if !facts.schema.missing.is_empty() {
        return Finding::unknown(check, "the schema is not current");
    }
    if !facts.wrong_rights.is_empty() {
        let found =
            format!("payonce_service has other rights than it should on {}", facts.wrong_rights.join(", "));
        return Finding::wrong(check, found, "payonce migrate");
    }
    match facts.log_guard {
        Some(true) => {
            Finding::fine(check, "payonce_service has exactly its rights, and the admin log only grows")
        }
        Some(false) => {
            let line =
                "psql \"$DATABASE_URL\" -c 'ALTER TABLE admin_log ENABLE TRIGGER admin_log_only_grows'";
            Finding::wrong(check, "the trigger admin_log_only_grows is off", line)
        }
        None => {
            let line = "psql \"$DATABASE_URL\" -c 'CREATE TRIGGER admin_log_only_grows \
                        BEFORE UPDATE OR DELETE OR TRUNCATE ON admin_log \
                        FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()'";
            Finding::wrong(check, "there is no trigger admin_log_only_grows", line)
        }
    }
}

fn durability(facts: &Facts) -> Finding {
    let check = "database.durability";
    let off: Vec<&str> =
        facts.durability.iter().filter(|(_, value)| value == "off").map(|(name, _)| name.as_str()).collect();
    if off.is_empty() {
        let all: Vec<String> =
            facts.durability.iter().map(|(name, value)| format!("{name}={value}")).collect();
        return Finding::fine(check, all.join(", "));
    }
    let resets: Vec<String> = off.iter().map(|name| mend_setting(name, &facts.database_name)).collect();
    let found = format!("off: {}; what was acknowledged can be lost in a crash", off.join(", "));
    let line = format!("sudo -u postgres psql {} -c 'SELECT pg_reload_conf()'", resets.join(" "));
    Finding::wrong(check, found, line)
}

/// Only `synchronous_commit` can also be set for a database alone.
fn mend_setting(name: &str, database: &str) -> String {
    let everywhere = format!("-c 'ALTER SYSTEM SET {name} = on'");
    match name {
        "synchronous_commit" => format!("{everywhere} -c 'ALTER DATABASE \"{database}\" RESET {name}'"),
        _ => everywhere,
    }
}

fn connections(facts: &Facts, needed: i64, instances: u32) -> Finding {
    let check = "database.connections";
    let room = i64::from(facts.max_connections) - i64::from(facts.reserved_connections);
    let found = format!("{needed} for {instances} instances, {room} there are");
    if needed <= room {
        return Finding::fine(check, found);
    }
    let line = format!(
        "DATABASE_POOL_SIZE={}, or: sudo -u postgres psql -c 'ALTER SYSTEM SET max_connections = {}', and restart it",
        (room / i64::from(instances.max(1))).max(LEAST_POOL.into()),
        needed + i64::from(facts.reserved_connections) + 10,
    );
    Finding::wrong(check, found, line)
}

fn in_step(skew: time::Duration) -> Finding {
    let check = "database.clock";
    let found = format!(
        "this machine's and the database's, by which the service goes, are {} ms apart",
        skew.whole_milliseconds()
    );
    if skew <= MOST_SKEW {
        return Finding::fine(check, found);
    }
    Finding::wrong(check, found, "apt-get install chrony, on both machines")
}

/// Only the database knows which there are, and the service does not start by another.
fn known(time_zone: &str, is_known: bool) -> Finding {
    let check = "database.time_zone";
    if is_known {
        return Finding::fine(check, format!("it knows {time_zone}"));
    }
    let found = format!(
        "it does not know `{time_zone}`; psql \"$DATABASE_URL\" -c 'TABLE pg_timezone_names' has all"
    );
    Finding::wrong(check, found, "RECON_TZ=UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;

    #[test]
    fn a_clock_that_runs_away_is_told() {
        assert_eq!(in_step(time::Duration::milliseconds(300)).health, Health::Fine);
        let finding = in_step(time::Duration::seconds(3));
        assert_eq!(finding.health, Health::Wrong);
        assert!(finding.mend.is_some_and(|line| line.contains("chrony")));
    }

    #[test]
    fn an_old_postgresql_is_told() {
        let facts = Facts { version: "14.9".into(), version_num: 140_009, ..Facts::default() };
        assert_eq!(version(&facts).health, Health::Wrong);
        assert_eq!(version(&Facts { version_num: 150_000, ..facts }).health, Health::Fine);
    }
}

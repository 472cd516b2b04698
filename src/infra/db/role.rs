//! As whom the connections of a pool run.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::{Executor, PgConnection};

use super::{Db, DbError};
use crate::config::DatabaseConfig;
use crate::ids::Ids;

/// As whom connections run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunAs {
    /// The role `payonce_service`, which may do what the service does and no more: not change its admin log, for one.
    Service,
    /// The role that `DATABASE_URL` names, which owns the schema.
    Owner,
}

impl RunAs {
    /// Takes the role on a new connection, for as long as it lives: a statement costs nothing more.
    pub(super) async fn take_role(self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        match self {
            Self::Service => act_as_service(conn).await,
            Self::Owner => Ok(()),
        }
    }
}

impl Db {
    /// A pool that acts as the owner of the schema: for a look where there is none yet, or one of an older version.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn of_owner(config: &DatabaseConfig, ids: Ids) -> Result<Self, DbError> {
        Self::running_as(RunAs::Owner, config, ids)
    }
}

/// Takes the service's role, once for the life of a connection. A database where that cannot be is served all the
/// same: the rights are a second wall, and no reason to stop taking payments.
async fn act_as_service(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    let taken = conn
        .execute(
            "SELECT set_config('role', rolname, false) FROM pg_roles
             WHERE rolname = 'payonce_service'
               AND pg_has_role(session_user, oid,
                               -- Since 16 one may be a member that cannot act as the role.
                               CASE WHEN current_setting('server_version_num')::int < 160000
                                    THEN 'MEMBER' ELSE 'SET' END)
               -- Another database of the cluster may have made it, and nobody have migrated this one yet.
               AND has_table_privilege(oid, to_regclass('public.admin_log'), 'INSERT')",
        )
        .await?;
    if taken.rows_affected() == 0 && !IS_TOLD.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "the service may not act as payonce_service, so nothing but its code keeps it from changing \
                        its admin log; `payonce doctor` has the line that mends it"
        );
    }
    Ok(())
}

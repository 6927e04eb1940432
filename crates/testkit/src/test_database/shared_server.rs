//! Test databases on a server that other applications use, without a trace afterwards.
//!
//! Symphony's roles belong to the whole server. Roles that existed before stay. All of them stay if another session
//! uses one by now: PostgreSQL refuses to drop a role that owns objects, but silently drops memberships and roles
//! without privileges.

use std::hash::{BuildHasher, RandomState};

use symphony_db::connect;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::{Error, PIN_SEARCH_PATH, Server, refused, remove_template};

/// The advisory lock that serialises runs: a second run waits, and does not see roles that the first will drop.
const RUN_LOCK: i64 = 7_000_000_002;
/// The database of the lock, because advisory locks belong to one database: nearly every server has this one.
const LOCK_DATABASE: &str = "postgres";

/// The owner role first: an install in progress locks it, and the drop then fails.
const ROLES: [&str; 7] = [
    "symphony_control",
    "symphony_ingest",
    "symphony_executor",
    "symphony_operator",
    "symphony_readonly",
    "symphony_auditor",
    "symphony_auth",
];
const LOGIN: &str = "select rolname::text, rolsuper, rolcreatedb from pg_roles where rolname = current_user";
const ROLES_THERE: &str = "select rolname::text from pg_roles where rolname = any ($1)";
/// Locks roles and memberships against changes, and waits for open changes.
const LOCK_ROLES: &str = "set local lock_timeout = '10s';
    lock table pg_catalog.pg_authid, pg_catalog.pg_auth_members in share row exclusive mode";
/// Whether anything on the whole server refers to one of these roles. Our own objects are dropped before.
const IN_USE: &str = "with ours as (select oid from pg_roles where rolname = any ($1))
    select exists (select from pg_shdepend d join ours on d.refclassid = 'pg_authid'::regclass and d.refobjid = ours.oid)
        or exists (select from pg_auth_members m join ours on ours.oid in (m.roleid, m.member, m.grantor))
        or exists (select from pg_db_role_setting s join ours on s.setrole = ours.oid)";

/// A run on a shared server. End it with [`SharedServer::clean_up`].
#[derive(Debug)]
pub struct SharedServer {
    server: Server,
    /// The roles that this run creates and drops.
    roles: Vec<&'static str>,
    /// Holds the run lock.
    _lock: Client,
}

impl SharedServer {
    /// Waits for other runs on the server at this URL, and locks it. Creates nothing yet.
    pub async fn lock(url: &str) -> Result<Self, Error> {
        let mut server = Server::at(url)?;
        // A template of our own, because we drop it at the end.
        server.template = format!("{}_{:016x}", server.template, RandomState::new().hash_one(std::process::id()));
        let admin = server.admin().await?;
        let login = admin.query_one(LOGIN, &[]).await.map_err(refused("look at the login"))?;
        let (user, is_superuser, may_create): (String, bool, bool) = (login.get(0), login.get(1), login.get(2));
        if !is_superuser {
            let lacks = if may_create {
                "is not a superuser: the proofs act as every role, the owner included"
            } else {
                "may not create databases, and is not a superuser: the proofs need both"
            };
            return Err(Error::Rights { user, lacks });
        }
        let lock = run_lock(&server).await?;
        let there = admin.query(ROLES_THERE, &[&ROLES.as_slice()]).await.map_err(refused("look at the roles"))?;
        let there: Vec<String> = there.iter().map(|row| row.get(0)).collect();
        let roles = ROLES.into_iter().filter(|role| there.iter().all(|is| is != role)).collect();
        Ok(Self { server, roles, _lock: lock })
    }

    /// The server on which databases are created.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Drops the template, and the roles that did not exist before unless another session uses one by now.
    pub async fn clean_up(self) -> Result<(), Error> {
        let mut admin = self.server.admin().await?;
        remove_template(&admin, &self.server.template).await?;
        match drop_unused(&mut admin, &self.roles).await {
            // Another session uses them, or a lock hides whether one does: they stay.
            Err(error) if error.code().is_some_and(|code| IN_USE_ERRORS.contains(code)) => Ok(()),
            done => done.map_err(refused("drop the roles")),
        }
    }
}

/// The errors of a role that is in use, or that may be.
const IN_USE_ERRORS: [SqlState; 3] =
    [SqlState::DEPENDENT_OBJECTS_STILL_EXIST, SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED];

/// Drops all of these roles, or none.
async fn drop_unused(admin: &mut Client, roles: &[&str]) -> Result<(), tokio_postgres::Error> {
    if roles.is_empty() {
        return Ok(());
    }
    let transaction = admin.transaction().await?;
    transaction.batch_execute(LOCK_ROLES).await?;
    if transaction.query_one(IN_USE, &[&roles]).await?.get(0) {
        return transaction.rollback().await;
    }
    for role in roles {
        transaction.batch_execute(&format!("drop role if exists {role}")).await?;
    }
    transaction.commit().await
}

/// Waits for the run lock and holds it until the session ends.
async fn run_lock(server: &Server) -> Result<Client, Error> {
    let session = match server.session(LOCK_DATABASE).await {
        Err(Error::Connect(connect::Error::Connect { source, .. }))
            if source.code() == Some(&SqlState::INVALID_CATALOG_NAME) =>
        {
            server.admin().await?
        }
        session => session?,
    };
    session.batch_execute(PIN_SEARCH_PATH).await.map_err(refused("pin the search_path"))?;
    let lock = "select pg_advisory_lock($1)";
    session.execute(lock, &[&RUN_LOCK]).await.map_err(refused("wait for another run to end"))?;
    Ok(session)
}

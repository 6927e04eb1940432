//! A visit to a server that goes on without us: what the visit makes, it takes away again.
//!
//! Databases are one thing; Symphony's roles are another, because they belong to the whole server. Those that were
//! there before stay, and so do all of them if anybody else has come to use one: PostgreSQL refuses to drop a role that
//! owns something, but lets go of memberships and of roles without rights without a word.

use std::hash::{BuildHasher, RandomState};

use symphony_outbox::connect;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::{Error, PIN, Server, refused, remove_template};

/// The advisory lock of a visit: whoever comes second waits, and finds no roles that somebody will take away.
const VISIT_LOCK: i64 = 7_000_000_002;
/// Where the lock is, because locks are of one database: the one that nearly every server has.
const MEETING_PLACE: &str = "postgres";

/// The owner of everything first: an install under way holds on to it, and whoever drops it finds out.
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
/// Keeps roles and memberships as they are, and waits for those who are changing them.
const HOLD_STILL: &str = "set local lock_timeout = '10s';
    lock table pg_catalog.pg_authid, pg_catalog.pg_auth_members in share row exclusive mode";
/// Whether anything on the whole server refers to one of these roles. What is ours is gone by then.
const IN_USE: &str = "with ours as (select oid from pg_roles where rolname = any ($1))
    select exists (select from pg_shdepend d join ours on d.refclassid = 'pg_authid'::regclass and d.refobjid = ours.oid)
        or exists (select from pg_auth_members m join ours on ours.oid in (m.roleid, m.member, m.grantor))
        or exists (select from pg_db_role_setting s join ours on s.setrole = ours.oid)";

/// A visit. End it with [`Guest::leave`].
#[derive(Debug)]
pub struct Guest {
    server: Server,
    /// The roles that are ours to take away.
    roles: Vec<&'static str>,
    /// Holds the lock of the visit.
    _visit: Client,
}

impl Guest {
    /// Begins a visit to the server at this URL, when nobody else visits it. Nothing is made yet.
    pub async fn arrive(url: &str) -> Result<Self, Error> {
        let mut server = Server::at(url)?;
        // Nobody else's, so that nobody loses it when we leave.
        server.template = format!("{}_{:016x}", server.template, RandomState::new().hash_one(std::process::id()));
        let admin = server.admin().await?;
        let login = admin.query_one(LOGIN, &[]).await.map_err(refused("look at the login"))?;
        let (user, is_superuser, may_create): (String, bool, bool) = (login.get(0), login.get(1), login.get(2));
        if !is_superuser {
            let lacks = if may_create {
                "is no superuser: the proofs act as every role, the owner included"
            } else {
                "may not create databases, and is no superuser: the proofs need both"
            };
            return Err(Error::Rights { user, lacks });
        }
        let visit = visit(&server).await?;
        let there = admin.query(ROLES_THERE, &[&ROLES.as_slice()]).await.map_err(refused("look at the roles"))?;
        let there: Vec<String> = there.iter().map(|row| row.get(0)).collect();
        let roles = ROLES.into_iter().filter(|role| there.iter().all(|is| is != role)).collect();
        Ok(Self { server, roles, _visit: visit })
    }

    /// Where databases are made.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Takes away the template, and the roles that were not there before unless somebody uses one of them now.
    pub async fn leave(self) -> Result<(), Error> {
        let mut admin = self.server.admin().await?;
        remove_template(&admin, &self.server.template).await?;
        match drop_unused(&mut admin, &self.roles).await {
            // Somebody is about to use them, or keeps us from knowing: they are theirs now.
            Err(error) if error.code().is_some_and(|code| THEIRS.contains(code)) => Ok(()),
            done => done.map_err(refused("drop the roles")),
        }
    }
}

/// How the server says that a role is in use after all, or that it cannot be known.
const THEIRS: [SqlState; 3] =
    [SqlState::DEPENDENT_OBJECTS_STILL_EXIST, SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED];

/// Drops all of these roles, or none.
async fn drop_unused(admin: &mut Client, roles: &[&str]) -> Result<(), tokio_postgres::Error> {
    if roles.is_empty() {
        return Ok(());
    }
    let transaction = admin.transaction().await?;
    transaction.batch_execute(HOLD_STILL).await?;
    if transaction.query_one(IN_USE, &[&roles]).await?.get(0) {
        return transaction.rollback().await;
    }
    for role in roles {
        transaction.batch_execute(&format!("drop role if exists {role}")).await?;
    }
    transaction.commit().await
}

/// Waits until nobody else visits the server, and keeps others waiting for as long as the session lasts.
async fn visit(server: &Server) -> Result<Client, Error> {
    let session = match server.session(MEETING_PLACE).await {
        Err(Error::Connect(connect::Error::Connect { source, .. }))
            if source.code() == Some(&SqlState::INVALID_CATALOG_NAME) =>
        {
            server.admin().await?
        }
        session => session?,
    };
    session.batch_execute(PIN).await.map_err(refused("pin the search_path"))?;
    let lock = "select pg_advisory_lock($1)";
    session.execute(lock, &[&VISIT_LOCK]).await.map_err(refused("wait for another visit to end"))?;
    Ok(session)
}

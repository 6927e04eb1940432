//! A visit to a server that goes on without us: what the visit makes, it takes away again.
//!
//! Databases are one thing; Symphony's roles are another, because they belong to the whole server. Those that were
//! there before stay.

use std::hash::{BuildHasher, RandomState};

use tokio_postgres::error::SqlState;

use super::{Error, Server, refused, remove_template};

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

/// A visit. End it with [`Guest::leave`].
#[derive(Debug)]
pub struct Guest {
    server: Server,
    /// The roles that are ours to take away.
    roles: Vec<&'static str>,
}

impl Guest {
    /// Begins a visit to the server at this URL. Nothing is made yet.
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
        let there = admin.query(ROLES_THERE, &[&ROLES.as_slice()]).await.map_err(refused("look at the roles"))?;
        let there: Vec<String> = there.iter().map(|row| row.get(0)).collect();
        let roles = ROLES.into_iter().filter(|role| there.iter().all(|is| is != role)).collect();
        Ok(Self { server, roles })
    }

    /// Where databases are made.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Takes away the template, and the roles that were not there before.
    pub async fn leave(self) -> Result<(), Error> {
        let admin = self.server.admin().await?;
        remove_template(&admin, &self.server.template).await?;
        for role in self.roles {
            match admin.batch_execute(&format!("drop role if exists {role}")).await {
                // Somebody has installed Symphony here meanwhile: it is theirs now.
                Err(error) if error.code() == Some(&SqlState::DEPENDENT_OBJECTS_STILL_EXIST) => {}
                done => done.map_err(refused(format!("drop role {role}")))?,
            }
        }
        Ok(())
    }
}

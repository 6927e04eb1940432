//! One clone of the template, and the logins that a test creates for it.

use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::{Mutex, PoisonError};
use std::thread;

use symphony_db::connect::Target;
use tokio_postgres::Client;

use crate::postgres::sessions;

use super::{Error, Server, refused, remove_database};

/// A database with Symphony installed for one test. It is removed at the end, also when a test panics.
#[derive(Debug)]
pub struct Database {
    server: Server,
    name: String,
    /// Roles belong to the whole server, so they are dropped by name.
    logins: Mutex<Vec<String>>,
    removed: bool,
}

impl Database {
    pub(super) fn new(server: Server, name: String) -> Self {
        Self { server, name, logins: Mutex::default(), removed: false }
    }

    /// Its name on the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its URL as a superuser.
    pub fn url(&self) -> String {
        self.target().url()
    }

    /// Its connection target as a superuser, which supports TLS.
    pub fn target(&self) -> Target {
        self.server.target.database(&self.name)
    }

    /// An empty database on the same server.
    pub async fn empty_sibling(&self) -> Result<Self, Error> {
        self.server.empty_database().await
    }

    /// A session as the superuser.
    pub async fn connect(&self) -> Result<Client, Error> {
        Ok(self.target().connect().await?)
    }

    /// A session of the superuser with `SET ROLE`.
    pub async fn connect_as(&self, role: &str) -> Result<Client, Error> {
        let client = self.connect().await?;
        client.batch_execute(&format!("set role {role}")).await.map_err(refused(format!("become {role}")))?;
        Ok(client)
    }

    /// Its URL as a new login with these roles and no other privileges.
    pub async fn url_as_login(&self, roles: &[&str]) -> Result<String, Error> {
        Ok(self.login(roles).await?.url())
    }

    /// A session of a new login with these roles and no other privileges.
    pub async fn connect_as_login(&self, roles: &[&str]) -> Result<Client, Error> {
        Ok(self.login(roles).await?.connect().await?)
    }

    /// Terminates every session of the database with `pg_terminate_backend`, and returns how many there were.
    pub async fn terminate_sessions(&self) -> Result<u64, Error> {
        let admin = self.server.admin().await?;
        sessions::terminate(&admin, &self.name).await.map_err(refused("end the sessions"))
    }

    async fn login(&self, roles: &[&str]) -> Result<Target, Error> {
        let user = format!("symphony_login_{:016x}", RandomState::new().hash_one(&self.name));
        let password = format!("{:016x}", RandomState::new().hash_one(&user));
        let client = self.connect().await?;
        self.logins.lock().unwrap_or_else(PoisonError::into_inner).push(user.clone());
        let create = format!("create role {user} login password '{password}'");
        client.batch_execute(&create).await.map_err(refused("create a login"))?;
        for role in roles {
            let grant = format!("grant {role} to {user}");
            client.batch_execute(&grant).await.map_err(refused(format!("grant {role} to a login")))?;
        }
        Ok(self.target().login(&user, &password))
    }

    /// Drops the database and its logins. Dropping this value does the same, but can only print an error.
    pub async fn close(mut self) -> Result<(), Error> {
        self.removed = true;
        let logins = mem::take(self.logins.get_mut().unwrap_or_else(PoisonError::into_inner));
        remove(&self.server, &self.name, &logins).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        let server = self.server.clone();
        let name = mem::take(&mut self.name);
        let logins = mem::take(self.logins.get_mut().unwrap_or_else(PoisonError::into_inner));
        // A thread with its own runtime: the current one may be shutting down, and `drop` cannot await.
        let removal = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime.map(|runtime| runtime.block_on(remove(&server, &name, &logins))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => eprintln!("test database {name} was not removed: {error}"),
                Err(error) => eprintln!("test database {name} was not removed: {error}"),
            }
        });
        let _ = removal.join();
    }
}

async fn remove(server: &Server, name: &str, logins: &[String]) -> Result<(), Error> {
    let admin = server.admin().await?;
    remove_database(&admin, name).await?;
    for login in logins {
        let drop = format!("drop role if exists {login}");
        admin.batch_execute(&drop).await.map_err(refused(format!("drop role {login}")))?;
    }
    Ok(())
}

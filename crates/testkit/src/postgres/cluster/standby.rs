//! A second server that follows the first by streaming replication, until it is promoted.

use std::fs;

use tokio_postgres::Client;

use super::{Account, Binaries, Cluster, Error, Folder, Options, Port, Server, copy, free_port, refused, system};
use crate::port::HOST;
use crate::wait;

/// Settings of a server that its copy must not have: its standbys and its primary.
const NOT_COPIED: [&str; 3] = ["synchronous_standby_names", "primary_conninfo", "primary_slot_name"];

/// Whether a commit waits for the standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// It does not: a failover may lose what was committed last.
    Asynchronous,
    /// It does: what was committed is there after a failover. While there is no standby, commits wait for one.
    Synchronous,
}

/// What kind of standby to make.
#[derive(Clone, Debug)]
pub struct Standby {
    /// What the primary knows it by, in small letters, digits and underscores. Each standby of a primary has another.
    pub name: String,
    /// Whether a commit on the primary waits for it.
    pub replication: Replication,
    /// What kind of server it is. The settings of the primary are not taken over.
    pub options: Options,
}

impl Default for Standby {
    fn default() -> Self {
        Self { name: "standby".into(), replication: Replication::Asynchronous, options: Options::default() }
    }
}

impl Cluster {
    /// Copies this server, which goes on meanwhile, starts the copy on a port of its own, and returns when it follows:
    /// it answers what only reads, and streams what is written here.
    pub async fn standby(&self, standby: Standby) -> Result<Self, Error> {
        let Standby { name, replication, options } = standby;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(Error::Standby { why: "its name may hold small letters, digits and underscores" });
        }
        let primary = self.session("postgres").await?;
        if replication == Replication::Synchronous && setting(&primary, "synchronous_commit").await? == "off" {
            return Err(Error::Standby {
                why: "the primary runs with synchronous_commit = off, and waits for no standby; start it with durable, \
                      or with that setting",
            });
        }
        // With a slot the primary keeps what the standby has not read, however long the copy takes.
        let reserve = "select pg_create_physical_replication_slot($1, true)";
        primary.execute(reserve, &[&name]).await.map_err(refused("reserve the log for the standby"))?;
        let mut copy = self.copied(&primary, options).await?;
        copy.follow(self, &name)?;
        copy.serve(Port::AnyFree).await?;
        self.is_followed(&primary, &name, "state = 'streaming'", "be followed by the standby").await?;
        if replication == Replication::Synchronous {
            let wait_for = format!("alter system set synchronous_standby_names = '{name}'");
            primary.batch_execute(&wait_for).await.map_err(refused("wait for the standby"))?;
            let reload = "select pg_reload_conf()";
            primary.batch_execute(reload).await.map_err(refused("reload the configuration"))?;
            self.is_followed(&primary, &name, "sync_state = 'sync'", "wait for the standby").await?;
        }
        Ok(copy)
    }

    /// Waits until this standby has replayed all that the primary has written so far.
    pub async fn catch_up_with(&self, primary: &Self) -> Result<(), Error> {
        let session = primary.session("postgres").await?;
        // Without fsync, the last commits are written only with one that does.
        let write = "set synchronous_commit = local; select pg_logical_emit_message(true, 'symphony', 'catch up')";
        session.batch_execute(write).await.map_err(refused("write on the primary"))?;
        let written = session.query_one("select pg_current_wal_flush_lsn()::text", &[]).await;
        let written: String = written.map_err(refused("ask the primary"))?.get(0);
        let session = self.session("postgres").await?;
        self.holds(
            &session,
            "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn",
            &written,
            "catch up with the primary",
        )
        .await
    }

    /// Makes a primary of this standby, and returns when it can be written to.
    ///
    /// The old primary is not asked: stop it or kill it before, or there are two.
    pub async fn promote(&self) -> Result<(), Error> {
        let session = self.session("postgres").await?;
        // It is waited for below, with our own patience.
        session.execute("select pg_promote(false)", &[]).await.map_err(refused("promote the standby"))?;
        self.holds(&session, "select not pg_is_in_recovery() and $1 = ''", "", "become a primary").await
    }

    /// Copies the data of this server into a new folder. The copy is not started.
    async fn copied(&self, session: &Client, options: Options) -> Result<Self, Error> {
        let account = Account::for_server().map_err(system("find a user for the server"))?;
        let folder = Folder::create(account).map_err(system("make a temporary folder"))?;
        let copy = Self {
            binaries: Binaries::clone(&self.binaries),
            options,
            account,
            port: free_port().map_err(system("find a free port"))?,
            server: Server(None),
            folder,
        };
        // Both in one session, without which the backup is broken off.
        let begin = "select pg_backup_start('symphony', true)";
        session.execute(begin, &[]).await.map_err(refused("begin a backup"))?;
        let (from, to) = (self.folder.data(), copy.folder.data());
        let copying = tokio::task::spawn_blocking(move || copy::copy(&from, &to, account));
        copying.await.map_err(std::io::Error::other).flatten().map_err(system("copy the data"))?;
        let end = "select labelfile from pg_backup_stop(false)";
        let label = session.query_one(end, &[]).await.map_err(refused("end the backup"))?;
        copy.write("backup_label", label.get(0))?;
        Ok(copy)
    }

    /// Lets a copy that was not yet started follow the server it was made of.
    fn follow(&self, primary: &Self, name: &str) -> Result<(), Error> {
        let configuration = self.folder.data().join("postgresql.auto.conf");
        let copied = fs::read_to_string(configuration).map_err(system("read the copied configuration"))?;
        let kept = copied.lines().filter(|line| !NOT_COPIED.iter().any(|setting| line.starts_with(setting)));
        let mut configuration: String = kept.flat_map(|line| [line, "\n"]).collect();
        let port = primary.port;
        configuration += &format!(
            "primary_conninfo = 'host={HOST} port={port} user={} application_name={name}'\n\
             primary_slot_name = '{name}'\n",
            super::SUPERUSER
        );
        self.write("postgresql.auto.conf", &configuration)?;
        self.write("standby.signal", "")
    }

    /// Writes a file of the data folder that the server's user owns.
    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.folder.data().join(name);
        let written = fs::write(&path, text).and_then(|()| self.account.take(&path));
        written.map_err(system("write into the copied data"))
    }

    /// Waits until the standby is connected and something is so about it.
    async fn is_followed(&self, session: &Client, name: &str, so: &str, what: &'static str) -> Result<(), Error> {
        let question =
            format!("select exists (select from pg_stat_replication where application_name = $1 and {so})");
        self.holds(session, &question, name, what).await
    }

    /// Asks a question about a text until the answer is yes.
    async fn holds(&self, session: &Client, question: &str, about: &str, what: &'static str) -> Result<(), Error> {
        let mut failure = None;
        let answered = wait::until_some(what, self.options.deadline, async || {
            match session.query_one(question, &[&about]).await {
                Ok(row) => row.get::<_, Option<bool>>(0).unwrap_or(false).then_some(()),
                Err(error) => {
                    failure = Some(error);
                    Some(())
                }
            }
        })
        .await;
        match (answered, failure) {
            (_, Some(source)) => Err(Error::Refused { what, source }),
            (Ok(()), None) => Ok(()),
            (Err(_), None) => Err(self.too_late(what)),
        }
    }
}

async fn setting(session: &Client, name: &str) -> Result<String, Error> {
    let row = session.query_one("select current_setting($1)", &[&name]).await;
    Ok(row.map_err(refused("read a setting"))?.get(0))
}

#[cfg(test)]
mod tests;

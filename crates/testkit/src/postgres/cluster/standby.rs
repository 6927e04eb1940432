//! A standby by streaming replication, which can be promoted.

use std::fs;

use tokio_postgres::Client;

use super::{Account, Binaries, Cluster, Error, Folder, Options, Port, Server, copy, free_port, refused, system};
use crate::port::HOST;
use crate::wait;

/// Settings that the copy must not inherit: the standbys and the primary of the original.
const NOT_COPIED: [&str; 3] = ["synchronous_standby_names", "primary_conninfo", "primary_slot_name"];

/// Whether a commit waits for the standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// It does not: a failover may lose the last commits.
    Asynchronous,
    /// It does: a failover loses no commit. Without a connected standby, commits wait for one.
    Synchronous,
}

/// Options of a standby.
#[derive(Clone, Debug)]
pub struct Standby {
    /// Its `application_name` and slot name: lower-case letters, digits and underscores, unique per primary.
    pub name: String,
    /// Whether a commit on the primary waits for it.
    pub replication: Replication,
    /// Options of its server. It does not inherit the primary's.
    pub options: Options,
}

impl Default for Standby {
    fn default() -> Self {
        Self { name: "standby".into(), replication: Replication::Asynchronous, options: Options::default() }
    }
}

impl Cluster {
    /// Copies this server while it runs, starts the copy as a standby on another port, and waits until it streams WAL
    /// and accepts read-only queries.
    pub async fn standby(&self, standby: Standby) -> Result<Self, Error> {
        let Standby { name, replication, options } = standby;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(Error::Standby { why: "its name may contain lower-case letters, digits and underscores" });
        }
        let primary = self.session("postgres").await?;
        if replication == Replication::Synchronous && setting(&primary, "synchronous_commit").await? == "off" {
            return Err(Error::Standby {
                why: "the primary runs with synchronous_commit = off and waits for no standby; start it with durable, \
                      or with synchronous_commit = on",
            });
        }
        // With a slot the primary keeps the WAL that the standby has not read, however long the copy takes.
        let reserve = "select pg_create_physical_replication_slot($1, true)";
        primary.execute(reserve, &[&name]).await.map_err(refused("create a replication slot for the standby"))?;
        let mut copy = self.copied(&primary, options).await?;
        copy.follow(self, &name)?;
        copy.serve(Port::AnyFree).await?;
        self.wait_for_replication(&primary, &name, "state = 'streaming'", "stream to the standby").await?;
        if replication == Replication::Synchronous {
            let wait_for = format!("alter system set synchronous_standby_names = '{name}'");
            primary.batch_execute(&wait_for).await.map_err(refused("wait for the standby"))?;
            let reload = "select pg_reload_conf()";
            primary.batch_execute(reload).await.map_err(refused("reload the configuration"))?;
            self.wait_for_replication(&primary, &name, "sync_state = 'sync'", "wait for the standby").await?;
        }
        Ok(copy)
    }

    /// Waits until this standby has replayed all WAL that the primary has written so far.
    pub async fn catch_up_with(&self, primary: &Self) -> Result<(), Error> {
        let session = primary.session("postgres").await?;
        // With synchronous_commit = off the last commits may not be flushed yet: this commit flushes them.
        let write = "set synchronous_commit = local; select pg_logical_emit_message(true, 'symphony', 'catch up')";
        session.batch_execute(write).await.map_err(refused("write on the primary"))?;
        let written = session.query_one("select pg_current_wal_flush_lsn()::text", &[]).await;
        let written: String = written.map_err(refused("read the WAL position of the primary"))?.get(0);
        let session = self.session("postgres").await?;
        self.wait_until_true(
            &session,
            "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn",
            &written,
            "catch up with the primary",
        )
        .await
    }

    /// Promotes this standby, and waits until it accepts writes.
    ///
    /// Stop or kill the old primary first, or there are two.
    pub async fn promote(&self) -> Result<(), Error> {
        let session = self.session("postgres").await?;
        // Do not wait here: the deadline below applies.
        session.execute("select pg_promote(false)", &[]).await.map_err(refused("promote the standby"))?;
        self.wait_until_true(&session, "select not pg_is_in_recovery() and $1 = ''", "", "become a primary").await
    }

    /// Copies the data of this server into a new folder. The copy is not started.
    pub(super) async fn copied(&self, session: &Client, options: Options) -> Result<Self, Error> {
        let account = Account::for_server().map_err(system("find a user for the server"))?;
        let folder = Folder::create(account).map_err(system("create a temporary folder"))?;
        let copy = Self {
            binaries: Binaries::clone(&self.binaries),
            options,
            account,
            port: free_port().map_err(system("find a free port"))?,
            server: Server(None),
            folder,
        };
        // Start and stop in one session: the backup is aborted when its session ends.
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

    /// Configures a copy that has not been started as a standby of the original.
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

    /// Writes a file into the data directory, owned by the server's user.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.folder.data().join(name);
        let written = fs::write(&path, text).and_then(|()| self.account.chown(&path));
        written.map_err(system("write into the copied data"))
    }

    /// Waits until the standby is connected and its row in pg_stat_replication meets a condition.
    async fn wait_for_replication(
        &self,
        session: &Client,
        name: &str,
        condition: &str,
        what: &'static str,
    ) -> Result<(), Error> {
        let query =
            format!("select exists (select from pg_stat_replication where application_name = $1 and {condition})");
        self.wait_until_true(session, &query, name, what).await
    }

    /// Repeats a query with one parameter until it returns true.
    pub(super) async fn wait_until_true(
        &self,
        session: &Client,
        query: &str,
        parameter: &str,
        what: &'static str,
    ) -> Result<(), Error> {
        let mut failure = None;
        let waited = wait::until_some(what, self.options.deadline, async || {
            match session.query_one(query, &[&parameter]).await {
                Ok(row) => row.get::<_, Option<bool>>(0).unwrap_or(false).then_some(()),
                Err(error) => {
                    failure = Some(error);
                    Some(())
                }
            }
        })
        .await;
        match (waited, failure) {
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

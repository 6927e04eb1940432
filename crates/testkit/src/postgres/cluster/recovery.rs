//! Recovers a base backup to a point in time, from archived WAL.

use std::path::PathBuf;

use super::{Cluster, Error, Port, refused};

impl Cluster {
    /// Archives WAL from now on, into the folder of this server. It must have been started with `archive_mode` on.
    pub async fn archive_wal(&self) -> Result<(), Error> {
        let session = self.session("postgres").await?;
        let command = format!("alter system set archive_command = 'cp %p {}/%f'", self.folder().display());
        session.batch_execute(&command).await.map_err(refused("set archive_command"))?;
        let reload = "select pg_reload_conf()";
        session.batch_execute(reload).await.map_err(refused("reload the configuration"))
    }

    /// Takes a base backup. It is not started: see [`recover`](Self::recover).
    pub async fn back_up(&self) -> Result<Self, Error> {
        let session = self.session("postgres").await?;
        self.copied(&session, super::Options { settings: Vec::new(), ..self.options.clone() }).await
    }

    /// Names this moment, archives the WAL up to it, and returns the folder of the archive.
    pub async fn create_restore_point(&self, name: &str) -> Result<PathBuf, Error> {
        let session = self.session("postgres").await?;
        let create = "select pg_walfile_name(pg_create_restore_point($1))";
        let file = session.query_one(create, &[&name]).await.map_err(refused("create a restore point"))?;
        let switch = "select pg_switch_wal()";
        session.batch_execute(switch).await.map_err(refused("switch to another WAL file"))?;
        let archived = "select coalesce(last_archived_wal >= $1, false) from pg_stat_archiver";
        self.wait_until_true(&session, archived, file.get(0), "archive its WAL").await?;
        Ok(self.folder().to_owned())
    }

    /// Recovers a base backup to a restore point, and waits until the server accepts writes, on a timeline of its own.
    pub async fn recover(&mut self, archive: &std::path::Path, restore_point: &str) -> Result<(), Error> {
        let configuration = format!(
            "restore_command = 'cp {}/%f %p'\nrecovery_target_name = '{restore_point}'\n\
             recovery_target_action = 'promote'\n",
            archive.display()
        );
        self.write("postgresql.auto.conf", &configuration)?;
        self.write("recovery.signal", "")?;
        self.serve(Port::AnyFree).await?;
        let session = self.session("postgres").await?;
        self.wait_until_true(&session, "select not pg_is_in_recovery() and $1 = ''", "", "end its recovery").await
    }
}

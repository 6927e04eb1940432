//! Upgrades a server to a later major version with `pg_upgrade`.

use std::process::Command;

use super::{Cluster, Error, Port, SUPERUSER, Server, system};
use crate::folder::Folder;
use crate::port::free_port;
use crate::postgres::Binaries;

/// From this version on `initdb` enables checksums by default, and `pg_upgrade` requires the same on both sides.
const CHECKSUMS_BY_DEFAULT: u32 = 18;

impl Cluster {
    /// Stops the server, upgrades its data, and starts the new version. The new version needs `pg_upgrade`, the old one
    /// `pg_checksums`.
    pub async fn upgrade(mut self, to: &Binaries) -> Result<Self, Error> {
        self.stop().await?;
        if self.binaries.major() < CHECKSUMS_BY_DEFAULT && to.major() >= CHECKSUMS_BY_DEFAULT {
            let mut enable = Command::new(self.binaries.program("pg_checksums"));
            enable.arg("--enable").arg("--pgdata").arg(self.folder.data());
            self.run(enable).await?;
        }
        let new = Self {
            binaries: to.clone(),
            options: self.options.clone(),
            account: self.account,
            port: free_port().map_err(system("find a free port"))?,
            server: Server(None),
            folder: Folder::create(self.account).map_err(system("create a temporary folder"))?,
        };
        new.initdb().await?;
        let mut upgrade = Command::new(to.program("pg_upgrade"));
        upgrade
            .args(["--no-sync", "--username", SUPERUSER])
            .arg("--old-bindir")
            .arg(self.binaries.folder())
            .arg("--new-bindir")
            .arg(to.folder())
            .arg("--old-datadir")
            .arg(self.folder.data())
            .arg("--new-datadir")
            .arg(new.folder.data())
            .arg("--socketdir")
            .arg(new.folder.path());
        new.run(upgrade).await?;
        let mut new = new;
        new.serve(Port::AnyFree).await?;
        Ok(new)
    }

    /// Runs a program of the installation as the server's user, and waits for it.
    async fn run(&self, mut command: Command) -> Result<(), Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.prepare(&mut command);
        let mut command = tokio::process::Command::from(command);
        let output = command.kill_on_drop(true).output().await.map_err(system("run a program of the server"))?;
        if output.status.success() {
            return Ok(());
        }
        let words = [output.stdout, output.stderr].concat();
        let output_text = String::from_utf8_lossy(&words).into_owned();
        Err(Error::Program { program, status: output.status, output: output_text })
    }
}

//! The relayers of the demo: two processes that serve all lanes, and are killed in turn.

use std::fs;
use std::path::PathBuf;

use symphony_testkit::{
    process::{Launch, Program},
    shop,
};

use super::{
    environment::{DemoEnvironment, PROCESS_TIMEOUT},
    lanes::Lanes,
};
use crate::failure::Failure;

/// The number of relayers.
const RELAYERS: usize = 2;
/// The settings that do not depend on a lane.
const COMMON_SETTINGS: &str = r#"
[relayer]
endpoints = ""
log_level = "warn"
"#;

/// The running relayers.
pub(super) struct Relayers {
    relayers: Vec<Relayer>,
    kills: u32,
    launch: LaunchSettings,
}

/// How each relayer is started.
struct LaunchSettings {
    program: PathBuf,
    folder: PathBuf,
    settings: String,
}

/// One relayer process.
struct Relayer {
    name: String,
    number: usize,
    life: u32,
    program: Program,
}

impl Relayers {
    /// Starts them all, and waits until they are ready.
    pub(super) async fn start(environment: &DemoEnvironment, lanes: &Lanes) -> Result<Self, Failure> {
        let database = environment.url(shop::RELAYER);
        let settings = format!("{COMMON_SETTINGS}\n[database]\nurl = {database:?}\n{}", lanes.settings());
        let launch = LaunchSettings {
            program: environment.program().to_owned(),
            folder: environment.folder().to_owned(),
            settings,
        };
        let relayers = (1..=RELAYERS).map(|number| launch.start(number, 1)).collect::<Result<Vec<_>, _>>()?;
        for relayer in &relayers {
            let ready = relayer.program.wait_for_line(|line| line.contains("\"worker\""), PROCESS_TIMEOUT).await;
            ready.map_err(|error| Failure::because("a relayer did not start", error))?;
        }
        Ok(Self { relayers, kills: 0, launch })
    }

    /// The number of kills.
    pub(super) fn kills(&self) -> u32 {
        self.kills
    }

    /// Kills the next relayer, in turn, and restarts it. Returns the name of the killed worker.
    pub(super) async fn kill_next(&mut self) -> Result<String, Failure> {
        let turn = usize::try_from(self.kills).unwrap_or_default() % self.relayers.len().max(1);
        let Some(relayer) = self.relayers.get_mut(turn) else {
            return Err(Failure::new("there is no relayer to kill"));
        };
        let killed = relayer.program.kill9().await;
        killed.map_err(|error| Failure::because("cannot kill a relayer", error))?;
        let next = self.launch.start(relayer.number, relayer.life + 1)?;
        let dead = std::mem::replace(relayer, next);
        self.kills += 1;
        Ok(dead.name)
    }

    /// Fails if a relayer has ended by itself.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.relayers.iter().find(|relayer| !relayer.program.is_running()) {
            None => Ok(()),
            Some(relayer) => Err(Failure::new(format!(
                "{} ended by itself; the end of its output:\n{}",
                relayer.name,
                relayer.program.tail()
            ))),
        }
    }

    /// Sends SIGTERM to all of them, and waits.
    pub(super) async fn stop(&self) -> Result<(), Failure> {
        for relayer in &self.relayers {
            relayer.program.term();
        }
        for relayer in &self.relayers {
            let code = relayer.program.exit_code(PROCESS_TIMEOUT).await;
            let code = code.map_err(|error| Failure::because("a relayer did not shut down", error))?;
            if code != 0 {
                let words = format!("{} ended with {code}:\n{}", relayer.name, relayer.program.tail());
                return Err(Failure::new(words));
            }
        }
        Ok(())
    }

    /// Restarts all of them, once they have ended.
    pub(super) fn start_again(&mut self) -> Result<(), Failure> {
        for relayer in &mut self.relayers {
            *relayer = self.launch.start(relayer.number, relayer.life + 1)?;
        }
        Ok(())
    }
}

impl LaunchSettings {
    /// Starts a relayer. Each process has its own worker name, so that a killed one's leases are told apart.
    fn start(&self, number: usize, life: u32) -> Result<Relayer, Failure> {
        let name = format!("relayer-{number}.{life}");
        let file = self.folder.join(format!("{name}.toml"));
        let settings = self.settings.replace("[relayer]\n", &format!("[relayer]\nworker = \"{name}\"\n"));
        fs::write(&file, settings)
            .map_err(|error| Failure::because("cannot write a relayer's settings", error))?;
        let command = Launch::new(&self.program).args(["run", "--config"]).args([&file]);
        // The user's variables point to another database.
        let ours = [
            "DATABASE_URL",
            "SYMPHONY_LISTEN_URL",
            "SYMPHONY_CONFIG",
            "SYMPHONY_CONSOLE_READ_URL",
            "SYMPHONY_CONSOLE_ACT_URL",
        ];
        let command = ours.into_iter().fold(command, Launch::env_remove);
        let program = command.start().map_err(|error| Failure::because("a relayer did not start", error))?;
        Ok(Relayer { name, number, life, program })
    }
}

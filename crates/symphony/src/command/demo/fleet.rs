//! The relayers: two processes that carry what all lanes have, and are killed in the middle of it.

use std::fs;
use std::path::PathBuf;

use symphony_proof::{
    kit::process::{Launch, Program},
    shop,
};

use super::{
    lanes::Lanes,
    stage::{PATIENCE, Stage},
};
use crate::failure::Failure;

/// How many.
const RELAYERS: usize = 2;
/// What all of them are told, whatever they carry.
const SETTINGS: &str = r#"
[relayer]
endpoints = ""
log_level = "warn"
"#;

/// The relayers that run.
pub(super) struct Fleet {
    relayers: Vec<Relayer>,
    kills: u32,
    plan: Plan,
}

/// How each of them is started.
struct Plan {
    program: PathBuf,
    folder: PathBuf,
    settings: String,
}

/// One of them, in one of its lives.
struct Relayer {
    name: String,
    number: usize,
    life: u32,
    program: Program,
}

impl Fleet {
    /// Starts them all, and waits until they are ready.
    pub(super) async fn start(stage: &Stage, lanes: &Lanes) -> Result<Self, Failure> {
        let database = stage.url(shop::RELAYER);
        let settings = format!("{SETTINGS}\n[database]\nurl = {database:?}\n{}", lanes.settings());
        let plan = Plan { program: stage.program().to_owned(), folder: stage.folder().to_owned(), settings };
        let relayers = (1..=RELAYERS).map(|number| plan.start(number, 1)).collect::<Result<Vec<_>, _>>()?;
        for relayer in &relayers {
            let ready = relayer.program.wait_for_line(|line| line.contains("\"worker\""), PATIENCE).await;
            ready.map_err(|error| Failure::because("a relayer did not start", error))?;
        }
        Ok(Self { relayers, kills: 0, plan })
    }

    /// How many were killed so far.
    pub(super) fn kills(&self) -> u32 {
        self.kills
    }

    /// Kills one in the middle of whatever it does, and starts it again. Says which.
    pub(super) async fn kill_one(&mut self) -> Result<String, Failure> {
        let turn = usize::try_from(self.kills).unwrap_or_default() % self.relayers.len().max(1);
        let Some(relayer) = self.relayers.get_mut(turn) else {
            return Err(Failure::no("there is no relayer to kill"));
        };
        let killed = relayer.program.kill9().await;
        killed.map_err(|error| Failure::because("a relayer could not be killed", error))?;
        let next = self.plan.start(relayer.number, relayer.life + 1)?;
        let dead = std::mem::replace(relayer, next);
        self.kills += 1;
        Ok(dead.name)
    }

    /// Whether all of them run: those that were killed were started again.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.relayers.iter().find(|relayer| !relayer.program.is_running()) {
            None => Ok(()),
            Some(relayer) => Err(Failure::no(format!(
                "{} ended by itself; the end of its output:\n{}",
                relayer.name,
                relayer.program.tail()
            ))),
        }
    }

    /// Asks all of them to end, and waits for it.
    pub(super) async fn stop(&self) -> Result<(), Failure> {
        for relayer in &self.relayers {
            relayer.program.term();
        }
        for relayer in &self.relayers {
            let code = relayer.program.exit_code(PATIENCE).await;
            let code = code.map_err(|error| Failure::because("a relayer did not end in good order", error))?;
            if code != 0 {
                let words = format!("{} ended with {code}:\n{}", relayer.name, relayer.program.tail());
                return Err(Failure::no(words));
            }
        }
        Ok(())
    }

    /// Starts all of them again, once they have ended.
    pub(super) fn start_again(&mut self) -> Result<(), Failure> {
        for relayer in &mut self.relayers {
            *relayer = self.plan.start(relayer.number, relayer.life + 1)?;
        }
        Ok(())
    }
}

impl Plan {
    /// Each life has a name of its own: leases of the dead must not be taken for those of the living.
    fn start(&self, number: usize, life: u32) -> Result<Relayer, Failure> {
        let name = format!("relayer-{number}.{life}");
        let file = self.folder.join(format!("{name}.toml"));
        let settings = self.settings.replace("[relayer]\n", &format!("[relayer]\nworker = \"{name}\"\n"));
        fs::write(&file, settings)
            .map_err(|error| Failure::because("the settings of a relayer cannot be written", error))?;
        let launch = Launch::new(&self.program).args(["run", "--config"]).args([&file]);
        // Those of whoever runs the demo are about another database.
        let ours = [
            "DATABASE_URL",
            "SYMPHONY_LISTEN_URL",
            "SYMPHONY_CONFIG",
            "SYMPHONY_CONSOLE_READ_URL",
            "SYMPHONY_CONSOLE_ACT_URL",
        ];
        let launch = ours.into_iter().fold(launch, Launch::env_remove);
        let program = launch.start().map_err(|error| Failure::because("a relayer did not start", error))?;
        Ok(Relayer { name, number, life, program })
    }
}

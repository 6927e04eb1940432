//! The command line of a driver.

use std::time::Duration;

use crate::Result;

/// Which of its settings a peer runs with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Settings {
    /// As its documents say that it is fastest.
    Best,
    /// As it comes.
    Default,
}

/// What the best settings are best for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Aim {
    /// Many jobs a second.
    Throughput,
    /// A job soon after it was enqueued.
    Latency,
}

/// What the runner asks for.
#[derive(Clone, Debug)]
pub struct Args {
    /// What to do: see `run`.
    pub verb: String,
    /// Where the peer's own database is.
    pub database: String,
    /// Which settings.
    pub settings: Settings,
    /// What those are best for.
    pub aim: Aim,
    /// How many enqueue at the same time.
    pub clients: usize,
    /// How many jobs a batch run enqueues.
    pub count: usize,
    /// How many of them in one transaction.
    pub batch: usize,
    /// How long single jobs are enqueued.
    pub duration: Duration,
    /// How many a second, where the pace is given.
    pub rate: Option<f64>,
}

impl Args {
    /// Reads the command line; every option has a value.
    pub fn parse() -> Result<Self> {
        let mut words = std::env::args().skip(1);
        let mut args = Self {
            verb: words.next().ok_or("which verb?")?,
            database: String::new(),
            settings: Settings::Best,
            aim: Aim::Throughput,
            clients: 1,
            count: 0,
            batch: 500,
            duration: Duration::from_secs(5),
            rate: None,
        };
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
            match option.as_str() {
                "--database" => args.database = value,
                "--settings" => args.settings = if value == "best" { Settings::Best } else { Settings::Default },
                "--aim" => args.aim = if value == "latency" { Aim::Latency } else { Aim::Throughput },
                "--clients" => args.clients = value.parse()?,
                "--count" => args.count = value.parse()?,
                "--batch" => args.batch = value.parse()?,
                "--for" => args.duration = Duration::from_secs_f64(value.parse()?),
                "--rate" => args.rate = Some(value.parse()?),
                _ => return Err(format!("no option {option}").into()),
            }
        }
        Ok(args)
    }

    /// Whether these are the best settings.
    pub fn best(&self) -> bool {
        self.settings == Settings::Best
    }

    /// Whether these are the best settings, for latency.
    pub fn soonest(&self) -> bool {
        self.best() && self.aim == Aim::Latency
    }
}

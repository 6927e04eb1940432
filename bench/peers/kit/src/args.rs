//! The command line of a driver.

use std::time::Duration;

use crate::Result;

/// The settings that a peer runs with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Settings {
    /// The fastest settings according to its documentation.
    Best,
    /// Its defaults.
    Default,
}

/// What the best settings optimise.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Aim {
    /// Jobs per second.
    Throughput,
    /// The time from the enqueue to the handler.
    Latency,
}

/// The arguments of a driver.
#[derive(Clone, Debug)]
pub struct Args {
    /// The command: see `run`.
    pub verb: String,
    /// The URL of the peer's database.
    pub database: String,
    /// Best settings or defaults.
    pub settings: Settings,
    /// What the best settings optimise.
    pub aim: Aim,
    /// The number of concurrent producers.
    pub clients: usize,
    /// The number of jobs of a batch run.
    pub count: usize,
    /// Jobs per transaction in a batch run.
    pub batch: usize,
    /// How long single jobs are enqueued.
    pub duration: Duration,
    /// Jobs per second, if the rate is fixed.
    pub rate: Option<f64>,
}

impl Args {
    /// Parses the command line; every option has a value.
    pub fn parse() -> Result<Self> {
        let mut words = std::env::args().skip(1);
        let mut args = Self {
            verb: words.next().ok_or("missing verb: prepare, enqueue, batch or work")?,
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
                _ => return Err(format!("unknown option {option}").into()),
            }
        }
        Ok(args)
    }

    /// Whether these are the best settings.
    pub fn best(&self) -> bool {
        self.settings == Settings::Best
    }

    /// Whether these are the best settings, for latency.
    pub fn low_latency(&self) -> bool {
        self.best() && self.aim == Aim::Latency
    }
}

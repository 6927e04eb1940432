//! `symphony run`: the relayer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use serde_json::json;
use symphony_outbox::WorkerId;
use symphony_outbox::connect::Target;
use symphony_outbox::relayers::session_name;
use symphony_outbox::schema::Lane;
use symphony_relay::stop::{StopHandle, StopMode};
use uuid::Uuid;

use super::with_examples;
use crate::{
    config::{Config, EXAMPLE},
    console::{Console, Logins},
    database::Database,
    failure::{Answer, Failure},
    interruption::Interruption,
    output::{self, Form},
    relayer::{
        endpoints::{self, Shown},
        gauges::Gauges,
        log,
        meter::{Counts, LaneMeter},
        served::Served,
        traces,
    },
    server,
};

/// How long a second signal gives tasks to be dropped before the process is gone.
const LEAVE: Duration = Duration::from_secs(1);

/// How long the last spans may take to be carried away, after everything else has ended.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// Carry what is committed to its rails, brokers and stores, until told to stop
///
/// Claims due payments, events and metadata, sends each to its rail, sink or store, and records what came of it. Any number of copies may run;
/// kill any of them at any moment, and nothing is lost. Needs a login with the role
/// symphony_executor.
///
/// The first SIGTERM or Ctrl-C finishes what runs and exits with 0; a second one leaves at once, and leases expire.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony run --config symphony.toml\n  symphony run --config symphony.toml --check\n  symphony run --print-example > symphony.toml"
))]
pub(crate) struct Arguments {
    /// The file of settings; what it leaves out is as in --print-example
    #[arg(long, env = "SYMPHONY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The address at which to listen for work, where --database-url leads to a pooler
    #[arg(long, env = "SYMPHONY_LISTEN_URL", hide_env_values = true, value_name = "URL")]
    listen_url: Option<String>,
    /// The address under which the console reads: a login that holds symphony_readonly
    #[arg(long, env = "SYMPHONY_CONSOLE_READ_URL", hide_env_values = true, value_name = "URL")]
    console_read_url: Option<String>,
    /// The address under which the console acts: a login that holds symphony_operator
    #[arg(long, env = "SYMPHONY_CONSOLE_ACT_URL", hide_env_values = true, value_name = "URL")]
    console_act_url: Option<String>,
    /// Check the settings, the schema, the login and the rails, and exit
    #[arg(long)]
    check: bool,
    /// Print the result of --check as one JSON document
    #[arg(long, requires = "check")]
    json: bool,
    /// Print every setting with its default, and exit
    #[arg(long)]
    print_example: bool,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        if self.print_example {
            output::line(EXAMPLE)?;
            return Ok(Answer::Yes);
        }
        let config = Config::load(self.config.as_deref())?;
        let mut interruption = Interruption::listen()?;
        log::start(config.relayer.log_format, config.relayer.log_level)?;

        let url = database.url_or(&config.database.url)?;
        let listen_url = [self.listen_url.as_deref().unwrap_or_default(), &config.database.listen_url, url]
            .into_iter()
            .find(|url| !url.trim().is_empty())
            .unwrap_or(url);
        let worker = worker_name(&config.relayer.worker);
        // By the names of its sessions others see that it is there, also when it has nothing to do.
        let named =
            |url| Target::parse(url).map(|to| Arc::new(to.with_session_name(&session_name(worker.as_str()))));
        let (target, listen_target) = (named(url)?, named(listen_url)?);
        let mut registry = Registry::with_prefix("symphony");
        let traces = traces::start(&config.traces, &worker, &mut registry)?;
        let limits = config.server_limits()?;
        let served = Served::build(&config, &target, &worker, traces.as_ref())?;
        let logins = Logins::parse(
            self.console_read_url.as_deref().unwrap_or(&config.console.read_url),
            self.console_act_url.as_deref().unwrap_or(&config.console.act_url),
        )?;
        let ready = async {
            served.check(&target, self.check).await?;
            match &logins {
                Some(logins) => logins.check().await,
                None => Ok(()),
            }
        };
        // A database that hangs must not keep the program from ending: nothing is under way yet.
        interruption
            .or(ready)
            .await
            .map_err(|caught| caught.saying("interrupted before anything was claimed"))??;
        if self.check {
            let lanes: Vec<_> = served.lanes().into_iter().map(Lane::name).collect();
            let form = Form { json: self.json };
            form.print(&json!({ "in_order": true, "lanes": lanes }), || "everything is in order".to_owned())?;
            return Ok(Answer::Yes);
        }

        let counts = Counts::new(&mut registry);
        let (stop, signal) = StopHandle::new();
        let listener = match config.relayer.endpoints.trim() {
            "" => None,
            address => Some(endpoints::bind("relayer.endpoints", address).await?),
        };
        let console_listener = match (&logins, config.console.listen.trim()) {
            (None, _) | (_, "") => None,
            (Some(_), address) => Some(endpoints::bind("console.listen", address).await?),
        };
        let console = match (&logins, console_listener.as_ref().or(listener.as_ref())) {
            (Some(logins), Some(listener)) => {
                Some(Console::build(&config.console, logins, endpoints::place(listener), worker.as_str())?)
            }
            (Some(_), None) => {
                return Err(Failure::usage(
                    "the console is set up, but console.listen and relayer.endpoints are empty: it would be nowhere",
                ));
            }
            (None, _) => None,
        };
        // The one line on stdout: whoever started it knows where it is and that it has begun.
        let place = listener.as_ref().and_then(endpoints::place).map(|place| format!("http://{place}"));
        let console_place =
            console_listener.as_ref().and_then(endpoints::place).map(|place| format!("http://{place}"));
        let mut started = json!({ "worker": worker.as_str(), "endpoints": place });
        if let Some(console_place) = &console_place {
            started["console"] = json!(console_place);
        }
        output::line(&format!("{started}\n"))?;
        tracing::info!(worker = worker.as_str(), endpoints = place, console = console_place, "the relayer begins");
        let lanes = served.lanes();
        let meter = |lane: &Lane| match lane {
            Lane::Payment | Lane::Metadata => LaneMeter::with_repair(lane.name(), counts.clone()),
            // A claim on an event that was not heard of again is taken over by the next claim.
            Lane::Event => LaneMeter::new(lane.name(), counts.clone()),
        };
        let meters: Vec<_> = lanes.iter().map(meter).collect();
        let mut console = console.map(Console::router);
        if let Some(listener) = console_listener
            && let Some(console) = console.take()
        {
            tokio::spawn(server::serve(listener, console, limits.clone()));
        }
        if let Some(listener) = listener {
            let gauges = Gauges::new(Arc::clone(&target), lanes, served.rails());
            let shown = Shown { registry, meters: meters.clone(), gauges, stop: signal.clone() };
            tokio::spawn(server::serve(listener, endpoints::routes(shown, console), limits));
        }
        let grace = served.grace();
        let work = async {
            served.run(&listen_target, meters, &signal).await;
            if let Some(traces) = traces {
                traces.end(LAST_SPANS).await;
            }
        };
        until_stopped(work, &stop, interruption, grace).await?;
        if signal.mode() == StopMode::Immediate { Ok(Answer::No) } else { Ok(Answer::Yes) }
    }
}

/// Lets the engines work, and tells them of each signal.
async fn until_stopped(
    work: impl Future<Output = ()>,
    stop: &StopHandle,
    mut interruption: Interruption,
    grace: Duration,
) -> Result<(), Failure> {
    tokio::pin!(work);
    let mut told = 0_u32;
    loop {
        let caught = tokio::select! {
            () = &mut work => return Ok(()),
            caught = interruption.caught() => caught,
        };
        stop.signal();
        told += 1;
        if told == 1 {
            tracing::info!(grace = ?grace, "stopping: running dispatches may finish; a second signal stops at once");
        } else {
            tracing::warn!("leaving at once: leases expire by themselves");
            let _ = tokio::time::timeout(LEAVE, &mut work).await;
            return Err(caught.saying("left at once: what was under way is unknown until its lease has expired"));
        }
    }
}

/// A name that no other process has.
fn worker_name(given: &str) -> WorkerId {
    if !given.trim().is_empty() {
        return given.into();
    }
    let host = rustix::system::uname().nodename().to_string_lossy().chars().take(100).collect::<String>();
    let random = Uuid::new_v4().simple().to_string();
    format!("{host}-{}-{}", std::process::id(), &random[..8]).as_str().into()
}

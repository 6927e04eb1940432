//! `symphony run`: the relayer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use serde_json::json;
use symphony_console::{Console, Logins, server};
use symphony_db::WorkerId;
use symphony_db::connect::{Environment, Target};
use symphony_db::relayers::session_name;
use symphony_db::schema::Lane;
use symphony_relay::metrics::Meter;
use symphony_relay::stop::{StopHandle, StopMode};
use uuid::Uuid;

use super::with_examples;
use crate::{
    config::{self, Config, EXAMPLE},
    database::Database,
    failure::{ExitStatus, Failure},
    output::{self, OutputFormat},
    relayer::{
        callbacks::{self, Callbacks},
        endpoints::{self, EndpointState},
        gauges::Gauges,
        lanes::ServedLanes,
        log,
        metrics::{LaneMetrics, Metrics},
        secrets, systemd, traces,
    },
    shutdown_signals::ShutdownSignals,
};

/// How long tasks may take to be dropped after a second signal.
const IMMEDIATE_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the exporter may take to flush the last spans.
const SPAN_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Run a relayer: claim due rows, dispatch them to their rails, brokers and stores, and record the results
///
/// Any number of relayers may run. Killing one loses nothing: its leases expire, and another relayer claims its rows.
/// Needs a login with the role symphony_executor.
///
/// The first SIGTERM or Ctrl-C finishes running dispatches and exits with 0; a second one exits at once. SIGHUP reads
/// secrets and certificates again, which also happens when their files change.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony run --config symphony.toml\n  symphony run --config symphony.toml --check\n  symphony run --print-example > symphony.toml"
))]
pub(crate) struct Arguments {
    /// Settings file; settings that it leaves out have the defaults of --print-example
    #[arg(long, env = "SYMPHONY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Direct database URL for LISTEN, if --database-url points to a pooler
    #[arg(long, env = "SYMPHONY_LISTEN_URL", hide_env_values = true, value_name = "URL")]
    listen_url: Option<String>,
    /// Database URL for the console's reads: a login with symphony_readonly
    #[arg(long, env = "SYMPHONY_CONSOLE_READ_URL", hide_env_values = true, value_name = "URL")]
    console_read_url: Option<String>,
    /// Database URL for the console's operations: a login with symphony_operator
    #[arg(long, env = "SYMPHONY_CONSOLE_ACT_URL", hide_env_values = true, value_name = "URL")]
    console_act_url: Option<String>,
    /// Check the settings, the schema, the logins, the rails, the addresses and the console, and exit
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
    /// The database, and where to LISTEN. Their session name shows this relayer to the others, also while it is idle.
    fn targets(
        &self,
        database: &Database,
        settings: &config::Database,
        worker: &WorkerId,
    ) -> Result<(Arc<Target>, Arc<Target>), Failure> {
        let password_file = settings.password_file.trim();
        let with_password = |target: Target| {
            if password_file.is_empty() { Ok(target) } else { target.with_password_file(password_file) }
        };
        let named = |target: Target| Arc::new(target.with_session_name(&session_name(worker.as_str())));
        let target = named(with_password(database.target_or(&settings.url)?)?);
        let listen_url = [self.listen_url.as_deref().unwrap_or_default(), &settings.listen_url]
            .into_iter()
            .find(|url| !url.trim().is_empty());
        let Some(url) = listen_url else { return Ok((Arc::clone(&target), target)) };
        let direct = Target::parse_in(url, &Environment::of_process()?)?;
        let direct = if direct.has_password() { direct } else { with_password(direct)? };
        Ok((target, named(direct)))
    }

    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        if self.print_example {
            output::print_line(EXAMPLE)?;
            return Ok(ExitStatus::Success);
        }
        let config = Config::load(self.config.as_deref())?;
        let mut signals = ShutdownSignals::listen()?;
        let hangup = signals.take_hangup();
        log::start(config.relayer.log_format, config.relayer.log_level)?;

        let worker = worker_name(&config.relayer.worker);
        let (target, listen_target) = self.targets(database, &config.database, &worker)?;
        let mut registry = Registry::with_prefix("symphony");
        let traces = traces::start(&config.traces, &worker, &mut registry)?;
        let limits = config.server_limits()?;
        let served = ServedLanes::build(&config, &target, &worker, traces.as_ref())?;
        let logins = Logins::parse(
            self.console_read_url.as_deref().unwrap_or(&config.console.read_url),
            self.console_act_url.as_deref().unwrap_or(&config.console.act_url),
        )?;
        let ready = async {
            served.check(&target, self.check).await?;
            if let Some(logins) = &logins {
                logins.check().await?;
            }
            Ok::<_, Failure>(())
        };
        // A database that hangs must not delay a shutdown: nothing is claimed yet.
        signals
            .run(ready)
            .await
            .map_err(|interrupted| interrupted.with_message("interrupted before anything was claimed"))??;
        let listener = match config.relayer.endpoints.trim() {
            "" => None,
            address => Some(endpoints::bind("relayer.endpoints", address).await?),
        };
        let console_listener = match (&logins, config.console.listen.trim()) {
            (None, _) | (_, "") => None,
            (Some(_), address) => Some(endpoints::bind("console.listen", address).await?),
        };
        let callback_listener = match config.callbacks.listen.trim() {
            "" => None,
            address => Some(endpoints::bind("callbacks.listen", address).await?),
        };
        let console = match (&logins, console_listener.as_ref().or(listener.as_ref())) {
            (Some(logins), Some(listener)) => Some(Console::build(
                &config.console.tokens,
                logins,
                endpoints::local_address(listener),
                worker.as_str(),
                served.previews(),
            )?),
            (Some(_), None) => {
                return Err(Failure::usage(
                    "the console has no address: console.listen and relayer.endpoints are both empty",
                )
                .hint("set one of them, or clear console.read_url to switch the console off"));
            }
            (None, _) => None,
        };
        if self.check {
            let lanes: Vec<_> = served.lanes().into_iter().map(Lane::name).collect();
            let format = OutputFormat { json: self.json };
            let endpoints = served.endpoints();
            format.print(&json!({ "in_order": true, "lanes": lanes, "endpoints": endpoints }), || {
                let rails = endpoints.iter().map(|(rail, endpoint)| format!("\nrail {rail} sends to {endpoint}"));
                format!("everything is in order{}", rails.collect::<String>())
            })?;
            return Ok(ExitStatus::Success);
        }

        let metrics = Metrics::new(&mut registry);
        let (stop, stop_signal) = StopHandle::new();
        // The only line on stdout: it tells the starting process the addresses, and that the relayer runs.
        let place = listener.as_ref().and_then(endpoints::local_address).map(|place| format!("http://{place}"));
        let console_place =
            console_listener.as_ref().and_then(endpoints::local_address).map(|place| format!("http://{place}"));
        let callback_place =
            callback_listener.as_ref().and_then(endpoints::local_address).map(|place| format!("http://{place}"));
        let mut started = json!({ "worker": worker.as_str(), "endpoints": place });
        if let Some(console_place) = &console_place {
            started["console"] = json!(console_place);
        }
        if let Some(callback_place) = &callback_place {
            started["callbacks"] = json!(callback_place);
        }
        output::print_line(&format!("{started}\n"))?;
        tracing::info!(worker = worker.as_str(), endpoints = place, console = console_place, "the relayer starts");
        systemd::report_start();
        let lanes = served.lanes();
        let meter = |lane: &Lane| match lane {
            Lane::Payment | Lane::Metadata => LaneMetrics::with_repair(lane.name(), metrics.clone()),
            // The event lane has no repair: the next claim takes over an expired claim.
            Lane::Event => LaneMetrics::new(lane.name(), metrics.clone()),
        };
        let meters: Vec<_> = lanes.iter().map(meter).collect();
        if let Some(listener) = callback_listener {
            let rails = served.callback_rails();
            let callbacks =
                Callbacks::new(rails, Arc::clone(&target), worker.clone(), &config.callbacks, &mut registry);
            tokio::spawn(server::serve(listener, callbacks::routes(callbacks), limits.clone()));
        }
        let mut console = console.map(Console::router);
        if let Some(listener) = console_listener
            && let Some(console) = console.take()
        {
            tokio::spawn(server::serve(listener, console, limits.clone()));
        }
        if let Some(listener) = listener {
            let gauges = Gauges::new(Arc::clone(&target), worker.as_str(), lanes, served.rails());
            let shown = EndpointState { registry, meters: meters.clone(), gauges, stop: stop_signal.clone() };
            tokio::spawn(server::serve(listener, endpoints::routes(shown, console), limits));
        }
        tokio::spawn(secrets::follow(hangup));
        let grace = served.grace();
        let work = async {
            let meters = meters.into_iter().map(|meter| meter as Arc<dyn Meter>).collect();
            served.run(&listen_target, meters, &stop_signal).await;
            if let Some(traces) = traces {
                traces.end(SPAN_FLUSH_TIMEOUT).await;
            }
        };
        until_stopped(work, &stop, signals, grace).await?;
        if stop_signal.mode() == StopMode::Immediate {
            Ok(ExitStatus::CheckFailed)
        } else {
            Ok(ExitStatus::Success)
        }
    }
}

/// Runs the engines, and stops them on a signal: gracefully on the first, at once on the second.
async fn until_stopped(
    work: impl Future<Output = ()>,
    stop: &StopHandle,
    mut signals: ShutdownSignals,
    grace: Duration,
) -> Result<(), Failure> {
    tokio::pin!(work);
    let mut signals_received = 0_u32;
    loop {
        let interrupted = tokio::select! {
            () = &mut work => return Ok(()),
            interrupted = signals.recv() => interrupted,
        };
        stop.request_stop();
        signals_received += 1;
        if signals_received == 1 {
            systemd::report_stop();
            tracing::info!(grace = ?grace, "stopping: running dispatches may finish; a second signal stops at once");
        } else {
            tracing::warn!("stopping at once: leases expire, and another relayer claims their rows");
            let _ = tokio::time::timeout(IMMEDIATE_STOP_TIMEOUT, &mut work).await;
            return Err(interrupted.with_message(
                "stopped at once: running dispatches have an unknown outcome until their leases expire",
            ));
        }
    }
}

/// The configured worker name, or one that no other process has.
fn worker_name(given: &str) -> WorkerId {
    if !given.trim().is_empty() {
        return given.into();
    }
    let host = rustix::system::uname().nodename().to_string_lossy().chars().take(100).collect::<String>();
    let random = Uuid::new_v4().simple().to_string();
    format!("{host}-{}-{}", std::process::id(), &random[..8]).as_str().into()
}

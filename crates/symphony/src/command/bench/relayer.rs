//! A relayer with the settings of `symphony run`, whose destinations accept every dispatch at once and discard it.
//!
//! `symphony bench` starts this program as such a relayer, which reports its progress on stdout. No setting of
//! `symphony run` leads to the null destination, and this relayer serves only the names of a benchmark.
//!
//! With `--config` it serves the lanes of a settings file, by the same code as `symphony run`: that is how the deliver
//! scenario reaches a real destination.

mod null_destination;
mod recorder;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use symphony_db::WorkerId;
use symphony_db::connect::Target;
use symphony_db::listener::Channel;
use symphony_db::schema::Lane;
use symphony_relay::event::routing::{Route, Routes};
use symphony_relay::event::{EventConfig, EventLane, order::Order};
use symphony_relay::listener::PostgresListener;
use symphony_relay::metadata::{MetadataConfig, MetadataLane, routing};
use symphony_relay::metrics::Meter;
use symphony_relay::payment::PaymentLane;
use symphony_relay::rail::Rail;
use symphony_relay::sink::Sink;
use symphony_relay::stop::{StopHandle, StopSignal};
use symphony_relay::store::Store;
use symphony_relay::{Engine, Settings, lane};
use symphony_testkit::bench_database;
use tokio::time::MissedTickBehavior;

use super::workload;
use crate::{
    config::Config,
    database::Database,
    failure::{ExitStatus, Failure},
    output,
    relayer::{lanes::ServedLanes, log},
    shutdown_signals::ShutdownSignals,
};
use null_destination::NullDestination;
use recorder::Recorder;
pub(super) use recorder::RelayerReport;

/// The shortest interval between two progress reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(20);
/// The name of the sink and of the store.
const DESTINATION: &str = "null";

/// Dispatch a benchmark's rows to a null destination, or to that of --config; started by symphony bench
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Lane to serve
    #[arg(long, value_name = "LANE", default_value = "payment")]
    lane: Lane,
    /// Keep order
    #[arg(long)]
    ordered: bool,
    /// Concurrent dispatches; default as in symphony run
    #[arg(long, value_name = "N")]
    slots: Option<usize>,
    /// Maximum rows per claim; default as in symphony run
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// Serve the lanes of this settings file instead of the null destination
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ordered", "slots", "batch_size"])]
    config: Option<PathBuf>,
    /// Write the time of each dispatch to this file at the end
    #[arg(long, value_name = "FILE")]
    times: Option<PathBuf>,
    /// Write the duration of each claim to this file at the end
    #[arg(long, value_name = "FILE")]
    claims: Option<PathBuf>,
    /// Write the duration of each dispatch to this file at the end
    #[arg(long, value_name = "FILE")]
    latencies: Option<PathBuf>,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let mut signals = ShutdownSignals::listen()?;
        let target = Arc::new(database.target_or("")?);
        self.refuse_foreign_rows(&target).await?;
        let recorder =
            Arc::new(Recorder::new(self.times.is_some(), self.claims.is_some(), self.latencies.is_some()));
        let (stop, stop_signal) = StopHandle::new();
        let work = self.work(&target, &recorder, stop_signal)?;
        tokio::pin!(work);
        let mut ticks = tokio::time::interval(REPORT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut has_changed = true;
        loop {
            tokio::select! {
                () = &mut work => break,
                // An idle relayer reports nothing, so that reports do not disturb the measurement.
                () = recorder.changed(), if !has_changed => has_changed = true,
                _ = ticks.tick(), if has_changed => {
                    has_changed = false;
                    if !print_report(&recorder.report())? {
                        // The parent process has gone.
                        stop.request_stop();
                    }
                }
                _ = signals.recv() => stop.request_stop(),
            }
        }
        let cannot = |error| Failure::because("cannot write the recorded times", error);
        if let Some(file) = &self.times {
            recorder.write_times(file).map_err(cannot)?;
        }
        if let Some(file) = &self.claims {
            recorder.write_claims(file).map_err(cannot)?;
        }
        if let Some(file) = &self.latencies {
            recorder.write_latencies(file).map_err(cannot)?;
        }
        print_report(&recorder.final_report())?;
        Ok(ExitStatus::Success)
    }

    /// A claim of the event or metadata lane takes any row, so the lane must hold no foreign rows.
    async fn refuse_foreign_rows(&self, target: &Target) -> Result<(), Failure> {
        let client = target.connect().await?;
        if self.lane != Lane::Payment && bench_database::is_foreign(&client, self.lane).await? {
            return Err(Failure::new(format!(
                "the {} lane holds rows that no benchmark has enqueued",
                self.lane.name()
            )));
        }
        Ok(())
    }

    /// Runs the lane's engine with the defaults of `symphony run`, or those of the settings file.
    fn work<'a>(
        &self,
        target: &'a Arc<Target>,
        recorder: &Arc<Recorder>,
        stop: StopSignal,
    ) -> Result<std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>, Failure> {
        let config = Config::load(self.config.as_deref())?;
        let worker: WorkerId = format!("bench-{}", std::process::id()).as_str().into();
        if self.config.is_some() {
            log::start(config.relayer.log_format, config.relayer.log_level)?;
            let lanes = ServedLanes::build(&config, target, &worker, None)?;
            let meters = lanes.lanes().iter().map(|_| Arc::clone(recorder) as Arc<dyn Meter>).collect();
            return Ok(Box::pin(async move { lanes.run(target, meters, &stop).await }));
        }
        let destination = Arc::new(NullDestination(Arc::clone(recorder)));
        let name = workload::name(self.lane, self.ordered);
        let own = Arc::clone(target);
        Ok(match self.lane {
            Lane::Payment => {
                let rails = BTreeMap::from([(name, destination as Arc<dyn Rail>)]);
                let lane = PaymentLane::new(own, worker, config.payment.own.lease, rails);
                let settings = self.settings(config.payment_settings(&[]));
                Box::pin(serve(lane, settings, target, Channel::PAYMENT, recorder, stop)?)
            }
            Lane::Event => {
                let route = Route::new(&name, "*", DESTINATION, DESTINATION);
                let route = route.map_err(|error| Failure::because("the benchmark's route is invalid", error))?;
                let publishing = EventConfig {
                    source: "//bench".to_owned(),
                    routes: Routes::new(vec![route]),
                    sinks: BTreeMap::from([(DESTINATION.to_owned(), destination as Arc<dyn Sink>)]),
                    order: if self.ordered { Order::Aggregate } else { config.event.own.order },
                };
                let settings = self.settings(config.event_settings(&[]));
                Box::pin(serve(
                    EventLane::new(own, worker, publishing),
                    settings,
                    target,
                    Channel::EVENT,
                    recorder,
                    stop,
                )?)
            }
            Lane::Metadata => {
                let route = routing::Route { entity_type: name, store: DESTINATION.to_owned() };
                let storing = MetadataConfig {
                    routes: routing::Routes::new(vec![route]),
                    stores: BTreeMap::from([(DESTINATION.to_owned(), destination as Arc<dyn Store>)]),
                };
                let settings = self.settings(config.metadata_settings(&[]));
                Box::pin(serve(
                    MetadataLane::new(own, worker, storing),
                    settings,
                    target,
                    Channel::METADATA,
                    recorder,
                    stop,
                )?)
            }
        })
    }

    fn settings(&self, settings: Settings) -> Settings {
        Settings {
            slots: self.slots.unwrap_or(settings.slots),
            max_batch: self.batch_size.unwrap_or(settings.max_batch),
            // Repair would also end expired leases on other rails.
            repair_every: Duration::ZERO,
            ..settings
        }
    }
}

fn serve<'a, L: lane::Lane>(
    lane: L,
    settings: Settings,
    target: &'a Arc<Target>,
    channel: Channel,
    recorder: &Arc<Recorder>,
    stop: StopSignal,
) -> Result<impl Future<Output = ()> + 'a, Failure> {
    let engine = Engine::new(Arc::new(lane), settings).map_err(|wrong| Failure::usage(wrong.to_string()))?;
    let engine = engine.with_meter(Arc::clone(recorder) as _);
    Ok(async move {
        engine.run(Some(PostgresListener::new(Arc::clone(target), channel)), stop).await;
    })
}

/// Prints a report. Returns false once the reader has closed the pipe.
fn print_report(report: &RelayerReport) -> Result<bool, Failure> {
    let line = serde_json::to_string(report)
        .map_err(|error| Failure::because("cannot print the progress report", error))?;
    output::try_print_line(&line)
}

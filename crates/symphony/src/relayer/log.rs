//! How lines are written: one event each, on stderr, with its fields. Ids only; nothing here sees a payload.
//!
//! The libraries below say more than may be logged when they are asked to, such as the headers of a request: of theirs only
//! warnings are written, whatever the level.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{LogFormat, LogLevel};
use crate::failure::Failure;

/// From now on events are written. Once for a process.
pub(crate) fn start(format: LogFormat, level: LogLevel) -> Result<(), Failure> {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let ours = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("symphony", level)
        // It warns of each message that the broker gives back, with all that is in it.
        .with_target("lapin", LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false);
            tracing_subscriber::registry().with(ours).with(lines).try_init()
        }
        LogFormat::Text => tracing_subscriber::registry().with(ours).with(lines.with_ansi(false)).try_init(),
    };
    started.map_err(|error| Failure::no(format!("cannot log: {error}")))
}

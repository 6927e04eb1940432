//! The log: one event per line on stderr, with fields. It holds ids, and never a payload.
//!
//! Below `warn`, libraries log more than is allowed here, such as the headers of a request. So only their warnings are
//! written, at every level.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{LogFormat, LogLevel};
use crate::failure::Failure;

/// Starts the log. A process may do so once.
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
        // It warns of each returned message, with the whole message.
        .with_target("lapin", LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false);
            tracing_subscriber::registry().with(ours).with(lines).try_init()
        }
        LogFormat::Text => tracing_subscriber::registry().with(ours).with(lines.with_ansi(false)).try_init(),
    };
    started.map_err(|error| Failure::new(format!("cannot start the log: {error}")))
}

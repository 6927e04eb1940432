//! The settings of a sink for a broker that the demo or the benchmark has started.

use std::path::Path;

use symphony_testkit::brokers::{Kind, USER};

/// The broker's name as its users write it.
pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Nats => "NATS",
        Kind::Redis => "Redis",
        Kind::RabbitMq => "RabbitMQ",
    }
}

/// The section of the sink. An event's destination is its subject, stream or queue.
pub(super) fn settings(kind: Kind, port: u16, password_file: &Path) -> String {
    let (kind, scheme, more) = match kind {
        Kind::Nats => ("nats", "nats", ""),
        Kind::Redis => ("redis", "redis", ""),
        // The default exchange routes to the queue of that name.
        Kind::RabbitMq => ("rabbitmq", "amqp", "exchange = \"\"\n"),
    };
    format!(
        "kind = \"{kind}\"\nurl = \"{scheme}://127.0.0.1:{port}\"\nuser = \"{USER}\"\npassword_file = {password_file:?}\n\
         allow_plain = true\n{more}"
    )
}

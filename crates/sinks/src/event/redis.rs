//! Publishes events to Redis Streams: one Lua script per event adds it to the stream, unless it was added before.
//!
//! A server runs a script atomically, so the entry and its deduplication key exist together or not at all. Replication
//! is asynchronous; `docs/sinks/redis.md` says what that means.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use symphony_relay::sink::Message;

use super::cloudevent;
use crate::broker::BrokerSettings;
use crate::config::{self, SettingError, duration};
use crate::connection_manager::{ConnectionManager, SendResult, WireProtocol};
use crate::redis::{CommandError, Connection, DEFAULT_MAX_BYTES, Server};

/// The largest value of `repeats_for`: each event costs memory for that long.
const MAX_REPEATS_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// Adds an entry and a deduplication key. A repeat renews the key's expiry and so writes as well: WAIT waits for the
/// last write of its own connection, and the first write may have come over another.
const ADD_SCRIPT: &str = "
if redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('PEXPIRE', KEYS[2], ARGV[1])
  return 1
end
local add = {'XADD', KEYS[1]}
if ARGV[2] ~= '' then
  add[3], add[4], add[5] = 'MAXLEN', '~', ARGV[2]
end
add[#add + 1] = '*'
for i = 3, #ARGV do add[#add + 1] = ARGV[i] end
redis.call(unpack(add))
redis.call('SET', KEYS[2], '', 'PX', ARGV[1])
return 0
";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    #[serde(default = "config::seconds::<1200>", deserialize_with = "duration")]
    repeats_for: Duration,
    #[serde(default)]
    replicas: u32,
    max_length: Option<u64>,
}

/// The wire protocol of Redis, to streams.
pub(crate) struct Redis {
    server: Server,
    repeats_for: Duration,
    max_length: Option<u64>,
}

impl Redis {
    pub(crate) fn build(settings: toml::Table) -> Result<ConnectionManager<Self>, SettingError> {
        let (common, own): (BrokerSettings, Settings) = BrokerSettings::read(settings)?;
        let server = Server::new(&own.url, own.replicas, &common)?;
        if own.repeats_for < Duration::from_secs(1) || own.repeats_for > MAX_REPEATS_FOR {
            return Err(SettingError::new("repeats_for", "must be from \"1s\" to \"720h\""));
        }
        if own.max_length == Some(0) {
            return Err(SettingError::new("max_length", "must be above zero; leave it out to keep all entries"));
        }
        let redis = Self { server, repeats_for: own.repeats_for, max_length: own.max_length };
        Ok(ConnectionManager::new(redis, common.limits(DEFAULT_MAX_BYTES)?))
    }

    /// The script with its arguments.
    fn command(&self, message: &Message) -> redis::Cmd {
        // The hash tag keeps it in the stream's slot, for a proxy in front of a Redis Cluster.
        let dedup_key = format!("symphony:seen:{{{}}}:{}", message.destination, cloudevent::unique_id(message));
        let mut command = redis::cmd("EVAL");
        command.arg(ADD_SCRIPT).arg(2).arg(&message.destination).arg(dedup_key);
        command.arg(u64::try_from(self.repeats_for.as_millis()).unwrap_or(u64::MAX));
        command.arg(self.max_length.map(|length| length.to_string()).unwrap_or_default());
        for (name, value) in cloudevent::attributes(message) {
            command.arg(name).arg(value);
        }
        command.arg("datacontenttype").arg(cloudevent::CONTENT_TYPE).arg("data").arg(&message.data);
        command
    }
}

impl WireProtocol for Redis {
    type Delivery = Message;
    type Connection = Connection;

    fn check(&self, message: &Message) -> Result<(), String> {
        if message.destination.is_empty() {
            return Err("its destination must be the key of a stream, such as orders".to_owned());
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Connection, String> {
        self.server.connect().await
    }

    fn is_open(&self, connection: &Connection) -> bool {
        connection.is_open()
    }

    async fn send(&self, connection: &Connection, message: &Message) -> SendResult {
        match self.server.run(connection, self.command(message)).await {
            Ok(reply) => SendResult::confirmed(reply == 1),
            Err(error) => classify(&error),
        }
    }

    async fn close(&self, _: Arc<Connection>) {}
}

/// Maps an error to the result of the send.
fn classify(error: &CommandError) -> SendResult {
    match error.code() {
        Some("WRONGTYPE") => {
            SendResult::refused("the key of its destination holds something other than a stream: change the route")
        }
        Some("NOPERM") => SendResult::refused(
            "the user lacks rights: allow EVAL, XADD, EXISTS, SET and PEXPIRE on the stream and on symphony:seen:*",
        ),
        _ => error.classify(),
    }
}

//! Events to Redis Streams: one script per event adds it to the stream unless it was added before.
//!
//! A single server runs a script as a whole or not at all as far as others can see, so the entry and the memory of it
//! stand or fall together. Its replicas follow later; see `docs/sinks/redis.md` for what that means.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use symphony_relay::sink::Message;

use super::cloudevent;
use crate::broker::Common;
use crate::config::{Problem, time};
use crate::courier::{Courier, Protocol, Sent};
use crate::redis::{Connection, LARGEST, Server, Trouble};

/// The longest that repeats may be remembered: each costs memory for that long.
const LONGEST_MEMORY: Duration = Duration::from_secs(30 * 24 * 3600);

/// Adds an entry and remembers that it did. A repeat writes as well, though nothing but the time until which it is
/// remembered: WAIT waits for the last write of its own connection, and the first may have come over another.
const ADD: &str = "
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
    #[serde(default = "twenty_minutes", deserialize_with = "time")]
    repeats_for: Duration,
    #[serde(default)]
    replicas: u32,
    max_length: Option<u64>,
}

fn twenty_minutes() -> Duration {
    Duration::from_secs(20 * 60)
}

/// Streams, as a courier needs them.
pub(crate) struct Redis {
    server: Server,
    repeats_for: Duration,
    max_length: Option<u64>,
}

impl Redis {
    pub(crate) fn build(settings: toml::Table) -> Result<Courier<Self>, Problem> {
        let (common, own): (Common, Settings) = Common::read(settings)?;
        let server = Server::new(&own.url, own.replicas, &common)?;
        if own.repeats_for < Duration::from_secs(1) || own.repeats_for > LONGEST_MEMORY {
            return Err(Problem::new("repeats_for", "must be from \"1s\" to \"720h\""));
        }
        if own.max_length == Some(0) {
            return Err(Problem::new("max_length", "must be above zero; leave it out to keep all entries"));
        }
        let redis = Self { server, repeats_for: own.repeats_for, max_length: own.max_length };
        Ok(Courier::new(redis, common.limits(LARGEST)?))
    }

    /// The script with its arguments.
    fn command(&self, message: &Message) -> redis::Cmd {
        // In one slot with the stream, should somebody put a cluster's proxy in between.
        let memory = format!("symphony:seen:{{{}}}:{}", message.destination, cloudevent::unique_id(message));
        let mut command = redis::cmd("EVAL");
        command.arg(ADD).arg(2).arg(&message.destination).arg(memory);
        command.arg(u64::try_from(self.repeats_for.as_millis()).unwrap_or(u64::MAX));
        command.arg(self.max_length.map(|length| length.to_string()).unwrap_or_default());
        for (name, value) in cloudevent::attributes(message) {
            command.arg(name).arg(value);
        }
        command.arg("datacontenttype").arg(cloudevent::CONTENT_TYPE).arg("data").arg(&message.data);
        command
    }
}

impl Protocol for Redis {
    type Load = Message;
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

    async fn send(&self, connection: &Connection, message: &Message) -> Sent {
        match self.server.run(connection, self.command(message)).await {
            Ok(seen) => Sent::confirmed(seen == 1),
            Err(trouble) => meaning(&trouble),
        }
    }

    async fn close(&self, _: Arc<Connection>) {}
}

/// What an error means for an event.
fn meaning(trouble: &Trouble) -> Sent {
    match trouble.code() {
        Some("WRONGTYPE") => Sent::refused("its destination is the key of something that is no stream"),
        Some("NOPERM") => Sent::refused(
            "the user may not do it: allow EVAL, XADD, EXISTS, SET and PEXPIRE on the stream and on symphony:seen:*",
        ),
        _ => trouble.meaning(),
    }
}

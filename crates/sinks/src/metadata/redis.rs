//! Writes metadata to Redis: one hash per entity, by a Lua script that compares versions.
//!
//! A server runs a script atomically. Replication is asynchronous; `docs/sinks/metadata-redis.md` says what that means.

use std::sync::Arc;

use redis::RedisError;
use serde::Deserialize;
use symphony_relay::store::{Record, Written};

use crate::broker::BrokerSettings;
use crate::config::SettingError;
use crate::connection_manager::{ConnectionManager, SendResult, WireProtocol};
use crate::encoding;
use crate::redis::{CommandError, Connection, DEFAULT_MAX_BYTES, Server, connect_error};

/// The longest prefix: every key repeats it.
const MAX_PREFIX_BYTES: usize = 200;

/// Writes a record unless the hash holds a later version. Versions are compared as decimal text, since a Lua number
/// holds only 53 bits. A repeat is written again: WAIT waits for the last write of its own connection, and the first
/// write may have come over another.
const WRITE_SCRIPT: &str = "
local kept = redis.call('HGET', KEYS[1], 'version')
if kept then
  if not string.find(kept, '^%d+$') then
    return redis.error_reply('NOVERSION the key holds something else')
  end
  if #kept > #ARGV[2] or (#kept == #ARGV[2] and kept > ARGV[2]) then
    return 1
  end
end
redis.call('HSET', KEYS[1], 'metadata', ARGV[1], 'version', ARGV[2], 'entry_id', ARGV[3],
  'entity_type', ARGV[4], 'entity_id', ARGV[5])
return 0
";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    #[serde(default = "prefix")]
    prefix: String,
    #[serde(default)]
    replicas: u32,
}

fn prefix() -> String {
    "symphony:metadata:".to_owned()
}

/// The wire protocol of Redis, to hashes.
pub(crate) struct Redis {
    server: Server,
    prefix: String,
}

impl Redis {
    pub(crate) fn build(settings: toml::Table) -> Result<ConnectionManager<Self>, SettingError> {
        let (common, own): (BrokerSettings, Settings) = BrokerSettings::read(settings)?;
        let server = Server::new(&own.url, own.replicas, &common)?;
        if own.prefix.len() > MAX_PREFIX_BYTES {
            return Err(SettingError::new("prefix", format!("must have at most {MAX_PREFIX_BYTES} bytes")));
        }
        Ok(ConnectionManager::new(Self { server, prefix: own.prefix }, common.limits(DEFAULT_MAX_BYTES)?))
    }

    fn key(&self, record: &Record) -> String {
        let kind = encoding::key_part(&record.entity_type);
        format!("{}{kind}:{}", self.prefix, record.entity_id)
    }

    /// The script, by its digest or in full, with its arguments.
    fn command(&self, name: &str, script: &str, record: &Record) -> redis::Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(1).arg(self.key(record));
        command.arg(&record.metadata).arg(record.version).arg(&record.entry_id);
        command.arg(&record.entity_type).arg(&record.entity_id);
        command
    }
}

/// A connection to a server that has loaded the script.
pub(crate) struct ScriptConnection {
    connection: Connection,
    /// The SHA-1 digest for `EVALSHA`.
    digest: String,
}

impl WireProtocol for Redis {
    type Delivery = Record;
    type Connection = ScriptConnection;

    fn check(&self, record: &Record) -> Result<(), String> {
        if record.version < 0 { Err("its version must not be below zero".to_owned()) } else { Ok(()) }
    }

    async fn connect(&self) -> Result<ScriptConnection, String> {
        let connection = self.server.connect().await?;
        let mut commands = connection.commands.clone();
        let loaded: Result<String, RedisError> =
            redis::cmd("SCRIPT").arg("LOAD").arg(WRITE_SCRIPT).query_async(&mut commands).await;
        let digest = loaded.map_err(|error| match error.code() {
            Some("NOPERM") => MISSING_RIGHTS.to_owned(),
            _ => connect_error(&error),
        })?;
        Ok(ScriptConnection { connection, digest })
    }

    fn is_open(&self, connection: &ScriptConnection) -> bool {
        connection.connection.is_open()
    }

    async fn send(&self, connection: &ScriptConnection, record: &Record) -> SendResult<Written> {
        let command = self.command("EVALSHA", &connection.digest, record);
        let mut reply = self.server.run(&connection.connection, command).await;
        if reply.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT")) {
            // The script cache was flushed, or another server answers after a failover. EVAL caches the script again.
            reply = self.server.run(&connection.connection, self.command("EVAL", WRITE_SCRIPT, record)).await;
        }
        match reply {
            Ok(0) => SendResult::Answered(Written::Stored),
            Ok(_) => SendResult::Answered(Written::Superseded),
            Err(error) => classify(&error),
        }
    }

    async fn close(&self, _: Arc<ScriptConnection>) {}
}

const MISSING_RIGHTS: &str = "the script could not be run: allow the user EVAL, EVALSHA, SCRIPT LOAD, HGET and HSET on the keys of the prefix";

/// Maps an error to the result of the send.
fn classify(error: &CommandError) -> SendResult<Written> {
    match error.code() {
        Some("WRONGTYPE" | "NOVERSION") => {
            SendResult::refused("its key holds something that Symphony did not write: move it, or change prefix")
        }
        // Every record would be refused until an operator grants the right: a retry loses no record.
        // A right that is missing inside the script has the generic code ERR.
        Some(code @ ("NOPERM" | "ERR")) => SendResult::failed(format!("{MISSING_RIGHTS} [{code}]")),
        _ => error.classify(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_entities_have_the_same_key() {
        let plain = "url = 'redis://r'\nallow_plain = true";
        let (common, own): (BrokerSettings, Settings) = BrokerSettings::read(plain.parse().unwrap()).unwrap();
        let redis = Redis { server: Server::new(&own.url, 0, &common).unwrap(), prefix: own.prefix };
        let key = |entity_type: &str, entity_id: &str| {
            redis.key(&Record {
                entry_id: String::new(),
                entity_type: entity_type.to_owned(),
                entity_id: entity_id.to_owned(),
                version: 0,
                metadata: String::new(),
            })
        };
        assert_eq!(key("customer", "4:2"), "symphony:metadata:customer:4:2");
        assert_ne!(key("customer:4", "2"), key("customer", "4:2"));
        assert_ne!(key("a%3A", "b"), key("a:", "b"));
    }
}

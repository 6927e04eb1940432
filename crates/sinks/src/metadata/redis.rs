//! Metadata to Redis: one hash per entity, written by one script that compares versions.
//!
//! A single server runs a script as a whole or not at all as far as others can see. Its replicas follow later; see
//! `docs/sinks/metadata-redis.md` for what that means.

use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use redis::RedisError;
use serde::Deserialize;
use symphony_relay::store::{Record, Written};

use crate::broker::Common;
use crate::config::Problem;
use crate::courier::{Courier, Protocol, Sent};
use crate::redis::{Connection, LARGEST, Server, Trouble, connecting};

/// The longest prefix: it is kept with every key.
const LONGEST_PREFIX: usize = 200;

/// Writes a record unless a later one is there. Versions are compared as decimals, since a number of Lua holds no more than 53
/// bits of them. A repeat is written again: WAIT waits for the last write of its own connection, and the first may have come
/// over another.
const PUT: &str = "
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

/// What the type of an entity cannot hold as it is, for no two entities to have the same key.
const ENCODED: &AsciiSet = &CONTROLS.add(b':').add(b'%');

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

/// Hashes, as a courier needs them.
pub(crate) struct Redis {
    server: Server,
    prefix: String,
}

impl Redis {
    pub(crate) fn build(settings: toml::Table) -> Result<Courier<Self>, Problem> {
        let (common, own): (Common, Settings) = Common::read(settings)?;
        let server = Server::new(&own.url, own.replicas, &common)?;
        if own.prefix.len() > LONGEST_PREFIX {
            return Err(Problem::new("prefix", format!("must have at most {LONGEST_PREFIX} bytes")));
        }
        Ok(Courier::new(Self { server, prefix: own.prefix }, common.limits(LARGEST)?))
    }

    fn key(&self, record: &Record) -> String {
        let kind = utf8_percent_encode(&record.entity_type, ENCODED);
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

/// A connection to a server that has the script.
pub(crate) struct Ready {
    connection: Connection,
    /// By which the server knows it.
    digest: String,
}

impl Protocol for Redis {
    type Load = Record;
    type Connection = Ready;

    fn check(&self, record: &Record) -> Result<(), String> {
        if record.version < 0 { Err("its version must not be below zero".to_owned()) } else { Ok(()) }
    }

    async fn connect(&self) -> Result<Ready, String> {
        let connection = self.server.connect().await?;
        let mut commands = connection.commands.clone();
        let loaded: Result<String, RedisError> =
            redis::cmd("SCRIPT").arg("LOAD").arg(PUT).query_async(&mut commands).await;
        let digest = loaded.map_err(|error| match error.code() {
            Some("NOPERM") => RIGHTS.to_owned(),
            _ => connecting(&error),
        })?;
        Ok(Ready { connection, digest })
    }

    fn is_open(&self, ready: &Ready) -> bool {
        ready.connection.is_open()
    }

    async fn send(&self, ready: &Ready, record: &Record) -> Sent<Written> {
        let known = self.command("EVALSHA", &ready.digest, record);
        let mut answer = self.server.run(&ready.connection, known).await;
        if answer.as_ref().is_err_and(|trouble| trouble.code() == Some("NOSCRIPT")) {
            // Somebody has flushed it, or another server answers by now. In full it is kept there again.
            answer = self.server.run(&ready.connection, self.command("EVAL", PUT, record)).await;
        }
        match answer {
            Ok(0) => Sent::Answered(Written::Stored),
            Ok(_) => Sent::Answered(Written::Superseded),
            Err(trouble) => meaning(&trouble),
        }
    }

    async fn close(&self, _: Arc<Ready>) {}
}

const RIGHTS: &str = "the script could not be run: allow the user EVAL, EVALSHA, SCRIPT LOAD, HGET and HSET on the keys of the prefix";

/// What an error means for a record.
fn meaning(trouble: &Trouble) -> Sent<Written> {
    match trouble.code() {
        Some("WRONGTYPE" | "NOVERSION") => Sent::refused("its key holds something that is no record of ours"),
        // Every record would be refused: that is for people to mend, and no reason to give up records.
        // A right that is missing within the script has no code of its own.
        Some(code @ ("NOPERM" | "ERR")) => Sent::failed(format!("{RIGHTS} [{code}]")),
        _ => trouble.meaning(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_entities_have_the_same_key() {
        let plain = "url = 'redis://r'\nallow_plain = true";
        let (common, own): (Common, Settings) = Common::read(plain.parse().unwrap()).unwrap();
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

//! A Redis server, read over a socket by its text protocol (RESP).

use std::path::Path;

use symphony_relay::store::Written;
use symphony_testkit::brokers::{Kind, USER};

use super::fixture::{REFUSED_TYPE, StoreFixture, StoredRecord, customer, store_for, stored_record};
use crate::certificate_authority::CertificateAuthority;
use crate::fixture::{Files, PASSWORD, broker};
use crate::redis::{Redis as Server, Reply};

pub(crate) struct Redis {
    server: Server,
    root: Option<String>,
}

const PREFIX: &str = "symphony:metadata:";

impl StoreFixture for Redis {
    const ACCEPTS_DOT_IDS: bool = true;

    async fn start(tls: Option<&CertificateAuthority>) -> Option<Self> {
        let broker = broker(Kind::Redis, tls).await;
        let fixture =
            Self { server: Server { broker, tls: tls.is_some() }, root: tls.map(CertificateAuthority::pem) };
        fixture.command(&["RPUSH", &format!("{PREFIX}{REFUSED_TYPE}:1"), "not a hash"]).await;
        Some(fixture)
    }

    fn settings(&self, root: Option<&Path>) -> String {
        let scheme = if self.server.tls { "rediss" } else { "redis" };
        let trust = root.map(|root| format!("root_ca_file = {root:?}\nsystem_roots = false")).unwrap_or_default();
        let port = self.server.broker.port();
        format!("kind = 'redis'\nurl = '{scheme}://localhost:{port}'\nuser = '{USER}'\n{trust}")
    }

    async fn read(&self, entity_type: &str, entity_id: &str) -> Option<StoredRecord> {
        let kind = entity_type.replace('%', "%25").replace(':', "%3A");
        let key = format!("{PREFIX}{kind}:{entity_id}");
        let found = self.command(&["HGETALL", &key]).await;
        let Reply::Array(fields) = found else { panic!("not a hash") };
        if fields.is_empty() {
            return None;
        }
        let fields: Vec<String> = fields.into_iter().map(text).collect();
        let field = |name: &str| fields.chunks(2).find(|pair| pair[0] == name).unwrap()[1].clone();
        assert_eq!((field("entity_type").as_str(), field("entity_id").as_str()), (entity_type, entity_id));
        let version = field("version").parse().unwrap();
        Some(StoredRecord { version, entry_id: field("entry_id"), metadata: field("metadata") })
    }

    async fn count(&self) -> usize {
        // Without the key that makes writes fail.
        text(self.command(&["DBSIZE"]).await).parse::<usize>().unwrap() - 1
    }

    async fn kill(&mut self) {
        self.server.broker.kill9().await.unwrap();
    }

    async fn restart(&mut self) {
        self.server.broker.restart().await.unwrap();
    }

    async fn pause(&mut self) {
        self.server.broker.pause();
    }

    async fn resume(&mut self) {
        self.server.broker.resume();
    }
}

impl Redis {
    async fn command(&self, command: &[&str]) -> Reply {
        match &self.root {
            None => self.server.command(command).await,
            Some(root) => self.server.command_by_tls(command, root).await,
        }
    }
}

fn text(reply: Reply) -> String {
    match reply {
        Reply::Text(text) => text,
        Reply::Array(_) => panic!("an array"),
    }
}

#[tokio::test]
async fn a_flushed_script_is_loaded_again() {
    let fixture = Redis::start(None).await.unwrap();
    let store = store_for(&fixture, &Files::new(), "timeout = '60s'");
    assert_eq!(store.write(&customer("1", 1)).await, Written::Stored);
    fixture.command(&["SCRIPT", "FLUSH"]).await;
    let later = customer("1", 2);
    assert_eq!(store.write(&later).await, Written::Stored);
    assert_eq!(store.write(&customer("1", 1)).await, Written::Superseded);
    assert_eq!(fixture.read("customer", "1").await, stored_record(&later));
}

#[tokio::test]
async fn a_record_is_stored_when_as_many_replicas_have_it_as_the_settings_say() {
    let fixture = Redis::start(None).await.unwrap();
    let (files, settings) = (Files::new(), "replicas = 1\ntimeout = '2s'\nconnect_timeout = '1500ms'");
    let store = store_for(&fixture, &files, settings);
    let record = customer("1", 1);
    let outcome = store.write(&record).await;
    let Written::Failed(why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("0 of 1 replicas"), "{why}");

    let replica = Redis { server: Server { broker: broker(Kind::Redis, None).await, tls: false }, root: None };
    replica.command(&["CONFIG", "SET", "masteruser", USER, "masterauth", PASSWORD]).await;
    replica.command(&["REPLICAOF", "127.0.0.1", &fixture.server.broker.port().to_string()]).await;
    super::suite::store_eventually(store.as_ref(), &record).await;
    assert_eq!(replica.read("customer", "1").await, stored_record(&record));

    // WAIT applies to a repeat over another connection as well.
    replica.server.broker.pause();
    let later = customer("1", 2);
    for store in [&store, &store_for(&fixture, &files, settings)] {
        let outcome = store.write(&later).await;
        assert!(matches!(&outcome, Written::Failed(why) if why.contains("0 of 1 replicas")), "{outcome:?}");
    }
    replica.server.broker.resume();
    super::suite::store_eventually(store.as_ref(), &later).await;
    assert_eq!(replica.read("customer", "1").await, stored_record(&later));
}

/// The store leaves a key alone that it did not write.
#[tokio::test]
async fn a_hash_that_the_store_did_not_write_is_not_overwritten() {
    let fixture = Redis::start(None).await.unwrap();
    let store = store_for(&fixture, &Files::new(), "timeout = '60s'");
    fixture.command(&["HSET", &format!("{PREFIX}customer:1"), "version", "v2-beta"]).await;
    let outcome = store.write(&customer("1", 1)).await;
    assert!(super::suite::is_refused(&outcome, "Symphony did not write"), "{outcome:?}");
    assert_eq!(text(fixture.command(&["HGET", &format!("{PREFIX}customer:1"), "version"]).await), "v2-beta");
}

#[tokio::test]
async fn a_missing_right_is_named_and_the_record_stays_retryable() {
    let fixture = Redis::start(None).await.unwrap();
    let files = Files::new();
    let password = files.write("password", PASSWORD);
    for (user, rights) in [
        ("no-hset", &["~*", "+@all", "-hset"][..]),
        ("no-keys", &["~other:*", "+@all"]),
        ("no-script", &["~*", "+@all", "-script"]),
        ("no-evalsha", &["~*", "+@all", "-evalsha"]),
    ] {
        fixture.command(&[&["ACL", "SETUSER", user, "on", &format!(">{PASSWORD}")], rights].concat()).await;
        let toml = fixture.settings(None).replace(&format!("user = '{USER}'"), &format!("user = '{user}'"));
        let toml = format!("{toml}\nallow_plain = true\ntimeout = '60s'\npassword_file = {password:?}");
        let store = symphony_sinks::store("copies", toml.parse().unwrap()).unwrap();
        let outcome = store.write(&customer("1", 1)).await;
        let Written::Failed(why) = outcome else { panic!("{user}: {outcome:?}") };
        assert!(why.contains("allow the user EVAL, EVALSHA"), "{user}: {why}");
    }
    assert_eq!(fixture.count().await, 0);
}

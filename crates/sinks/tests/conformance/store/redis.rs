//! Redis, read over a socket by its own protocol.

use std::path::Path;

use symphony_proof::kit::brokers::{Kind, USER};
use symphony_relay::store::Written;

use super::shelf::{Kept, Shelf, UNWELCOME, customer, kept, store_on};
use crate::authority::Authority;
use crate::place::{Files, PASSWORD, broker};
use crate::redis::{Answer, Redis as Server};

pub(crate) struct Redis {
    server: Server,
    root: Option<String>,
}

const PREFIX: &str = "symphony:metadata:";

impl Shelf for Redis {
    const KEEPS_DOTS: bool = true;

    async fn start(tls: Option<&Authority>) -> Option<Self> {
        let broker = broker(Kind::Redis, tls).await;
        let shelf = Self { server: Server { broker, tls: tls.is_some() }, root: tls.map(Authority::pem) };
        shelf.ask(&["RPUSH", &format!("{PREFIX}{UNWELCOME}:1"), "no hash"]).await;
        Some(shelf)
    }

    fn settings(&self, root: Option<&Path>) -> String {
        let scheme = if self.server.tls { "rediss" } else { "redis" };
        let trust = root.map(|root| format!("root_ca_file = {root:?}\nsystem_roots = false")).unwrap_or_default();
        let port = self.server.broker.port();
        format!("kind = 'redis'\nurl = '{scheme}://localhost:{port}'\nuser = '{USER}'\n{trust}")
    }

    async fn read(&self, entity_type: &str, entity_id: &str) -> Option<Kept> {
        let kind = entity_type.replace('%', "%25").replace(':', "%3A");
        let key = format!("{PREFIX}{kind}:{entity_id}");
        let found = self.ask(&["HGETALL", &key]).await;
        let Answer::Array(fields) = found else { panic!("no hash") };
        if fields.is_empty() {
            return None;
        }
        let words: Vec<String> = fields.into_iter().map(text).collect();
        let field = |name: &str| words.chunks(2).find(|pair| pair[0] == name).unwrap()[1].clone();
        assert_eq!((field("entity_type").as_str(), field("entity_id").as_str()), (entity_type, entity_id));
        let version = field("version").parse().unwrap();
        Some(Kept { version, entry_id: field("entry_id"), metadata: field("metadata") })
    }

    async fn count(&self) -> usize {
        // But for the one that stands in the way.
        text(self.ask(&["DBSIZE"]).await).parse::<usize>().unwrap() - 1
    }

    async fn down(&mut self) {
        self.server.broker.kill9().await.unwrap();
    }

    async fn up(&mut self) {
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
    async fn ask(&self, command: &[&str]) -> Answer {
        match &self.root {
            None => self.server.ask(command).await,
            Some(root) => self.server.ask_by_tls(command, root).await,
        }
    }
}

fn text(answer: Answer) -> String {
    match answer {
        Answer::Text(text) => text,
        Answer::Array(_) => panic!("an array"),
    }
}

#[tokio::test]
async fn a_server_that_has_forgotten_the_script_is_given_it_again() {
    let shelf = Redis::start(None).await.unwrap();
    let store = store_on(&shelf, &Files::new(), "timeout = '60s'");
    assert_eq!(store.write(&customer("1", 1)).await, Written::Stored);
    shelf.ask(&["SCRIPT", "FLUSH"]).await;
    let later = customer("1", 2);
    assert_eq!(store.write(&later).await, Written::Stored);
    assert_eq!(store.write(&customer("1", 1)).await, Written::Superseded);
    assert_eq!(shelf.read("customer", "1").await, kept(&later));
}

#[tokio::test]
async fn a_record_is_stored_when_as_many_replicas_have_it_as_the_settings_say() {
    let shelf = Redis::start(None).await.unwrap();
    let (files, hasty) = (Files::new(), "replicas = 1\ntimeout = '2s'\nconnect_timeout = '1500ms'");
    let store = store_on(&shelf, &files, hasty);
    let record = customer("1", 1);
    let outcome = store.write(&record).await;
    let Written::Failed(why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("0 of 1 replicas"), "{why}");

    let replica = Redis { server: Server { broker: broker(Kind::Redis, None).await, tls: false }, root: None };
    replica.ask(&["CONFIG", "SET", "masteruser", USER, "masterauth", PASSWORD]).await;
    replica.ask(&["REPLICAOF", "127.0.0.1", &shelf.server.broker.port().to_string()]).await;
    super::facts::store_at_last(store.as_ref(), &record).await;
    assert_eq!(replica.read("customer", "1").await, kept(&record));

    // A repeat over another connection is waited for like the first.
    replica.server.broker.pause();
    let later = customer("1", 2);
    for store in [&store, &store_on(&shelf, &files, hasty)] {
        let outcome = store.write(&later).await;
        assert!(matches!(&outcome, Written::Failed(why) if why.contains("0 of 1 replicas")), "{outcome:?}");
    }
    replica.server.broker.resume();
    super::facts::store_at_last(store.as_ref(), &later).await;
    assert_eq!(replica.read("customer", "1").await, kept(&later));
}

/// What stands under a key of ours and was not written by us is left alone.
#[tokio::test]
async fn a_hash_of_somebody_else_is_not_overwritten() {
    let shelf = Redis::start(None).await.unwrap();
    let store = store_on(&shelf, &Files::new(), "timeout = '60s'");
    shelf.ask(&["HSET", &format!("{PREFIX}customer:1"), "version", "v2-beta"]).await;
    let outcome = store.write(&customer("1", 1)).await;
    assert!(super::facts::is_refused(&outcome, "no record of ours"), "{outcome:?}");
    assert_eq!(text(shelf.ask(&["HGET", &format!("{PREFIX}customer:1"), "version"]).await), "v2-beta");
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_and_no_reason_to_give_up_records() {
    let shelf = Redis::start(None).await.unwrap();
    let files = Files::new();
    let password = files.write("poor", PASSWORD);
    for (user, rights) in [
        ("no-hset", &["~*", "+@all", "-hset"][..]),
        ("no-keys", &["~other:*", "+@all"]),
        ("no-script", &["~*", "+@all", "-script"]),
        ("no-evalsha", &["~*", "+@all", "-evalsha"]),
    ] {
        shelf.ask(&[&["ACL", "SETUSER", user, "on", &format!(">{PASSWORD}")], rights].concat()).await;
        let toml = shelf.settings(None).replace(&format!("user = '{USER}'"), &format!("user = '{user}'"));
        let toml = format!("{toml}\nallow_plain = true\ntimeout = '60s'\npassword_file = {password:?}");
        let store = symphony_sinks::store("copies", toml.parse().unwrap()).unwrap();
        let outcome = store.write(&customer("1", 1)).await;
        let Written::Failed(why) = outcome else { panic!("{user}: {outcome:?}") };
        assert!(why.contains("allow the user EVAL, EVALSHA"), "{user}: {why}");
    }
    assert_eq!(shelf.count().await, 0);
}

//! The tests that every store must pass.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_relay::store::{Record, Store, Written};
use symphony_testkit::wait::{self, DEFAULT_TIMEOUT};

use super::fixture::{REFUSED_TYPE, StoreFixture, customer, record, store_for, store_with, stored_record};
use crate::certificate_authority::CertificateAuthority;
use crate::fixture::Files;

const LONG_TIMEOUT: &str = "timeout = '60s'";
/// Short, so that an outage fails soon. MAX_FAILURE_TIME adds what a busy machine may need.
const SHORT_TIMEOUT: &str = "timeout = '2s'\nconnect_timeout = '1500ms'";
const MAX_FAILURE_TIME: Duration = Duration::from_secs(20);

/// A version of the metadata lane: microseconds since 1970, in 2026.
const NOW: i64 = 1_780_000_000_000_000;

pub(crate) async fn versions<S: StoreFixture>() {
    let fixture = S::start(None).await.unwrap();
    let files = Files::new();
    let store = store_for(&fixture, &files, LONG_TIMEOUT);
    what_is_stored_can_be_read(&fixture, store.as_ref()).await;
    a_repeat_changes_nothing(&fixture, store.as_ref()).await;
    an_earlier_version_leaves_a_later_one_alone(&fixture, store.as_ref()).await;
    versions_are_compared_as_numbers(&fixture, store.as_ref()).await;
    every_entity_has_its_own_record(&fixture, store.as_ref()).await;
    concurrent_writers_leave_the_latest(&fixture, &files).await;
    a_record_above_max_bytes_is_refused(&fixture, &files).await;
    a_refused_record_does_not_affect_others(&fixture, store.as_ref()).await;
    wrong_credentials_store_nothing(&fixture, &files).await;
    store.close().await;
    // A store that was closed can be used again.
    assert_eq!(store.write(&customer("after-close", 1)).await, Written::Stored);
}

async fn what_is_stored_can_be_read<S: StoreFixture>(fixture: &S, store: &dyn Store) {
    let mut whole = customer("whole", NOW);
    whole.metadata =
        "{\"big\": 12345678901234567890, \"text\": \"\u{1f600} \\\"quoted\\\" \\r\\n\", \"amount\": 10.00}"
            .to_owned();
    assert_eq!(store.write(&whole).await, Written::Stored);
    assert_eq!(fixture.read("customer", "whole").await, stored_record(&whole));
    assert_eq!(fixture.read("customer", "missing").await, None);
}

async fn a_repeat_changes_nothing<S: StoreFixture>(fixture: &S, store: &dyn Store) {
    let record = customer("repeat", NOW);
    for _ in 0..3 {
        assert_eq!(store.write(&record).await, Written::Stored);
        assert_eq!(fixture.read("customer", "repeat").await, stored_record(&record));
    }
}

async fn an_earlier_version_leaves_a_later_one_alone<S: StoreFixture>(fixture: &S, store: &dyn Store) {
    let [first, second, third] = [NOW, NOW + 1, NOW + 2].map(|version| customer("order", version));
    assert_eq!(store.write(&second).await, Written::Stored);
    assert_eq!(store.write(&first).await, Written::Superseded);
    assert_eq!(fixture.read("customer", "order").await, stored_record(&second));
    assert_eq!(store.write(&third).await, Written::Stored);
    for earlier in [&first, &second] {
        assert_eq!(store.write(earlier).await, Written::Superseded);
    }
    assert_eq!(fixture.read("customer", "order").await, stored_record(&third));
}

async fn versions_are_compared_as_numbers<S: StoreFixture>(fixture: &S, store: &dyn Store) {
    // The last two are equal as 64-bit floats, which have 53 bits of precision.
    let rising = [0, 9, 10, 99, 100, NOW, i64::MAX - 1, i64::MAX].map(|version| customer("numbers", version));
    for (n, later) in rising.iter().enumerate() {
        assert_eq!(store.write(later).await, Written::Stored, "{}", later.version);
        for earlier in &rising[..n] {
            assert_eq!(store.write(earlier).await, Written::Superseded, "{}", earlier.version);
        }
    }
    assert_eq!(fixture.read("customer", "numbers").await, stored_record(&rising[7]));
}

/// Ids that could escape a path, a key, a header or a statement, or collide with another id.
async fn every_entity_has_its_own_record<S: StoreFixture>(fixture: &S, store: &dyn Store) {
    let entities = [
        ("a/b", "c"),
        ("a", "b/c"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a%3Ab", "c"),
        ("a", "/c"),
        ("a", "c/"),
        ("a", "../c"),
        ("a", "c?x=1#y"),
        ("a", "%2e%2e"),
        ("a", "%"),
        ("a", "line\r\nX-Header: y"),
        ("a", "'; drop table symphony_metadata; --"),
        ("a", "\"\\{}$1"),
        ("a", " "),
        ("a", "c "),
        ("a", "C"),
        ("a", "\u{20ac}\u{1f600}\u{202e}"),
        ("a", "e\u{301}"),
        ("a", "\u{e9}"),
        ("A", "c"),
        ("a*", "[c]"),
        ("symphony-stands-in-for-an-id", "symphony-stands-in-for-a-type"),
    ];
    let before = fixture.count().await;
    let records: Vec<_> =
        entities.iter().zip(NOW..).map(|((kind, id), version)| record(kind, id, version)).collect();
    for record in &records {
        assert_eq!(store.write(record).await, Written::Stored, "{record:?}");
    }
    assert_eq!(fixture.count().await - before, records.len());
    for record in &records {
        assert_eq!(
            fixture.read(&record.entity_type, &record.entity_id).await,
            stored_record(record),
            "{record:?}"
        );
    }
    for dots in [".", ".."] {
        let written = store.write(&customer(dots, NOW)).await;
        assert!(
            if S::ACCEPTS_DOT_IDS { written == Written::Stored } else { is_refused(&written, "..") },
            "{written:?}"
        );
    }
    assert!(!is_refused(&store.write(&customer("...", NOW)).await, ""));
}

async fn concurrent_writers_leave_the_latest<S: StoreFixture>(fixture: &S, files: &Files) {
    const WRITERS: usize = 4;
    const VERSIONS: i64 = 120;
    let seed = std::env::var("SYMPHONY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one("a seed"));
    println!("SYMPHONY_SEED={seed}");
    let mut records: Vec<_> = (0..VERSIONS).map(|n| customer("concurrent", NOW + n)).collect();
    let latest = records.last().unwrap().clone();
    let mut state = seed;
    records.sort_by_cached_key(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 32
    });
    // One connection per writer, as for several relayers, and many writes at once on each.
    let stores: Vec<_> = (0..WRITERS).map(|_| store_for(fixture, files, LONG_TIMEOUT)).collect();
    let writes: Vec<_> = records
        .into_iter()
        .enumerate()
        .map(|(n, record)| {
            let store = Arc::clone(&stores[n % WRITERS]);
            tokio::spawn(async move { store.write(&record).await })
        })
        .collect();
    let mut stored = 0;
    for write in writes {
        match write.await.unwrap() {
            Written::Stored => stored += 1,
            Written::Superseded => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(stored > 0);
    assert_eq!(fixture.read("customer", "concurrent").await, stored_record(&latest));
}

async fn a_record_above_max_bytes_is_refused<S: StoreFixture>(fixture: &S, files: &Files) {
    let store = store_for(fixture, files, "timeout = '60s'\nmax_bytes = 2000");
    let sized = |id: &str, size: usize| {
        let mut record = customer(id, NOW);
        record.metadata = format!("{{\"x\": \"{}\"}}", "a".repeat(size - 9));
        assert_eq!(record.metadata.len(), size);
        record
    };
    let (large, larger) = (sized("large", 2000), sized("larger", 2001));
    assert_eq!(store.write(&large).await, Written::Stored);
    assert_eq!(fixture.read("customer", "large").await, stored_record(&large));
    assert!(is_refused(&store.write(&larger).await, "max_bytes"));
    assert_eq!(fixture.read("customer", "larger").await, None);
}

async fn a_refused_record_does_not_affect_others<S: StoreFixture>(fixture: &S, store: &dyn Store) {
    let refused_record = Record { metadata: "{\"name\": \"Ada\"}".to_owned(), ..record(REFUSED_TYPE, "1", NOW) };
    let accepted = customer("accepted", NOW);
    let (refused, stored) = tokio::join!(store.write(&refused_record), store.write(&accepted));
    assert!(is_refused(&refused, ""), "{refused:?}");
    assert!(!format!("{refused:?}").contains("Ada"), "{refused:?}");
    assert_eq!(stored, Written::Stored);
    assert_eq!(fixture.read("customer", "accepted").await, stored_record(&accepted));
}

async fn wrong_credentials_store_nothing<S: StoreFixture>(fixture: &S, files: &Files) {
    let wrong = S::PASSWORDS[1];
    let store = store_with(fixture, files, None, "allow_plain = true\ntimeout = '30s'", wrong);
    match store.write(&customer("unauthorized", NOW)).await {
        Written::Failed(why) | Written::Refused(why) => {
            let causes = ["credentials", "401", "password"];
            assert!(causes.iter().any(|cause| why.contains(cause)) && !why.contains(wrong), "{why}");
        }
        stored => panic!("{stored:?} with wrong credentials"),
    }
    assert_eq!(fixture.read("customer", "unauthorized").await, None);
}

pub(crate) async fn outage<S: StoreFixture>() {
    let mut fixture = S::start(None).await.unwrap();
    let files = Files::new();
    let store = store_for(&fixture, &files, SHORT_TIMEOUT);
    let before = customer("before", NOW);
    store_eventually(store.as_ref(), &before).await;

    // Killed at once: a confirmed write must already be durable.
    fixture.kill().await;
    assert_fails_in_time(store.as_ref(), &customer("while-down", NOW)).await;
    fixture.restart().await;
    assert_eq!(fixture.read("customer", "before").await, stored_record(&before));
    store_eventually(store.as_ref(), &customer("after-down", NOW)).await;

    fixture.pause().await;
    assert_fails_in_time(store.as_ref(), &customer("while-paused", NOW)).await;
    fixture.resume().await;
    store_eventually(store.as_ref(), &customer("after-pause", NOW)).await;

    // Killed during a write that it has not confirmed.
    fixture.pause().await;
    let in_flight = customer("in-flight", NOW);
    let (outcome, ()) = tokio::join!(store.write(&in_flight), fixture.kill());
    assert!(matches!(outcome, Written::Failed(_)), "{outcome:?}");
    fixture.restart().await;
    fixture.resume().await;
    store_eventually(store.as_ref(), &in_flight).await;
    assert_eq!(fixture.read("customer", "in-flight").await, stored_record(&in_flight));

    // A writer stores one version after another with retries, while the server is killed and restarted.
    let (sent, mut progress) = tokio::sync::watch::channel(0);
    let writer = async {
        for n in 0..40 {
            store_eventually(store.as_ref(), &customer("on", NOW + n)).await;
            sent.send_replace(n);
        }
    };
    let restart = async {
        tokio::time::timeout(DEFAULT_TIMEOUT, progress.wait_for(|n| *n >= 10)).await.unwrap().unwrap();
        fixture.kill().await;
        fixture.restart().await;
    };
    tokio::join!(writer, restart);
    assert_eq!(fixture.read("customer", "on").await.unwrap().version, NOW + 39);
    assert_eq!(store.write(&customer("on", NOW)).await, Written::Superseded);
}

pub(crate) async fn tls<S: StoreFixture>() {
    let (authority, other) = (CertificateAuthority::new(), CertificateAuthority::new());
    let Some(fixture) = S::start(Some(&authority)).await else {
        eprintln!("skipped: this server was built without TLS");
        return;
    };
    let files = Files::new();
    let [right, wrong] = [("right.pem", &authority), ("wrong.pem", &other)]
        .map(|(name, authority)| files.write(name, &authority.pem()));
    let store_trusting = |path| store_with(&fixture, &files, Some(path), "timeout = '60s'", S::PASSWORDS[0]);
    assert_eq!(store_trusting(&right).write(&customer("secret", NOW)).await, Written::Stored);
    let outcome = store_trusting(&wrong).write(&customer("unauthorized", NOW)).await;
    assert!(matches!(outcome, Written::Failed(_)), "{outcome:?}");
    assert_eq!(fixture.count().await, 1);
}

pub(crate) fn is_refused(written: &Written, because: &str) -> bool {
    matches!(written, Written::Refused(why) if why.contains(because))
}

async fn assert_fails_in_time(store: &dyn Store, record: &Record) {
    let began = Instant::now();
    let outcome = store.write(record).await;
    assert!(matches!(outcome, Written::Failed(_)), "{outcome:?}");
    assert!(began.elapsed() < MAX_FAILURE_TIME, "it took {:?} to fail", began.elapsed());
}

pub(crate) async fn store_eventually(store: &dyn Store, record: &Record) {
    let stored = async || store.write(record).await == Written::Stored;
    wait::until(format!("{} is stored", record.entity_id), DEFAULT_TIMEOUT, stored).await.unwrap();
}

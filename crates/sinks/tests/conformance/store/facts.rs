//! The facts. Each is told of any shelf.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_proof::kit::wait::{self, BOUND};
use symphony_relay::store::{Record, Store, Written};

use super::shelf::{Shelf, UNWELCOME, customer, kept, record, store_on, store_with};
use crate::authority::Authority;
use crate::place::Files;

const PATIENT: &str = "timeout = '60s'";
/// What a store is given to confirm in the facts about outages, and what a busy machine may add to it.
const HASTY: &str = "timeout = '2s'\nconnect_timeout = '1500ms'";
const IN_TIME: Duration = Duration::from_secs(20);

/// Microseconds in the year 2026, as the lane counts versions.
const NOW: i64 = 1_780_000_000_000_000;

pub(crate) async fn keeping<S: Shelf>() {
    let shelf = S::start(None).await.unwrap();
    let files = Files::new();
    let store = store_on(&shelf, &files, PATIENT);
    what_is_stored_can_be_read(&shelf, store.as_ref()).await;
    a_repeat_changes_nothing(&shelf, store.as_ref()).await;
    an_earlier_version_leaves_a_later_one_alone(&shelf, store.as_ref()).await;
    versions_are_compared_as_numbers(&shelf, store.as_ref()).await;
    every_entity_has_a_record_of_its_own(&shelf, store.as_ref()).await;
    many_writers_leave_the_latest(&shelf, &files).await;
    what_is_too_large_is_refused(&shelf, &files).await;
    what_the_server_refuses_is_refused_and_the_rest_is_not(&shelf, store.as_ref()).await;
    wrong_credentials_store_nothing(&shelf, &files).await;
    store.close().await;
    // A store that was closed can be used again.
    assert_eq!(store.write(&customer("after-close", 1)).await, Written::Stored);
}

async fn what_is_stored_can_be_read<S: Shelf>(shelf: &S, store: &dyn Store) {
    let mut whole = customer("whole", NOW);
    whole.metadata =
        "{\"big\": 12345678901234567890, \"text\": \"\u{1f600} \\\"quoted\\\" \\r\\n\", \"amount\": 10.00}"
            .to_owned();
    assert_eq!(store.write(&whole).await, Written::Stored);
    assert_eq!(shelf.read("customer", "whole").await, kept(&whole));
    assert_eq!(shelf.read("customer", "nobody").await, None);
}

async fn a_repeat_changes_nothing<S: Shelf>(shelf: &S, store: &dyn Store) {
    let once = customer("repeat", NOW);
    for _ in 0..3 {
        assert_eq!(store.write(&once).await, Written::Stored);
        assert_eq!(shelf.read("customer", "repeat").await, kept(&once));
    }
}

async fn an_earlier_version_leaves_a_later_one_alone<S: Shelf>(shelf: &S, store: &dyn Store) {
    let [first, second, third] = [NOW, NOW + 1, NOW + 2].map(|version| customer("order", version));
    assert_eq!(store.write(&second).await, Written::Stored);
    assert_eq!(store.write(&first).await, Written::Superseded);
    assert_eq!(shelf.read("customer", "order").await, kept(&second));
    assert_eq!(store.write(&third).await, Written::Stored);
    for earlier in [&first, &second] {
        assert_eq!(store.write(earlier).await, Written::Superseded);
    }
    assert_eq!(shelf.read("customer", "order").await, kept(&third));
}

async fn versions_are_compared_as_numbers<S: Shelf>(shelf: &S, store: &dyn Store) {
    // The last two are the same for whoever counts with 53 bits.
    let rising = [0, 9, 10, 99, 100, NOW, i64::MAX - 1, i64::MAX].map(|version| customer("numbers", version));
    for (n, later) in rising.iter().enumerate() {
        assert_eq!(store.write(later).await, Written::Stored, "{}", later.version);
        for earlier in &rising[..n] {
            assert_eq!(store.write(earlier).await, Written::Superseded, "{}", earlier.version);
        }
    }
    assert_eq!(shelf.read("customer", "numbers").await, kept(&rising[7]));
}

/// Ids that lead elsewhere, end something, or look like another where they are put together carelessly.
async fn every_entity_has_a_record_of_its_own<S: Shelf>(shelf: &S, store: &dyn Store) {
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
    let before = shelf.count().await;
    let records: Vec<_> =
        entities.iter().zip(NOW..).map(|((kind, id), version)| record(kind, id, version)).collect();
    for record in &records {
        assert_eq!(store.write(record).await, Written::Stored, "{record:?}");
    }
    assert_eq!(shelf.count().await - before, records.len());
    for record in &records {
        assert_eq!(shelf.read(&record.entity_type, &record.entity_id).await, kept(record), "{record:?}");
    }
    for dots in [".", ".."] {
        let written = store.write(&customer(dots, NOW)).await;
        assert!(
            if S::KEEPS_DOTS { written == Written::Stored } else { is_refused(&written, "..") },
            "{written:?}"
        );
    }
    assert!(!is_refused(&store.write(&customer("...", NOW)).await, ""));
}

async fn many_writers_leave_the_latest<S: Shelf>(shelf: &S, files: &Files) {
    const WRITERS: usize = 4;
    const VERSIONS: i64 = 120;
    let seed = std::env::var("SYMPHONY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one("an order"));
    println!("SYMPHONY_SEED={seed}");
    let mut records: Vec<_> = (0..VERSIONS).map(|n| customer("crowd", NOW + n)).collect();
    let latest = records.last().unwrap().clone();
    let mut state = seed;
    records.sort_by_cached_key(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 32
    });
    // Each over a connection of its own, as relayers are, and each with many at once.
    let stores: Vec<_> = (0..WRITERS).map(|_| store_on(shelf, files, PATIENT)).collect();
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
    assert_eq!(shelf.read("customer", "crowd").await, kept(&latest));
}

async fn what_is_too_large_is_refused<S: Shelf>(shelf: &S, files: &Files) {
    let store = store_on(shelf, files, "timeout = '60s'\nmax_bytes = 2000");
    let sized = |id: &str, size: usize| {
        let mut record = customer(id, NOW);
        record.metadata = format!("{{\"x\": \"{}\"}}", "a".repeat(size - 9));
        assert_eq!(record.metadata.len(), size);
        record
    };
    let (large, larger) = (sized("large", 2000), sized("larger", 2001));
    assert_eq!(store.write(&large).await, Written::Stored);
    assert_eq!(shelf.read("customer", "large").await, kept(&large));
    assert!(is_refused(&store.write(&larger).await, "max_bytes"));
    assert_eq!(shelf.read("customer", "larger").await, None);
}

async fn what_the_server_refuses_is_refused_and_the_rest_is_not<S: Shelf>(shelf: &S, store: &dyn Store) {
    let hidden = Record { metadata: "{\"name\": \"Ada\"}".to_owned(), ..record(UNWELCOME, "1", NOW) };
    let welcome = customer("welcome", NOW);
    let (refused, stored) = tokio::join!(store.write(&hidden), store.write(&welcome));
    assert!(is_refused(&refused, ""), "{refused:?}");
    assert!(!format!("{refused:?}").contains("Ada"), "{refused:?}");
    assert_eq!(stored, Written::Stored);
    assert_eq!(shelf.read("customer", "welcome").await, kept(&welcome));
}

async fn wrong_credentials_store_nothing<S: Shelf>(shelf: &S, files: &Files) {
    let wrong = S::PASSWORDS[1];
    let store = store_with(shelf, files, None, "allow_plain = true\ntimeout = '30s'", wrong);
    match store.write(&customer("uninvited", NOW)).await {
        Written::Failed(why) | Written::Refused(why) => {
            let words = ["credentials", "401", "password"];
            assert!(words.iter().any(|word| why.contains(word)) && !why.contains(wrong), "{why}");
        }
        stored => panic!("{stored:?} with wrong credentials"),
    }
    assert_eq!(shelf.read("customer", "uninvited").await, None);
}

pub(crate) async fn outage<S: Shelf>() {
    let mut shelf = S::start(None).await.unwrap();
    let files = Files::new();
    let store = store_on(&shelf, &files, HASTY);
    let before = customer("before", NOW);
    store_at_last(store.as_ref(), &before).await;

    // At once: what was stored must not wait for a quiet moment to be kept.
    shelf.down().await;
    assert_fails_in_time(store.as_ref(), &customer("while-down", NOW)).await;
    shelf.up().await;
    assert_eq!(shelf.read("customer", "before").await, kept(&before));
    store_at_last(store.as_ref(), &customer("after-down", NOW)).await;

    shelf.pause().await;
    assert_fails_in_time(store.as_ref(), &customer("while-paused", NOW)).await;
    shelf.resume().await;
    store_at_last(store.as_ref(), &customer("after-pause", NOW)).await;

    // It dies with a record in its hands, and has not kept it.
    shelf.pause().await;
    let held = customer("in-hand", NOW);
    let (outcome, ()) = tokio::join!(store.write(&held), shelf.down());
    assert!(matches!(outcome, Written::Failed(_)), "{outcome:?}");
    shelf.up().await;
    shelf.resume().await;
    store_at_last(store.as_ref(), &held).await;
    assert_eq!(shelf.read("customer", "in-hand").await, kept(&held));

    // Somebody writes one version after another, as often as it takes, while the server dies and comes back.
    let (tell, mut told) = tokio::sync::watch::channel(0);
    let writer = async {
        for n in 0..40 {
            store_at_last(store.as_ref(), &customer("on", NOW + n)).await;
            tell.send_replace(n);
        }
    };
    let restart = async {
        tokio::time::timeout(BOUND, told.wait_for(|n| *n >= 10)).await.unwrap().unwrap();
        shelf.down().await;
        shelf.up().await;
    };
    tokio::join!(writer, restart);
    assert_eq!(shelf.read("customer", "on").await.unwrap().version, NOW + 39);
    assert_eq!(store.write(&customer("on", NOW)).await, Written::Superseded);
}

pub(crate) async fn tls<S: Shelf>() {
    let (authority, other) = (Authority::new(), Authority::new());
    let Some(shelf) = S::start(Some(&authority)).await else {
        eprintln!("this server was built without TLS: nothing was tried");
        return;
    };
    let files = Files::new();
    let [right, wrong] = [("right.pem", &authority), ("wrong.pem", &other)]
        .map(|(name, authority)| files.write(name, &authority.pem()));
    let trusting = |path| store_with(&shelf, &files, Some(path), "timeout = '60s'", S::PASSWORDS[0]);
    assert_eq!(trusting(&right).write(&customer("secret", NOW)).await, Written::Stored);
    let outcome = trusting(&wrong).write(&customer("uninvited", NOW)).await;
    assert!(matches!(outcome, Written::Failed(_)), "{outcome:?}");
    assert_eq!(shelf.count().await, 1);
}

pub(crate) fn is_refused(written: &Written, because: &str) -> bool {
    matches!(written, Written::Refused(why) if why.contains(because))
}

async fn assert_fails_in_time(store: &dyn Store, record: &Record) {
    let began = Instant::now();
    let outcome = store.write(record).await;
    assert!(matches!(outcome, Written::Failed(_)), "{outcome:?}");
    assert!(began.elapsed() < IN_TIME, "it took {:?} to fail", began.elapsed());
}

pub(crate) async fn store_at_last(store: &dyn Store, record: &Record) {
    let stored = async || store.write(record).await == Written::Stored;
    wait::until(format!("{} is stored", record.entity_id), BOUND, stored).await.unwrap();
}

//! What a relayer refuses at its start.

use symphony_db::schema::Lane;
use symphony_relay::event::routing::Route;
use symphony_relay::relayer::StartError;
use symphony_relay::relayer::checks::CheckError;
use symphony_relay::{Relayer, Settings};
use symphony_testkit::scripted_rail::ScriptedRail;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio::signal::unix::{SignalKind, signal};

use crate::database;

/// The error of a start that must fail.
async fn refusal(builder: symphony_relay::relayer::RelayerBuilder) -> StartError {
    match builder.start().await {
        Ok(_) => panic!("it has started"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_relayer_with_wrong_settings_does_not_start_and_connects_nowhere() {
    let nowhere = || Relayer::builder("postgres://me@127.0.0.1:1/none");
    assert!(matches!(refusal(nowhere()).await, StartError::NothingToServe));
    let route = || Route::new("*", "*", "bus", "all").unwrap();
    assert!(matches!(refusal(nowhere().event_route(route())).await, StartError::NoEventSource));
    let unknown = refusal(nowhere().event_source("//x").event_route(route())).await;
    assert!(matches!(&unknown, StartError::UnknownDestination(name) if name == "bus"), "{unknown}");
    let slots = Settings { slots: 0, ..Settings::default() };
    let range = refusal(nowhere().rail("book", ScriptedRail::new()).settings(Lane::Payment, slots)).await;
    assert_eq!(range.to_string(), "payment: slots is 0, and must be 1 to 1024");
    assert!(matches!(refusal(nowhere().rail("book", ScriptedRail::new())).await, StartError::Connect(_)));
    let address = refusal(Relayer::builder("not a url").rail("book", ScriptedRail::new())).await;
    assert!(matches!(address, StartError::Connect(_)), "{address}");
}

#[tokio::test]
async fn a_relayer_refuses_a_changed_schema_a_login_without_its_role_and_an_unknown_rail() {
    let (database, owner) = database("book").await;
    let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
    let unknown = refusal(Relayer::builder(&url).rail("boook", ScriptedRail::new())).await;
    assert!(
        matches!(&unknown, StartError::Check(CheckError::UnknownRails(rails)) if rails == &["boook"]),
        "{unknown}"
    );
    let stranger = database.url_as_login(&[]).await.unwrap();
    let refused = refusal(Relayer::builder(&stranger).rail("book", ScriptedRail::new())).await;
    assert!(matches!(refused, StartError::Check(_)), "{refused}");

    owner.batch_execute("alter table symphony.payment_rails add column extra int").await.unwrap();
    let changed = refusal(Relayer::builder(&url).rail("book", ScriptedRail::new())).await;
    assert!(matches!(changed, StartError::Check(CheckError::SchemaDiffers(_))), "{changed}");
    assert!(changed.to_string().contains("payment_rails"), "{changed}");
    drop(owner);
    database.close().await.unwrap();
}

#[tokio::test]
async fn a_relayer_ends_on_sigterm() {
    let (database, owner) = database("book").await;
    let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
    let relayer =
        Relayer::builder(&url).rail("book", ScriptedRail::new()).worker("worker-1").start().await.unwrap();
    assert_eq!(relayer.worker().as_str(), "worker-1");
    // From here on the signal no longer ends this process by itself.
    let _listening = signal(SignalKind::terminate()).unwrap();
    let running = tokio::spawn(relayer.until_signal());
    let ended = async || {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        running.is_finished()
    };
    until("it has ended", DEFAULT_TIMEOUT, ended).await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().len(), 1);
    drop(owner);
    database.close().await.unwrap();
}

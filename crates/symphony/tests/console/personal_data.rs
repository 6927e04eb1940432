//! Who did what is personal data: the scope `read` does not learn it.

use crate::office::Office;

#[tokio::test]
async fn who_repaired_is_not_for_the_scope_read() {
    let office = Office::open().await;
    let id = office.enqueue(1).await;
    office.claim().await;
    let expire =
        "update symphony.payment_outbox_pending set lease_expires_at = now() where lease_token is not null";
    office.owner.execute(expire, &[]).await.unwrap();
    let console = office.console(&[("reader", &["read"]), ("duty-token", &["operate", "audit"])]).await;
    let warrant = serde_json::json!({ "actor": "maria", "reason": "the relayer is down" });
    console.post("duty-token", "/rails/sepa/repair", &warrant).await.is(200);
    console.post("duty-token", "/rails/sepa/pause", &warrant).await.is(200);
    let mut paths =
        vec!["/rails".to_owned(), "/rails/sepa".to_owned(), "/outboxes".to_owned(), "/overview".to_owned()];
    paths.extend([
        format!("/outboxes/{id}"),
        "/participants/shop-1".to_owned(),
        "/dead-letters".to_owned(),
        "/leases".to_owned(),
    ]);
    for path in paths {
        let told = console.get("reader", &path).await.to_string();
        for personal in ["maria", "duty-token", "the relayer is down"] {
            assert!(!told.contains(personal), "{path} tells {personal}: {told}");
        }
    }
    let log = console.get("duty-token", "/operations").await.to_string();
    assert!(log.contains("duty-token: maria") && log.contains("REPAIR"), "the log of operations says who: {log}");
    // The ledger is for every role that reads payments: it names no person either.
    let kept: String = office
        .owner
        .query_one("select string_agg(a::text, ' ') from symphony.payment_outbox_attempts a", &[])
        .await
        .unwrap()
        .get(0);
    assert!(!kept.contains("maria") && kept.contains("an operator"), "{kept}");
}

//! Operators' names are personal data: the scope `read` does not see them.

use crate::fixture::Fixture;

#[tokio::test]
async fn the_scope_read_does_not_see_which_operator_repaired_a_rail() {
    let fixture = Fixture::new().await;
    let id = fixture.enqueue(1).await;
    fixture.claim().await;
    let expire =
        "update symphony.payment_outbox_pending set lease_expires_at = now() where lease_token is not null";
    fixture.owner.execute(expire, &[]).await.unwrap();
    let console = fixture.console(&[("reader", &["read"]), ("duty-token", &["operate", "audit"])]).await;
    let audit_context = serde_json::json!({ "actor": "maria", "reason": "the relayer is down" });
    console.post("duty-token", "/rails/sepa/repair", &audit_context).await.is(200);
    console.post("duty-token", "/rails/sepa/pause", &audit_context).await.is(200);
    let mut paths =
        vec!["/rails".to_owned(), "/rails/sepa".to_owned(), "/outboxes".to_owned(), "/overview".to_owned()];
    paths.extend([
        format!("/outboxes/{id}"),
        "/participants/shop-1".to_owned(),
        "/dead-letters".to_owned(),
        "/leases".to_owned(),
    ]);
    for path in paths {
        let body = console.get("reader", &path).await.to_string();
        for personal in ["maria", "duty-token", "the relayer is down"] {
            assert!(!body.contains(personal), "{path} shows {personal}: {body}");
        }
    }
    let log = console.get("duty-token", "/operations").await.to_string();
    assert!(
        log.contains("duty-token: maria") && log.contains("REPAIR"),
        "the audit log names the operator: {log}"
    );
    // The ledger is for every role that reads payments: it names no operator either.
    let kept: String = fixture
        .owner
        .query_one("select string_agg(a::text, ' ') from symphony.payment_outbox_attempts a", &[])
        .await
        .unwrap()
        .get(0);
    assert!(!kept.contains("maria") && kept.contains("an operator"), "{kept}");
}

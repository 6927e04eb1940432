//! How many a claim brings: 0 or less means 100, more than 1000 means 1000.

use symphony_db::error::ClaimError;
use symphony_db::metadata::worker;

use crate::fixture::Fixture;

#[tokio::test]
async fn a_batch_has_the_size_that_the_contract_says() {
    let fixture = Fixture::new().await;
    let many = "select symphony.create_metadata_entry('document', '1', '{}') from generate_series(1, 1100)";
    fixture.root.execute(many, &[]).await.unwrap();
    for (asked, brought) in
        [(0, 100), (-1, 100), (i32::MIN, 100), (1, 1), (100, 100), (1000, 1000), (1001, 1000), (i32::MAX, 1000)]
    {
        fixture.root.batch_execute("begin").await.unwrap();
        let claimed = worker::claim(&fixture.root, &"worker-1".into(), asked).await.unwrap().entries;
        assert_eq!(claimed.len(), brought, "asked for {asked}");
        fixture.root.batch_execute("rollback").await.unwrap();
    }
    let default = "symphony.claim_metadata_batch('worker-1')";
    assert_eq!(fixture.count(default).await, 100);
    // Less than is asked for is all that there is.
    assert_eq!(worker::claim(&fixture.root, &"worker-1".into(), 1000).await.unwrap().entries.len(), 1000);
    assert_eq!(fixture.claim().await.len(), 0);
}

#[tokio::test]
async fn a_name_that_the_database_cannot_hold_is_an_invalid_argument() {
    let fixture = Fixture::new().await;
    for name in ["", " ", "a\0b", &"w".repeat(201)] {
        let error = worker::claim(&fixture.root, &name.into(), 1).await.unwrap_err();
        assert!(matches!(error, ClaimError::InvalidArgument(_)), "{error:?}");
    }
}

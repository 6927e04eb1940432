//! The statements of docs/clients/go-and-java.md run, and its examples have the same ones.

use std::fs;

use symphony_testkit::test_database::Server;
use tokio_postgres::types::ToSql;

use crate::{code_blocks, root};

fn blocks(language: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/clients/go-and-java.md")).unwrap();
    code_blocks(&page).into_iter().filter(|(found, ..)| found == language).map(|(.., text)| text).collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn the_statements_of_the_page_write_their_rows_in_one_transaction() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let mut client = database.connect().await.unwrap();
    let rail = "select symphony.register_payment_rail('sepa', '{}', 'you', 'first rail')";
    client.batch_execute(rail).await.unwrap();
    let payload = r#"{"amount": "10.50", "currency": "EUR"}"#;
    let arrays = ["order-2", "shop-7", "order-2/pay", "sepa", payload].map(|text| vec![text]);
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let arguments: [Vec<&(dyn ToSql + Sync)>; 5] = [
        vec![&"order-1", &"shop-7", &"order-1/pay", &"sepa", &payload],
        arrays.iter().map(|array| array as _).collect(),
        vec![&"order", &"order-1", &"OrderPlaced", &payload],
        vec![&"document", &"contract-1", &payload],
        vec![&traceparent],
    ];
    let statements = blocks("sql");
    assert_eq!(statements.len(), arguments.len());
    let transaction = client.transaction().await.unwrap();
    for (statement, arguments) in statements.iter().zip(arguments) {
        // The parameters are inferred from the casts of the statement: each must be a text.
        let rows = transaction
            .query(statement, &arguments)
            .await
            .unwrap_or_else(|error| panic!("{statement}\n{error:?}"));
        assert_eq!(rows.len(), 1, "{statement}");
    }
    transaction.commit().await.unwrap();
    let written = "select (select count(*) from symphony.payment_outbox_pending), (select count(*) from m10_recovery.outbox),
                          (select count(*) from symphony.metadata_outbox)";
    let written = client.query_one(written, &[]).await.unwrap();
    assert_eq!([0, 1, 2].map(|column| written.get::<_, i64>(column)), [2, 1, 1]);
}

#[test]
fn the_examples_have_the_statement_of_the_page() {
    let statement = one_line(&blocks("sql")[0]);
    assert!(one_line(&blocks("go")[0]).contains(&statement));
    let positional = (1..=5).fold(statement, |text, place| text.replace(&format!("${place}"), "?"));
    assert!(one_line(&blocks("java")[0]).contains(&positional));
}

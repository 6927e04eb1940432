//! How claim time grows with pending rows, held snapshots and ordered rails: ratios to a small table, in one run.
//!
//! `cargo bench -p symphony-proof --bench claim` starts a private PostgreSQL for it. Exits with 1 if a ratio is above 2.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot ask the database has failed")]

use std::{process::ExitCode, time::Instant};

use symphony_testkit::{
    bulk_rows,
    test_database::{Database, Server},
};
use tokio_postgres::Client;

const ROUNDS: usize = 41;

/// One database and a connection to it that has claimed before.
struct Fixture {
    name: &'static str,
    rail: &'static str,
    client: Client,
    _holder: Option<Client>,
    _database: Database,
    millis: Vec<f64>,
}

async fn fixture(server: &Server, name: &'static str, rail: &'static str) -> Fixture {
    let database = server.database().await.unwrap();
    let client = database.connect().await.unwrap();
    bulk_rows::rails(&client).await.unwrap();
    Fixture { name, rail, client, _holder: None, _database: database, millis: Vec::new() }
}

/// Claims 100 that have just become due, times it, and dispatches them.
async fn claim(client: &Client, rail: &str) -> f64 {
    bulk_rows::due_since(client, rail, 100, 2).await.unwrap();
    let began = Instant::now();
    let rows = client
        .query("select outbox_id, lease_token from symphony.claim_outbox_batch(100, 'bench', 60)", &[])
        .await
        .unwrap();
    let millis = began.elapsed().as_secs_f64() * 1e3;
    assert_eq!(rows.len(), 100);
    client
        .execute(
            "select symphony.complete_outbox_batch(b.ids, b.tokens, 'bench', b.states)
             from (select array_agg(outbox_id) as ids, array_agg(lease_token) as tokens, array_agg('DISPATCHED'::symphony.outbox_attempt_state) as states
                   from symphony.payment_outbox_pending
                   where claimed_by = 'bench') b",
            &[],
        )
        .await
        .unwrap();
    millis
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let server = Server::from_env().await.unwrap();
    let mut fixtures = vec![
        fixture(&server, "alone", "plain").await,
        fixture(&server, "1,000,000 scheduled rows", "plain").await,
        fixture(&server, "200,000 due rows on a paused rail", "plain").await,
        fixture(&server, "50,000 dead rows under a held snapshot", "plain").await,
        fixture(&server, "alone, ordered rail", "strict").await,
        fixture(&server, "200,000 behind one ordered head", "strict").await,
    ];
    bulk_rows::scheduled(&fixtures[1].client, "plain", 1_000_000).await.unwrap();
    bulk_rows::due(&fixtures[2].client, "strict", 200_000).await.unwrap();
    let pause = "select symphony.pause_payment_rail('strict', 'bench', 'benchmark')";
    fixtures[2].client.execute(pause, &[]).await.unwrap();
    let holder = fixtures[3]._database.connect().await.unwrap();
    holder.batch_execute("begin isolation level repeatable read; select 1 from pg_class limit 1").await.unwrap();
    bulk_rows::dispatched(&fixtures[3].client, 50_000).await.unwrap();
    fixtures[3]._holder = Some(holder);
    bulk_rows::behind_a_head(&fixtures[5].client, 200_000).await.unwrap();
    bulk_rows::park_all(&fixtures[5].client).await.unwrap();
    // What parking left behind in the index goes with the next vacuum, which is switched off here.
    fixtures[5].client.batch_execute("vacuum symphony.payment_outbox_pending").await.unwrap();
    for fixture in &fixtures {
        claim(&fixture.client, fixture.rail).await;
    }

    // In turn, so that a noisy moment of the machine hits all of them.
    for _ in 0..ROUNDS {
        for fixture in &mut fixtures {
            let millis = claim(&fixture.client, fixture.rail).await;
            fixture.millis.push(millis);
        }
    }

    println!("{:<40} {:>10} {:>8}", "claim of 100", "median ms", "ratio");
    let mut worst: f64 = 0.0;
    for fixture in &fixtures {
        let alone = if fixture.rail == "plain" { &fixtures[0] } else { &fixtures[4] };
        let ratio = median(&fixture.millis) / median(&alone.millis);
        worst = worst.max(ratio);
        println!("{:<40} {:>10.2} {:>8.2}", fixture.name, median(&fixture.millis), ratio);
    }
    if worst > 2.0 {
        eprintln!("claim time grew {worst:.2}× over a small table; the limit is 2×");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

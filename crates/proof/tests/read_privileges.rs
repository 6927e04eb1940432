//! What each role can read: payloads only auditors, lease tokens no role.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use symphony_testkit::test_database::{Database, Server};

/// A payment that was dispatched, one that failed, and one whose failure was resolved, each with its own secret.
async fn database() -> Database {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let owner = database.connect().await.unwrap();
    owner
        .batch_execute(
            r#"select symphony.register_payment_rail('sepa', '{}', 'ana', 'a test');
               select symphony.enqueue_payment_outbox(n, 'acme', n, 'sepa', jsonb_build_object('iban', 'secret of ' || n))
               from unnest(array['paid', 'failed', 'resolved']) n;
               create temp table claimed as select * from symphony.claim_outbox_batch(10, 'w', 60);
               select symphony.complete_outbox_attempt(outbox_id, lease_token, 'w', 'DISPATCHED') from claimed where instruction_id = 'paid';
               select symphony.complete_outbox_attempt(outbox_id, lease_token, 'w', 'FAILED', p_error_code => 'NO_ACCOUNT')
               from claimed where instruction_id <> 'paid';
               select symphony.resolve_payment_outbox(outbox_id, 'SKIPPED', 'ana', 'a test') from claimed where instruction_id = 'resolved'"#,
        )
        .await
        .unwrap();
    database
}

#[tokio::test]
async fn only_auditors_can_read_payloads_and_no_role_lease_tokens() {
    let database = database().await;
    let owner = database.connect().await.unwrap();
    // By the names of the columns; the next test looks for the values, whatever they are called.
    let columns = "select c.oid::regclass::text, a.attname::text
                   from pg_class c
                   join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                   where c.relnamespace in ('symphony'::regnamespace, 'm10_recovery'::regnamespace)
                     and c.relkind in ('r', 'p', 'v', 'm')
                     and a.attname ~ '^(payload|metadata|lease_token|claim_token)$'
                     and has_column_privilege($1, c.oid, a.attnum, 'SELECT')
                   order by 1, 2";
    for role in ["symphony_ingest", "symphony_executor", "symphony_operator", "symphony_readonly", "symphony_auth"]
    {
        let found = owner.query(columns, &[&role]).await.unwrap();
        let found: Vec<(String, String)> = found.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(found, [], "{role}");
    }
    let found = owner.query(columns, &[&"symphony_auditor"]).await.unwrap();
    let found: Vec<(String, String)> = found.iter().map(|row| (row.get(0), row.get(1))).collect();
    let payload = |table: &str| (table.to_owned(), "payload".to_owned());
    assert_eq!(
        found,
        [
            payload("m10_recovery.outbox"),
            payload("symphony.payment_outbox_attempts"),
            payload("symphony.payment_outbox_pending")
        ]
    );
    database.close().await.unwrap();
}

#[tokio::test]
async fn no_role_but_the_auditor_finds_a_payload_in_anything_it_may_select() {
    let database = database().await;
    let owner = database.connect().await.unwrap();
    let relations = "select c.oid::regclass::text,
                            string_agg(quote_ident(a.attname), ', ') filter (where has_column_privilege($1, c.oid, a.attnum, 'SELECT'))
                     from pg_class c
                     join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                     where c.relnamespace in ('symphony'::regnamespace, 'm10_recovery'::regnamespace)
                       and c.relkind in ('r', 'p', 'v', 'm')
                     group by 1
                     order by 1";
    for role in ["symphony_executor", "symphony_operator", "symphony_readonly", "symphony_auditor"] {
        let login = database.connect_as_login(&[role]).await.unwrap();
        let mut met = Vec::new();
        for row in owner.query(relations, &[&role]).await.unwrap() {
            let (relation, columns): (String, Option<String>) = (row.get(0), row.get(1));
            let Some(columns) = columns else { continue };
            let secrets = format!(
                "select count(*) from (select {columns} from {relation}) r where to_jsonb(r)::text like '%secret of%'"
            );
            if login.query_one(&secrets, &[]).await.unwrap().get::<_, i64>(0) > 0 {
                met.push(relation);
            }
        }
        let expected: &[&str] =
            if role == "symphony_auditor" { &["symphony.payment_outbox_attempts"] } else { &[] };
        assert_eq!(met, expected, "{role}");
    }
    database.close().await.unwrap();
}

#[tokio::test]
async fn a_condition_of_the_reader_runs_on_no_row_that_a_view_hides() {
    let database = database().await;
    let operator = database.connect_as_login(&["symphony_operator"]).await.unwrap();
    // Cheaper than anything the view asks, so that a planner that may will ask it first.
    operator
        .batch_execute(
            "set enable_indexscan = off;
             set enable_bitmapscan = off;
             create temp table met (value text);
             create function pg_temp.leak(p_value text) returns boolean language plpgsql cost 0.0000001 as
               'begin insert into pg_temp.met values (p_value); return true; end'",
        )
        .await
        .unwrap();
    let shown = operator
        .query("select instruction_id from symphony.payment_outbox_dlq where pg_temp.leak(instruction_id)", &[])
        .await
        .unwrap();
    assert_eq!(shown.len(), 1);
    let met = operator.query("select distinct value from pg_temp.met order by value", &[]).await.unwrap();
    let met: Vec<String> = met.iter().map(|row| row.get(0)).collect();
    assert_eq!(met, ["failed"], "the condition saw what the view hides");

    // Every view that filters and that a role may read holds back conditions; one that only leaves out columns need not.
    let filtering = "select string_agg(c.oid::regclass::text, ', ' order by c.relname) from pg_class c
                     where c.relnamespace in ('symphony'::regnamespace, 'm10_recovery'::regnamespace)
                       and c.relkind = 'v'
                       and exists (select from aclexplode(c.relacl) e where e.grantee <> c.relowner)
                       and pg_get_viewdef(c.oid) ~* '\\mwhere\\M'
                       -- One row of totals: no condition is pushed below an aggregate.
                       and pg_get_viewdef(c.oid) !~* '\\msum\\('
                       and not coalesce(c.reloptions::text[] @> array['security_barrier=true'], false)";
    let owner = database.connect().await.unwrap();
    let open: Option<String> = owner.query_one(filtering, &[]).await.unwrap().get(0);
    assert_eq!(
        open.as_deref(),
        Some("symphony.outbox_operational_status"),
        "its conditions are of what is beside a row, and hide none"
    );
    database.close().await.unwrap();
}

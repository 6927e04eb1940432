//! The ledger is append-only, and the identity of a pending row never changes.

use tokio_postgres::Client;

use super::evidence::{Evidence, Failure, Recorder, describe, require, sqlstate};
use super::sessions::{Outcome, Payment, Sessions, claim, complete, count, enqueue, set_rail, text};
use symphony_testkit::test_database::Database;

/// Every role, the owner among them, and `none` for a superuser.
pub(super) const EVERY_ROLE: [&str; 8] = [
    "symphony_ingest",
    "symphony_executor",
    "symphony_operator",
    "symphony_readonly",
    "symphony_auditor",
    "symphony_auth",
    "symphony_control",
    "none",
];

/// A trigger refuses the owner and a superuser; the others lack the privilege.
fn refusal(role: &str) -> &'static str {
    if matches!(role, "symphony_control" | "none") { "P0001" } else { "42501" }
}

/// Tries statements as every role, with both values of session_replication_role.
pub(super) async fn refused_to_every_role(database: &Database, statements: &[&str]) -> Result<usize, Failure> {
    let mut tried = 0;
    for replication in ["origin", "replica"] {
        for role in EVERY_ROLE {
            let client = database.connect().await?;
            let become_role = format!("set session_replication_role = {replication}; set role {role}");
            client.batch_execute(&become_role).await?;
            for statement in statements {
                let attempt = || format!("{statement}; as {role}, session_replication_role {replication}");
                must_fail(&client, statement, refusal(role), attempt).await?;
                tried += 1;
            }
        }
    }
    Ok(tried)
}

async fn must_fail(
    client: &Client,
    statement: &str,
    with: &str,
    tried: impl Fn() -> String,
) -> Result<(), Failure> {
    match client.batch_execute(statement).await {
        Ok(()) => Err(Failure { tried: tried(), expected: with.into(), happened: "allowed".into() }),
        Err(error) if sqlstate(&error) == with => Ok(()),
        Err(error) => Err(Failure { tried: tried(), expected: with.into(), happened: describe(&error) }),
    }
}

/// Proof 1: `no_role_can_change_the_ledger`.
pub(super) async fn is_append_only(database: &Database) -> Result<Evidence, Failure> {
    const LEDGER_HASH: &str = "select count(*) || ' rows, ' || md5(string_agg(a::text, '|' order by attempt_id))
                               from symphony.payment_outbox_attempts a";
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    for name in ["a", "b"] {
        enqueue(&sessions.ingest, &Payment::new(name, "alice", "bank")).await?;
    }
    let leases = claim(&sessions.executor, 10, "worker").await?;
    for (lease, outcome) in leases.iter().zip([Outcome::DISPATCHED, Outcome::RETRY_NOW]) {
        complete(&sessions.executor, lease, outcome).await?;
    }
    let rows = count(&sessions.owner, "select count(*) from symphony.payment_outbox_attempts", &[]).await?;
    recorder.check_equal("completing two attempts through the functions", "rows in the ledger", 2, rows)?;
    let before = text(&sessions.owner, LEDGER_HASH, &[]).await?;

    let statements = [
        "update symphony.payment_outbox_attempts set error_message = 'changed'",
        "update symphony.payment_outbox_attempts set error_message = 'changed' where false",
        "delete from symphony.payment_outbox_attempts",
        "delete from symphony.payment_outbox_attempts where false",
        "truncate symphony.payment_outbox_attempts",
        "truncate symphony.payment_outbox_attempts, symphony.payment_outbox_operations cascade",
        "insert into symphony.payment_outbox_attempts select * from symphony.payment_outbox_attempts
         on conflict (outbox_id, attempt_no) do update set error_message = 'changed'",
        "merge into symphony.payment_outbox_attempts a using symphony.payment_outbox_attempts b
         on (a.outbox_id, a.attempt_no) = (b.outbox_id, b.attempt_no) when matched then delete",
    ];
    let tried = refused_to_every_role(database, &statements).await?;
    recorder.check(
        format!("{} ways to change the ledger, each as 8 roles, triggers in 2 modes", statements.len()),
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused"),
        tried == statements.len() * EVERY_ROLE.len() * 2,
    )?;

    partitions_are_append_only(database, &sessions.owner, &mut recorder).await?;

    let statements = [
        "update symphony.payment_outbox_operations set reason = 'changed'",
        "delete from symphony.payment_outbox_operations",
        "truncate symphony.payment_outbox_operations",
        "update symphony.payment_outbox_operations_log set reason = 'changed'",
        "delete from symphony.payment_outbox_operations_log",
    ];
    let tried = refused_to_every_role(database, &statements).await?;
    recorder.check(
        format!("{} ways to change the audit log, also through its view", statements.len()),
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused"),
        tried == statements.len() * EVERY_ROLE.len() * 2,
    )?;

    // A role that is granted the privilege by mistake is still refused by the trigger.
    let superuser = database.connect().await?;
    let careless = "grant all on symphony.payment_outbox_attempts to symphony_executor";
    superuser.batch_execute(careless).await?;
    let executor = database.connect_as("symphony_executor").await?;
    for statement in ["delete from symphony.payment_outbox_attempts", "truncate symphony.payment_outbox_attempts"]
    {
        let refused = executor.batch_execute(statement).await;
        recorder.check_refused(
            format!("{statement}; by an executor with ALL granted by mistake"),
            "P0001",
            refused,
        )?;
    }

    let after = text(&sessions.owner, LEDGER_HASH, &[]).await?;
    recorder.check_equal("all of these", "the ledger", before, after)?;
    let lease = claim(&sessions.executor, 10, "worker").await?;
    require(|| "claiming what is left".into(), 1, lease.len())?;
    complete(&sessions.executor, &lease[0], Outcome::DISPATCHED).await?;
    let rows = count(&sessions.owner, "select count(*) from symphony.payment_outbox_attempts", &[]).await?;
    recorder.check_equal("completing one more attempt afterwards", "rows in the ledger", 3, rows)?;
    Ok(recorder.finish())
}

/// The same for each partition of the ledger directly, among them one that was just added.
async fn partitions_are_append_only(
    database: &Database,
    owner: &Client,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    const NAMES: &str =
        "select format('symphony.%I', partition_name) from symphony.payment_ledger_partitions() order by 1";
    let added = "select cardinality(created)::bigint from symphony.extend_ledger_at(now() + interval '7 days', 0)";
    let added = count(owner, added, &[]).await?;
    recorder.check_equal("adding the partition that a week later needs", "partitions added", 1, added)?;
    let names: Vec<String> = owner.query(NAMES, &[]).await?.iter().map(|row| row.get(0)).collect();
    let statements: Vec<String> = names
        .iter()
        .flat_map(|name| {
            [
                format!("update {name} set error_message = 'changed'"),
                format!("update {name} set error_message = 'changed' where false"),
                format!("delete from {name}"),
                format!("delete from {name} where false"),
                format!("truncate {name}"),
                format!(
                    "insert into {name} select * from {name}
                     on conflict (outbox_id, attempt_no) do update set error_message = 'changed'"
                ),
            ]
        })
        .collect();
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    let tried = refused_to_every_role(database, &statements).await?;
    recorder.check(
        format!(
            "6 ways to change each of the {} partitions directly, as 8 roles, triggers in 2 modes",
            names.len()
        ),
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused"),
        tried == statements.len() * EVERY_ROLE.len() * 2,
    )?;
    let runtime = &EVERY_ROLE[..6];
    for role in runtime {
        let client = database.connect().await?;
        client.batch_execute(&format!("set role {role}")).await?;
        for name in &names {
            for statement in [format!("insert into {name} default values"), format!("select from {name}")] {
                must_fail(&client, &statement, "42501", || format!("{statement}; as {role}")).await?;
            }
        }
    }
    recorder.check(
        format!("reading and writing each partition directly, as {} roles", runtime.len()),
        "42501",
        "each refused with it",
        true,
    )
}

/// Proof 2: `no_role_can_truncate_pending_or_change_what_identifies_a_row`.
pub(super) async fn pending_keeps_its_identity(database: &Database) -> Result<Evidence, Failure> {
    const PENDING_HASH: &str = "select count(*) || ' rows, ' || md5(string_agg(p::text, '|' order by outbox_id))
                                from symphony.payment_outbox_pending p";
    const MAY_CHANGE: [&str; 10] = [
        "attempt_count",
        "next_attempt_at",
        "claimed_by",
        "claimed_at",
        "lease_token",
        "lease_expires_at",
        "claimed_epoch",
        "claimed_endpoint",
        "parked",
        "traceparent",
    ];
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    set_rail(&sessions.operator, "other", "{}").await?;
    for name in ["a", "b"] {
        enqueue(&sessions.ingest, &Payment::new(name, "alice", "bank")).await?;
    }
    sessions.owner.execute("update symphony.payment_outbox_pending set attempt_count = 3", &[]).await?;
    let before = text(&sessions.owner, PENDING_HASH, &[]).await?;

    let statements = [
        "truncate symphony.payment_outbox_pending",
        "truncate symphony.payment_outbox_pending cascade",
        "truncate symphony.payment_rail_in_flight, symphony.payment_outbox_pending",
    ];
    let tried = refused_to_every_role(database, &statements).await?;
    recorder.check(
        format!("{} forms of TRUNCATE on pending, each as 8 roles, triggers in 2 modes", statements.len()),
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused"),
        tried == statements.len() * EVERY_ROLE.len() * 2,
    )?;

    let columns = "select a.attname::text, format_type(coalesce(nullif(t.typbasetype, 0), t.oid), null)
                   from pg_attribute a join pg_type t on t.oid = a.atttypid
                   where a.attrelid = 'symphony.payment_outbox_pending'::regclass and a.attnum > 0 and not a.attisdropped";
    let mut statements =
        vec!["update symphony.payment_outbox_pending set attempt_count = attempt_count - 1".to_owned()];
    for row in sessions.owner.query(columns, &[]).await? {
        let (column, kind): (String, String) = (row.get(0), row.get(1));
        if MAY_CHANGE.contains(&column.as_str()) {
            continue;
        }
        let other = match kind.as_str() {
            "uuid" => "gen_random_uuid()".to_owned(),
            "text" if column == "rail_type" => "'other'".to_owned(),
            "text" => format!("{column} || '-changed'"),
            "bigint" => format!("{column} + 100"),
            "timestamp with time zone" => format!("coalesce({column}, now()) - interval '1 second'"),
            _ => r#"'{"amount": "99999.00"}'"#.to_owned(),
        };
        statements.push(format!("update symphony.payment_outbox_pending set {column} = {other}"));
    }
    require(|| "counting the columns that identify a row, and one that only rises".into(), 12, statements.len())?;
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    let tried = refused_to_every_role(database, &statements).await?;
    recorder.check(
        "changing each of the 11 columns that identify a row, and lowering attempt_count",
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused"),
        tried == statements.len() * EVERY_ROLE.len() * 2,
    )?;
    let after = text(&sessions.owner, PENDING_HASH, &[]).await?;
    recorder.check_equal("all of these", "pending", before, after)?;

    let moved =
        "update symphony.payment_outbox_pending set next_attempt_at = now(), attempt_count = attempt_count + 1";
    let moved = sessions.owner.execute(moved, &[]).await?;
    recorder.check_equal(
        "changing next_attempt_at and raising attempt_count as the owner",
        "rows changed",
        2,
        moved,
    )?;
    Ok(recorder.finish())
}

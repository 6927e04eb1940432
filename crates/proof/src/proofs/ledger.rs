//! The ledger takes INSERT and nothing else, and pending rows stay what they were committed as.

use tokio_postgres::Client;

use super::crew::{Crew, Order, Outcome, claim, complete, count, enqueue, set_rail, text};
use super::evidence::{Evidence, Failure, Trial, code, require, words};
use crate::kit::scratch::Database;

/// Everyone there is: the roles, the owner among them, and a superuser.
pub(super) const EVERYONE: [&str; 8] = [
    "symphony_ingest",
    "symphony_executor",
    "symphony_operator",
    "symphony_readonly",
    "symphony_auditor",
    "symphony_auth",
    "symphony_control",
    "none",
];

/// Refused by a trigger where ownership or superuser rights would allow it, else by the missing right.
fn refusal(role: &str) -> &'static str {
    if matches!(role, "symphony_control" | "none") { "P0001" } else { "42501" }
}

/// Tries statements as everyone, with triggers in both modes a superuser can switch to.
pub(super) async fn refused_to_everyone(database: &Database, statements: &[&str]) -> Result<usize, Failure> {
    let mut tried = 0;
    for replication in ["origin", "replica"] {
        for role in EVERYONE {
            let client = database.connect().await?;
            let become_role = format!("set session_replication_role = {replication}; set role {role}");
            client.batch_execute(&become_role).await?;
            for statement in statements {
                let as_whom = || format!("{statement}; as {role}, session_replication_role {replication}");
                must_fail(&client, statement, refusal(role), as_whom).await?;
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
        Ok(()) => Err(Failure { tried: tried(), expected: with.into(), happened: "it was allowed".into() }),
        Err(error) if code(&error) == with => Ok(()),
        Err(error) => Err(Failure { tried: tried(), expected: with.into(), happened: words(&error) }),
    }
}

/// Proof 1.
pub(super) async fn is_append_only(database: &Database) -> Result<Evidence, Failure> {
    const LEDGER_HASH: &str = "select count(*) || ' rows, ' || md5(string_agg(a::text, '|' order by attempt_id))
                               from symphony.payment_outbox_attempts a";
    let mut trial = Trial::default();
    let crew = Crew::hire(database).await?;
    set_rail(&crew.operator, "bank", "{}").await?;
    for name in ["a", "b"] {
        enqueue(&crew.ingest, &Order::new(name, "alice", "bank")).await?;
    }
    let leases = claim(&crew.executor, 10, "worker").await?;
    for (lease, outcome) in leases.iter().zip([Outcome::DISPATCHED, Outcome::AGAIN]) {
        complete(&crew.executor, lease, outcome).await?;
    }
    let rows = count(&crew.owner, "select count(*) from symphony.payment_outbox_attempts", &[]).await?;
    trial.same("completing two attempts through the functions", "rows in the ledger", 2, rows)?;
    let before = text(&crew.owner, LEDGER_HASH, &[]).await?;

    let statements = [
        "update symphony.payment_outbox_attempts set error_message = 'changed'",
        "update symphony.payment_outbox_attempts set error_message = 'changed' where false",
        "delete from symphony.payment_outbox_attempts",
        "delete from symphony.payment_outbox_attempts where false",
        "truncate symphony.payment_outbox_attempts",
        "truncate symphony.payment_outbox_attempts, symphony.payment_outbox_operations cascade",
        "insert into symphony.payment_outbox_attempts select * from symphony.payment_outbox_attempts
         on conflict (attempt_id) do update set error_message = 'changed'",
        "merge into symphony.payment_outbox_attempts a using symphony.payment_outbox_attempts b on a.attempt_id = b.attempt_id
         when matched then delete",
    ];
    let tried = refused_to_everyone(database, &statements).await?;
    trial.holds(
        format!("{} ways to change the ledger, each as 8 roles, triggers in 2 modes", statements.len()),
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused so"),
        tried == statements.len() * EVERYONE.len() * 2,
    )?;

    let statements = [
        "update symphony.payment_outbox_operations set reason = 'changed'",
        "delete from symphony.payment_outbox_operations",
        "truncate symphony.payment_outbox_operations",
        "update symphony.payment_outbox_operations_log set reason = 'changed'",
        "delete from symphony.payment_outbox_operations_log",
    ];
    let tried = refused_to_everyone(database, &statements).await?;
    trial.holds(
        format!("{} ways to change the log of operations, also through its view", statements.len()),
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused so"),
        tried == statements.len() * EVERYONE.len() * 2,
    )?;

    // Whoever is given the right by mistake still runs into the trigger.
    let superuser = database.connect().await?;
    let careless = "grant all on symphony.payment_outbox_attempts to symphony_executor";
    superuser.batch_execute(careless).await?;
    let executor = database.connect_as("symphony_executor").await?;
    for statement in ["delete from symphony.payment_outbox_attempts", "truncate symphony.payment_outbox_attempts"]
    {
        let refused = executor.batch_execute(statement).await;
        trial.refused(format!("{statement}; by an executor with ALL granted by mistake"), "P0001", refused)?;
    }

    let after = text(&crew.owner, LEDGER_HASH, &[]).await?;
    trial.same("all of it", "the ledger", before, after)?;
    let lease = claim(&crew.executor, 10, "worker").await?;
    require(|| "claiming what is left".into(), 1, lease.len())?;
    complete(&crew.executor, &lease[0], Outcome::DISPATCHED).await?;
    let rows = count(&crew.owner, "select count(*) from symphony.payment_outbox_attempts", &[]).await?;
    trial.same("completing one more attempt afterwards", "rows in the ledger", 3, rows)?;
    Ok(trial.evidence())
}

/// Proof 2.
pub(super) async fn pending_keeps_its_identity(database: &Database) -> Result<Evidence, Failure> {
    const PENDING_HASH: &str = "select count(*) || ' rows, ' || md5(string_agg(p::text, '|' order by outbox_id))
                                from symphony.payment_outbox_pending p";
    const MAY_CHANGE: [&str; 8] = [
        "attempt_count",
        "next_attempt_at",
        "claimed_by",
        "claimed_at",
        "lease_token",
        "lease_expires_at",
        "parked",
        "traceparent",
    ];
    let mut trial = Trial::default();
    let crew = Crew::hire(database).await?;
    set_rail(&crew.operator, "bank", "{}").await?;
    set_rail(&crew.operator, "other", "{}").await?;
    for name in ["a", "b"] {
        enqueue(&crew.ingest, &Order::new(name, "alice", "bank")).await?;
    }
    crew.owner.execute("update symphony.payment_outbox_pending set attempt_count = 3", &[]).await?;
    let before = text(&crew.owner, PENDING_HASH, &[]).await?;

    let statements = [
        "truncate symphony.payment_outbox_pending",
        "truncate symphony.payment_outbox_pending cascade",
        "truncate symphony.payment_rail_seats, symphony.payment_outbox_pending",
    ];
    let tried = refused_to_everyone(database, &statements).await?;
    trial.holds(
        format!("{} forms of TRUNCATE on pending, each as 8 roles, triggers in 2 modes", statements.len()),
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused so"),
        tried == statements.len() * EVERYONE.len() * 2,
    )?;

    let columns = "select a.attname::text, format_type(coalesce(nullif(t.typbasetype, 0), t.oid), null)
                   from pg_attribute a join pg_type t on t.oid = a.atttypid
                   where a.attrelid = 'symphony.payment_outbox_pending'::regclass and a.attnum > 0 and not a.attisdropped";
    let mut statements =
        vec!["update symphony.payment_outbox_pending set attempt_count = attempt_count - 1".to_owned()];
    for row in crew.owner.query(columns, &[]).await? {
        let (column, kind): (String, String) = (row.get(0), row.get(1));
        if MAY_CHANGE.contains(&column.as_str()) {
            continue;
        }
        let other = match kind.as_str() {
            "uuid" => "gen_random_uuid()".to_owned(),
            "text" if column == "rail_type" => "'other'".to_owned(),
            "text" => format!("{column} || '-changed'"),
            "bigint" => format!("{column} + 100"),
            "timestamp with time zone" => format!("{column} - interval '1 second'"),
            _ => r#"'{"amount": "99999.00"}'"#.to_owned(),
        };
        statements.push(format!("update symphony.payment_outbox_pending set {column} = {other}"));
    }
    require(|| "counting the columns that identify a row, and one that only rises".into(), 10, statements.len())?;
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    let tried = refused_to_everyone(database, &statements).await?;
    trial.holds(
        "changing each of the 9 columns that identify a row, and lowering attempt_count",
        "P0001 for the owner and a superuser, 42501 for the others",
        format!("{tried} of {tried} were refused so"),
        tried == statements.len() * EVERYONE.len() * 2,
    )?;
    let after = text(&crew.owner, PENDING_HASH, &[]).await?;
    trial.same("all of it", "pending", before, after)?;

    let moved =
        "update symphony.payment_outbox_pending set next_attempt_at = now(), attempt_count = attempt_count + 1";
    let moved = crew.owner.execute(moved, &[]).await?;
    trial.same("moving time and raising attempt_count as the owner", "rows changed", 2, moved)?;
    Ok(trial.evidence())
}

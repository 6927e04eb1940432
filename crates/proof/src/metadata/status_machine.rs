//! Every pair of statuses, tried by UPDATE: as the owner, as a superuser, with session_replication_role = replica and
//! as every role.

use std::str::FromStr as _;

use symphony_db::metadata::Status;
use tokio_postgres::Client;

use super::super::evidence::{Failure, Recorder, describe, require, sqlstate};
use super::super::sessions::{Sessions, text};
use super::calls::{entry_in, row, status};
use symphony_testkit::test_database::Database;

/// Sets every column that a status needs, so that only the status machine can refuse it.
const UPDATE_STATUS: &str = "update symphony.metadata_outbox
    set status = $2::text::symphony.metadata_status,
        claim_token = case when $2 = 'PROCESSING' then gen_random_uuid() end,
        claimed_by = 'a worker', processing_started_at = now(),
        processed_at = case when $2 = 'PUBLISHED' then now() end,
        last_error = 'by insert',
        next_retry_at = case when $2 = 'FAILED' then now() + interval '1 hour' end
    where id = $1::text::uuid";

const ROLES: [&str; 6] = [
    "symphony_ingest",
    "symphony_executor",
    "symphony_operator",
    "symphony_readonly",
    "symphony_auditor",
    "symphony_auth",
];

pub(super) async fn by_update(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    same_definition_in_sql(&sessions.owner, recorder).await?;
    let superuser = database.connect().await?;
    let replica = database.connect().await?;
    replica.batch_execute("set session_replication_role = replica").await?;
    for (who, client) in
        [("the owner", &sessions.owner), ("a superuser", &superuser), ("a superuser as a replica", &replica)]
    {
        let (mut allowed, mut refused) = (0, 0);
        for from in Status::ALL {
            for to in Status::ALL {
                let (id, _) = entry_in(&sessions, who, *from).await?;
                if try_transition(client, &sessions.owner, &id, *from, *to, who).await? {
                    allowed += 1;
                } else {
                    refused += 1;
                }
            }
        }
        recorder.check(
            format!("all 25 pairs of statuses by UPDATE, as {who}"),
            "5 allowed, 20 refused with P7007 and nothing changed, each as Status::can_transition_to says",
            format!("{allowed} allowed, {refused} refused with P7007, each as Status::can_transition_to says"),
            allowed == 5 && refused == 20,
        )?;
    }
    for role in ROLES {
        let client = database.connect_as(role).await?;
        for from in Status::ALL {
            let (id, _) = entry_in(&sessions, role, *from).await?;
            let before = row(&sessions.owner, &id).await?;
            for to in Status::ALL {
                let refused = client.execute(UPDATE_STATUS, &[&id, &to.as_str()]).await;
                let happened = refused.as_ref().err().map_or("allowed", |error| sqlstate(error));
                require(|| format!("{from} to {to} as {role}"), "42501", happened)?;
            }
            require(|| format!("reading it after {role}"), before, row(&sessions.owner, &id).await?)?;
        }
        recorder.check(
            format!("all 25 pairs of statuses by UPDATE, as {role}"),
            "25 refused with 42501, nothing changed",
            "25 refused with 42501, nothing changed",
            true,
        )?;
    }
    Ok(())
}

/// Whether the database allowed the transition, which must equal `Status::can_transition_to`.
async fn try_transition(
    client: &Client,
    owner: &Client,
    id: &str,
    from: Status,
    to: Status,
    who: &str,
) -> Result<bool, Failure> {
    let before = row(owner, id).await?;
    let moved = client.execute(UPDATE_STATUS, &[&id, &to.as_str()]).await;
    let legal = from.can_transition_to(to);
    let tried = || format!("{from} to {to}, as {who}");
    match moved {
        Ok(rows) => {
            require(tried, format!("legal: {legal}, rows: 1"), format!("legal: true, rows: {rows}"))?;
            let now = status(owner, id).await?;
            require(tried, to, Status::from_str(&now).unwrap_or(from))?;
        }
        Err(error) => {
            require(|| format!("{}: {}", tried(), describe(&error)), "P7007", sqlstate(&error))?;
            require(tried, false, legal)?;
            require(tried, before, row(owner, id).await?)?;
        }
    }
    Ok(legal)
}

/// Compares the definition in SQL with the one in Rust.
async fn same_definition_in_sql(owner: &Client, recorder: &mut Recorder) -> Result<(), Failure> {
    let transitions = "select string_agg(format('%s→%s', f, t), ', ' order by f, t)
                  from unnest(enum_range(null::symphony.metadata_status)) f, unnest(enum_range(null::symphony.metadata_status)) t
                  where symphony.metadata_move_is_legal(f, t)";
    let mut ours = Vec::new();
    for from in Status::ALL {
        for to in Status::ALL {
            if from.can_transition_to(*to) {
                ours.push(format!("{from}→{to}"));
            }
        }
    }
    recorder.check_equal(
        "reading the transitions of symphony.metadata_move_is_legal and of Status::can_transition_to",
        "transitions",
        ours.join(", "),
        text(owner, transitions, &[]).await?,
    )
}

/// An entry can only be inserted as PENDING.
pub(super) async fn initial_status(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    let insert = "insert into symphony.metadata_outbox
        (id, entity_id, entity_type, metadata, status, max_retries, last_error, next_retry_at, processing_started_at, claim_token,
         claimed_by, processed_at, created_at, updated_at)
        select gen_random_uuid(), 'begins', 'document', '{}', $1::text::symphony.metadata_status, 3, 'by insert',
               case when $1 = 'FAILED' then now() end, now(), case when $1 = 'PROCESSING' then gen_random_uuid() end, 'a worker',
               case when $1 = 'PUBLISHED' then now() end, clock_timestamp(), now()";
    let replica = database.connect().await?;
    replica.batch_execute("set session_replication_role = replica").await?;
    for (who, client) in [("the owner", &sessions.owner), ("a superuser as a replica", &replica)] {
        for status in Status::ALL {
            let inserted = client.execute(insert, &[&status.as_str()]).await;
            let tried = format!("inserting an entry as {status}, as {who}");
            if *status == Status::Pending {
                let rows = inserted?;
                recorder.check_equal(tried, "rows", 1, rows)?;
            } else {
                recorder.check_refused(tried, "P7007", inserted)?;
            }
        }
    }
    Ok(())
}

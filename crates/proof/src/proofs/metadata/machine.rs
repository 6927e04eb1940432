//! Every pair of statuses, tried by hand: as the owner, as a superuser, as a replica and as every role.

use std::str::FromStr as _;

use symphony_outbox::metadata::Status;
use tokio_postgres::Client;

use super::super::crew::{Crew, text};
use super::super::evidence::{Failure, Trial, code, require, words};
use super::crew::{entry_in, row, status};
use crate::kit::scratch::Database;

/// Sets everything that a status needs, so that the machine alone can refuse it.
const MOVE: &str = "update symphony.metadata_outbox
    set status = $2::text::symphony.metadata_status,
        claim_token = case when $2 = 'PROCESSING' then gen_random_uuid() end,
        claimed_by = 'somebody', processing_started_at = now(),
        processed_at = case when $2 = 'PUBLISHED' then now() end,
        last_error = 'by hand',
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

pub(super) async fn by_hand(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    as_sql_says(&crew.owner, trial).await?;
    let superuser = database.connect().await?;
    let replica = database.connect().await?;
    replica.batch_execute("set session_replication_role = replica").await?;
    for (who, client) in
        [("the owner", &crew.owner), ("a superuser", &superuser), ("a superuser as a replica", &replica)]
    {
        let (mut allowed, mut refused) = (0, 0);
        for from in Status::ALL {
            for to in Status::ALL {
                let (id, _) = entry_in(&crew, who, *from).await?;
                if try_move(client, &crew.owner, &id, *from, *to, who).await? {
                    allowed += 1;
                } else {
                    refused += 1;
                }
            }
        }
        trial.holds(
            format!("all 25 pairs of statuses by UPDATE, as {who}"),
            "5 allowed, 20 refused with P7007 and nothing changed, each as Status::can_transition_to says",
            format!("{allowed} allowed, {refused} refused with P7007, each as Rust says"),
            allowed == 5 && refused == 20,
        )?;
    }
    for role in ROLES {
        let client = database.connect_as(role).await?;
        for from in Status::ALL {
            let (id, _) = entry_in(&crew, role, *from).await?;
            let before = row(&crew.owner, &id).await?;
            for to in Status::ALL {
                let refused = client.execute(MOVE, &[&id, &to.as_str()]).await;
                let happened = refused.as_ref().err().map_or("allowed", |error| code(error));
                require(|| format!("{from} to {to} as {role}"), "42501", happened)?;
            }
            require(|| format!("looking at it after {role}"), before, row(&crew.owner, &id).await?)?;
        }
        trial.holds(
            format!("all 25 pairs of statuses by UPDATE, as {role}"),
            "25 refused with 42501, nothing changed",
            "25 refused with 42501, nothing changed",
            true,
        )?;
    }
    Ok(())
}

/// Whether the move was allowed, which must be what Rust says.
async fn try_move(
    client: &Client,
    owner: &Client,
    id: &str,
    from: Status,
    to: Status,
    who: &str,
) -> Result<bool, Failure> {
    let before = row(owner, id).await?;
    let moved = client.execute(MOVE, &[&id, &to.as_str()]).await;
    let legal = from.can_transition_to(to);
    let tried = || format!("{from} to {to}, as {who}");
    match moved {
        Ok(rows) => {
            require(tried, format!("legal: {legal}, rows: 1"), format!("legal: true, rows: {rows}"))?;
            let now = status(owner, id).await?;
            require(tried, to, Status::from_str(&now).unwrap_or(from))?;
        }
        Err(error) => {
            require(|| format!("{}: {}", tried(), words(&error)), "P7007", code(&error))?;
            require(tried, false, legal)?;
            require(tried, before, row(owner, id).await?)?;
        }
    }
    Ok(legal)
}

/// The one definition in SQL, compared with the one in Rust.
async fn as_sql_says(owner: &Client, trial: &mut Trial) -> Result<(), Failure> {
    let arrows = "select string_agg(format('%s→%s', f, t), ', ' order by f, t)
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
    trial.same(
        "reading the arrows of symphony.metadata_move_is_legal and those of Status::can_transition_to",
        "arrows",
        ours.join(", "),
        text(owner, arrows, &[]).await?,
    )
}

/// An entry can only be inserted as PENDING.
pub(super) async fn beginnings(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    let insert = "insert into symphony.metadata_outbox
        (id, entity_id, entity_type, metadata, status, max_retries, last_error, next_retry_at, processing_started_at, claim_token,
         claimed_by, processed_at, created_at, updated_at)
        select gen_random_uuid(), 'begins', 'document', '{}', $1::text::symphony.metadata_status, 3, 'by hand',
               case when $1 = 'FAILED' then now() end, now(), case when $1 = 'PROCESSING' then gen_random_uuid() end, 'somebody',
               case when $1 = 'PUBLISHED' then now() end, clock_timestamp(), now()";
    let replica = database.connect().await?;
    replica.batch_execute("set session_replication_role = replica").await?;
    for (who, client) in [("the owner", &crew.owner), ("a superuser as a replica", &replica)] {
        for status in Status::ALL {
            let inserted = client.execute(insert, &[&status.as_str()]).await;
            let tried = format!("inserting an entry as {status}, as {who}");
            if *status == Status::Pending {
                let rows = inserted?;
                trial.same(tried, "rows", 1, rows)?;
            } else {
                trial.refused(tried, "P7007", inserted)?;
            }
        }
    }
    Ok(())
}

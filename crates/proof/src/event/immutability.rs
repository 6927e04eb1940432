//! Immutability: recorded errors stay, cleaned of secrets; published events cannot be changed or deleted.

use super::super::evidence::{Failure, Recorder};
use super::super::sessions::{Sessions, text};
use super::calls::{claim, complete, make_due, publish};
use symphony_testkit::test_database::Database;

pub(super) async fn errors(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    let id = publish(&sessions.ingest, "order", "1").await?;
    for (error, success) in [
        (Some("ann@example.org is\nunknown"), false),
        (Some("postgres://me:secret@broker/x: card 4111 1111 1111 1111"), false),
        (None, false),
        (Some("  \n "), false),
        (Some("delivered at the second try"), true),
    ] {
        claim(&sessions.executor, "A", 10).await?;
        complete(&sessions.executor, id, "A", success, error).await?;
        make_due(&sessions.owner).await?;
    }
    for role in ["symphony_operator", "symphony_readonly", "symphony_auditor"] {
        let reader = database.connect_as(role).await?;
        let kept = "select string_agg(format('%s %s %s', retry_count, succeeded, error), '; ' order by error_id)
                    from m10_recovery.outbox_errors where event_id = $1";
        let kept = text(&reader, kept, &[&id]).await?;
        recorder.check_equal(
            format!("completing five times, three times with an error, and reading as {role}"),
            "errors",
            "1 f [e-mail] is unknown; 2 f postgres://[credentials]@broker/x: card [number]; 4 t delivered at the second try"
                .to_owned(),
            kept,
        )?;
    }
    let superuser = database.connect().await?;
    superuser.batch_execute("set session_replication_role = replica").await?;
    for (who, client) in [("the owner", &sessions.owner), ("a superuser as a replica", &superuser)] {
        for statement in [
            "update m10_recovery.outbox_errors set error = 'nothing'",
            "delete from m10_recovery.outbox_errors",
            "truncate m10_recovery.outbox_errors",
        ] {
            recorder.check_refused(
                format!("{statement}, as {who}"),
                "P0001",
                client.execute(statement, &[]).await,
            )?;
        }
    }
    Ok(())
}

pub(super) async fn events(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    let open = publish(&sessions.ingest, "order", "1").await?;
    claim(&sessions.executor, "A", 1).await?;
    complete(&sessions.executor, open, "A", false, None).await?;
    let superuser = database.connect().await?;
    superuser.batch_execute("set session_replication_role = replica").await?;
    for (who, client) in [("the owner", &sessions.owner), ("a superuser as a replica", &superuser)] {
        for statement in [
            "truncate m10_recovery.outbox",
            "delete from m10_recovery.outbox where processed_at is null",
            "update m10_recovery.outbox set payload = '{}' where processed_at is null",
            "update m10_recovery.outbox set aggregate_id = 'another' where processed_at is null",
            "update m10_recovery.outbox set event_type = 'another' where processed_at is null",
            "update m10_recovery.outbox set created_at = '1999-01-01' where processed_at is null",
            "update m10_recovery.outbox set retry_count = 0 where processed_at is null",
            "update m10_recovery.outbox set processed_at = null where processed_at is not null",
            "update m10_recovery.outbox set claimed_by = 'another' where processed_at is not null",
        ] {
            recorder.check_refused(
                format!("{statement}, as {who}"),
                "P0001",
                client.execute(statement, &[]).await,
            )?;
        }
    }
    Ok(())
}

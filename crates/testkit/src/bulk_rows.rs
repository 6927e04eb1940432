//! Fills tables with many rows, so that a bad query plan becomes visible.
//!
//! One statement inserts hundreds of thousands of rows as the owner, without the enqueue functions. Tables have no
//! statistics, as before the first autovacuum.

use tokio_postgres::{Client, Error};

/// Registers two rails, `plain` and `strict`; the second is ordered.
///
/// # Errors
/// Any error of the database.
pub async fn rails(client: &Client) -> Result<(), Error> {
    client
        .batch_execute(
            "alter table symphony.payment_outbox_pending set (autovacuum_enabled = off);
             do $$
             declare v_name text;
             begin
               for v_name in select partition_name from symphony.payment_ledger_partitions() loop
                 execute format('alter table symphony.%I set (autovacuum_enabled = off)', v_name);
               end loop;
             end $$;
             select symphony.register_payment_rail('plain', '{}', 'bulk', 'plan test');
             select symphony.register_payment_rail('strict', '{\"ordered\": true}', 'bulk', 'plan test')",
        )
        .await
}

/// Inserts `count` due rows on `rail`, one per participant, all due an hour ago.
///
/// # Errors
/// Any error of the database.
pub async fn due(client: &Client, rail: &str, count: i32) -> Result<(), Error> {
    due_since(client, rail, count, 3600).await
}

/// Like [`due`], but due since this many seconds.
///
/// # Errors
/// Any error of the database.
pub async fn due_since(client: &Client, rail: &str, count: i32, seconds: i32) -> Result<(), Error> {
    client
        .execute(
            "insert into symphony.payment_outbox_pending
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, next_attempt_at)
             select (lpad(to_hex(floor(extract(epoch from now()) * 1000)::bigint), 12, '0') || '7000' || substr(gen_random_uuid()::text, 20))::uuid,
                    'due-' || gen_random_uuid(), 'due-' || $1 || i, 1 + (random() * 1e12)::bigint, 'key', $1,
                    '{\"amount\": \"1.00\"}', now() - make_interval(secs => $3) + i * interval '1 microsecond'
             from generate_series(1, $2) i",
            &[&rail, &count, &f64::from(seconds)],
        )
        .await?;
    Ok(())
}

/// Inserts `count` rows on `rail` that are due in an hour.
///
/// # Errors
/// Any error of the database.
pub async fn scheduled(client: &Client, rail: &str, count: i32) -> Result<(), Error> {
    client
        .execute(
            "insert into symphony.payment_outbox_pending
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, next_attempt_at)
             select gen_random_uuid(), 'later-' || i, 'later-' || i % 10000, 1 + i / 10000, 'key', $1::text,
                    '{\"amount\": \"1.00\"}', now() + interval '1 hour' + i * interval '1 microsecond'
             from generate_series(1, $2) i",
            &[&rail, &count],
        )
        .await?;
    Ok(())
}

/// Inserts a leased head on the rail `strict` and `count` rows of the same participant behind it, due before all
/// others.
///
/// # Errors
/// Any error of the database.
pub async fn behind_a_head(client: &Client, count: i32) -> Result<(), Error> {
    client
        .execute(
            "insert into symphony.payment_outbox_pending
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, next_attempt_at,
                claimed_by, claimed_at, lease_token, lease_expires_at)
             select gen_random_uuid(), 'whale-' || i, 'whale', i, 'key', 'strict', '{\"amount\": \"1.00\"}', now() - interval '2 hours',
                    h.worker, h.at, h.token, h.expires
             from generate_series(1, $1 + 1) i
             left join (values (1, 'holder', now(), gen_random_uuid(), now() + interval '1 day'))
               as h (place, worker, at, token, expires) on h.place = i",
            &[&count],
        )
        .await?;
    Ok(())
}

/// Claims until every row behind a head is parked. Returns how many are parked, and how many the first claim parked.
///
/// # Errors
/// Any error of the database.
pub async fn park_all(client: &Client) -> Result<(i64, i64), Error> {
    let (mut parked, mut first) = (0, None);
    loop {
        // No claimable row is due, so the claims return nothing and only park.
        for _ in 0..if first.is_none() { 1 } else { 20 } {
            client.execute("select from symphony.claim_outbox_batch(1, 'bulk', 1)", &[]).await?;
        }
        let now = client
            .query_one("select count(*) from symphony.payment_outbox_pending where parked", &[])
            .await?
            .get::<_, i64>(0);
        first = first.or(Some(now));
        if now == parked {
            return Ok((parked, first.unwrap_or(0)));
        }
        parked = now;
    }
}

/// Leaves `count` dead tuples at the front of the claim order of the rail `plain`: due an hour ago, claimed and
/// dispatched.
///
/// # Errors
/// Any error of the database.
pub async fn dispatched(client: &Client, count: i32) -> Result<(), Error> {
    due(client, "plain", count).await?;
    loop {
        let rows = client
            .query_one(
                "select count(d.*)
                 from (
                   select array_agg(c.outbox_id) as ids, array_agg(c.lease_token) as tokens,
                          array_agg('DISPATCHED'::symphony.outbox_attempt_state) as states
                   from symphony.claim_outbox_batch(1000, 'bulk', 60) c
                 ) b
                 cross join lateral symphony.complete_outbox_batch(b.ids, b.tokens, 'bulk', b.states) d
                 where b.ids is not null",
                &[],
            )
            .await?
            .get::<_, i64>(0);
        if rows == 0 {
            return Ok(());
        }
    }
}

/// Inserts `ended` outboxes into the ledger, one every 50 ms until now, and `pending` rows on `plain`, half of them
/// due.
///
/// Every fiftieth ended outbox has failed; the older 90 % of the failed ones are resolved.
///
/// # Errors
/// Any error of the database.
pub async fn history(client: &Client, ended: i32, pending: i32) -> Result<(), Error> {
    client
        .execute(
            "insert into symphony.payment_outbox_attempts
               (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no,
                state, claimed_at, completed_at, error_code, latency_ms, worker_id, created_at)
             select h.id, h.id, 'past-' || i, 'shop-' || i % 1000, 1 + i / 1000, 'past-' || i || '/key', 'plain', '{}', 1,
                    case when i % 50 = 0 then 'FAILED' else 'DISPATCHED' end::symphony.outbox_attempt_state, h.at, h.at,
                    case when i % 500 = 0 then 'OUTCOME_UNKNOWN' when i % 50 = 0 then 'NO_ACCOUNT' end, i % 300, 'bulk-' || i % 4, h.at
             from generate_series(1, $1) i
             cross join lateral (
               select now() - ($1 - i) * interval '50 milliseconds' as at,
                      (lpad(to_hex(floor(extract(epoch from now()) * 1000)::bigint - ($1 - i) * 50), 12, '0')
                       || '7' || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid as id
             ) h",
            &[&ended],
        )
        .await?;
    client
        .execute(
            "insert into symphony.payment_outbox_operations (operation_id, operation, outbox_id, resolution, rail_type, actor, reason)
             select a.attempt_id, 'RESOLVE', a.outbox_id, 'PAID', a.rail_type, 'bulk', 'long ago'
             from symphony.payment_outbox_attempts a
             where a.state = 'FAILED'
               and a.completed_at < now() - $1 * interval '5 milliseconds'",
            &[&f64::from(ended)],
        )
        .await?;
    client
        .execute(
            "insert into symphony.payment_outbox_pending
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, next_attempt_at)
             select (lpad(to_hex(floor(extract(epoch from now()) * 1000)::bigint - ($1 - i) / 100), 12, '0')
                     || '7' || substr(md5(i::text), 1, 3) || '9' || substr(md5(i::text), 4, 15))::uuid,
                    'now-' || i, 'shop-' || i % 1000, 1000000000 + i, 'now-' || i || '/key', 'plain', '{}',
                    now() + case when i % 2 = 0 then interval '1 hour' else interval '-1 minute' end
             from generate_series(1, $1) i",
            &[&pending],
        )
        .await?;
    register_keys(client).await?;
    client
        .batch_execute(
            "insert into symphony.participant_outbox_sequences (participant_id, next_sequence_id)
             select 'shop-' || i, 2000000000 from generate_series(0, 999) i",
        )
        .await
}

/// Registers the keys of all ledger and pending rows, as their enqueues would have.
async fn register_keys(client: &Client) -> Result<(), Error> {
    client
        .batch_execute(
            "insert into symphony.payment_outbox_keys (idempotency_key, instruction_id, outbox_id, content_digest, created_at)
             select o.idempotency_key, o.instruction_id, o.outbox_id, sha256(o.idempotency_key::bytea), o.created_at
             from (
               select p.idempotency_key::text, p.instruction_id::text, p.outbox_id, p.created_at
               from symphony.payment_outbox_pending p
               union all
               select a.idempotency_key, a.instruction_id, a.outbox_id, a.created_at
               from symphony.payment_outbox_attempts a
               where a.state in ('DISPATCHED', 'FAILED')
             ) o",
        )
        .await
}

/// How many weekly partitions of a long ledger have rows.
pub const LEDGER_WEEKS: i32 = 24;

/// Inserts `ended` outboxes into the ledger and `pending` due rows on `plain`, spread over `participants`. Due times
/// follow the sequence numbers. The tables are then vacuumed and analysed, as autovacuum would have done.
///
/// # Errors
/// Any error of the database.
pub async fn in_bulk(client: &Client, pending: i32, ended: i32, participants: i32) -> Result<(), Error> {
    if ended > 0 {
        client.batch_execute(ADD_PAST_PARTITIONS).await?;
    }
    client.batch_execute(POSTPONE_INDEXES).await?;
    insert_ended(client, "plain", ended, participants).await?;
    client
        .execute(
            "insert into symphony.payment_outbox_pending
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, next_attempt_at, created_at)
             select (lpad(to_hex(floor(extract(epoch from h.at) * 1000)::bigint), 12, '0') || '7000' || substr(gen_random_uuid()::text, 20))::uuid,
                    'now-' || i, 'shop-' || i % $2, 1000000000 + i, 'now-' || i || '/key', 'plain', '{\"amount\": \"1.00\"}', h.at, h.at
             from generate_series(1, $1) i
             cross join lateral (select now() - ($1 - i) * interval '100 microseconds' - interval '1 minute' as at) h",
            &[&pending, &participants],
        )
        .await?;
    client
        .execute(
            "insert into symphony.participant_outbox_sequences (participant_id, next_sequence_id)
             select 'shop-' || i, 2000000000 from generate_series(0, $1 - 1) i",
            &[&participants],
        )
        .await?;
    finish(client).await
}

/// Inserts `ended` outboxes of `rail` into the ledger, with their keys, over the last [`LEDGER_WEEKS`] weeks. Each week
/// has its partition, and those of closed weeks have the index by participant, as relayers would have made it.
///
/// # Errors
/// Any error of the database.
pub async fn ledger(superuser: &Client, rail: &str, ended: i32, participants: i32) -> Result<(), Error> {
    superuser.batch_execute(ADD_PAST_PARTITIONS).await?;
    superuser.batch_execute(POSTPONE_INDEXES).await?;
    insert_ended(superuser, rail, ended, participants).await?;
    finish(superuser).await
}

async fn insert_ended(client: &Client, rail: &str, ended: i32, participants: i32) -> Result<(), Error> {
    client
        .execute(
            "insert into symphony.payment_outbox_attempts
               (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no,
                state, claimed_at, completed_at, latency_ms, worker_id, created_at)
             select h.id, h.id, 'past-' || i, 'shop-' || i % $2, 1 + i / $2, 'past-' || i || '/key', $3::text, '{\"amount\": \"1.00\"}', 1,
                    'DISPATCHED', a.at, a.at, i % 300, 'bulk', a.at
             from (
               select min(p.starts_at) - $4 * interval '168 hours' as first_at, now() - interval '2 hours' as last_at
               from symphony.payment_ledger_partitions() p
               where p.starts_at > now()
             ) t
             cross join generate_series(1, $1) i
             cross join lateral (select t.first_at + (t.last_at - t.first_at) * (i / $1::float) as at) a
             cross join lateral (
               select (lpad(to_hex(floor(extract(epoch from a.at) * 1000)::bigint), 12, '0') || '7000'
                       || substr(gen_random_uuid()::text, 20))::uuid as id
             ) h",
            &[&ended, &participants, &rail, &f64::from(LEDGER_WEEKS)],
        )
        .await?;
    Ok(())
}

/// Registers the keys, builds the indexes that were postponed, and vacuums the tables.
async fn finish(client: &Client) -> Result<(), Error> {
    register_keys(client).await?;
    client.batch_execute(BUILD_INDEXES).await?;
    for table in [
        "payment_outbox_pending",
        "payment_outbox_attempts",
        "payment_outbox_keys",
        "participant_outbox_sequences",
    ] {
        client.batch_execute(&format!("vacuum (analyze) symphony.{table}")).await?;
    }
    client.batch_execute("checkpoint").await
}

/// Splits the first partition, which is open to the past, into [`LEDGER_WEEKS`] weeks.
const ADD_PAST_PARTITIONS: &str = "
    do $$
    declare
      c_first constant text := 'payment_outbox_attempts_from_start';
      v_end   timestamptz;
      v_start timestamptz;
      v_name  text;
    begin
      select p.ends_at into strict v_end from symphony.payment_ledger_partitions() p where p.partition_name = c_first;
      v_start := v_end - 23 * interval '168 hours';
      execute format('alter table symphony.payment_outbox_attempts detach partition symphony.%I', c_first);
      execute format('alter table symphony.payment_outbox_attempts attach partition symphony.%I for values from (minvalue) to (%L)',
        c_first, symphony.uuidv7_lower_bound(v_start));
      while v_start < v_end loop
        v_name := 'payment_outbox_attempts_from_' || to_char(v_start at time zone 'UTC', 'YYYYMMDD');
        perform symphony.create_ledger_partition(v_name);
        execute format('alter table symphony.payment_outbox_attempts attach partition symphony.%I for values from (%L) to (%L)',
          v_name, symphony.uuidv7_lower_bound(v_start), symphony.uuidv7_lower_bound(v_start + interval '168 hours'));
        v_start := v_start + interval '168 hours';
      end loop;
    end $$";

/// Building indexes after the rows is several times faster than maintaining them. For a superuser.
const POSTPONE_INDEXES: &str = "
    set allow_system_table_mods = on;
    update pg_index set indisready = false
    where indrelid in ('symphony.payment_outbox_pending'::regclass, 'symphony.payment_outbox_keys'::regclass)
       or indrelid in (select inhrelid from pg_inherits where inhparent = 'symphony.payment_outbox_attempts'::regclass);
    reset allow_system_table_mods";

const BUILD_INDEXES: &str = "
    set maintenance_work_mem = '1GB';
    reindex table symphony.payment_outbox_pending;
    reindex table symphony.payment_outbox_keys;
    do $$
    declare
      v_name text;
    begin
      for v_name in select partition_name from symphony.payment_ledger_partitions() loop
        execute format('reindex table symphony.%I', v_name);
      end loop;
      -- A call indexes one closed partition by participant.
      while (select indexed <> '{}' from symphony.extend_ledger_at(now(), 1000000)) loop
      end loop;
    end $$;
    reset maintenance_work_mem";

/// Deletes all pending rows, with the trigger that forbids it disabled. For a session of the owner.
pub async fn clear_pending(owner: &Client) -> Result<(), Error> {
    let clear = "alter table symphony.payment_outbox_pending disable trigger pending_goes_when_it_has_ended;
                 delete from symphony.payment_outbox_pending;
                 alter table symphony.payment_outbox_pending enable always trigger pending_goes_when_it_has_ended";
    owner.batch_execute(clear).await
}

/// Inserts `count` parked rows on the rail `strict`.
///
/// # Errors
/// Any error of the database.
pub async fn parked(client: &Client, count: i32) -> Result<(), Error> {
    client
        .execute(
            "insert into symphony.payment_outbox_pending
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, parked)
             select gen_random_uuid(), 'parked-' || i, 'whale', i, 'key', 'strict', '{}', true
             from generate_series(1, $1) i",
            &[&count],
        )
        .await?;
    Ok(())
}

/// Inserts `processed` events, one every 50 ms until now, and `open` events that are due, claimed and retried in turn.
///
/// Every fiftieth processed event has failed once.
///
/// # Errors
/// Any error of the database.
pub async fn events(client: &Client, processed: i32, open: i32) -> Result<(), Error> {
    client.batch_execute("alter table m10_recovery.outbox set (autovacuum_enabled = off)").await?;
    client
        .execute(
            "insert into m10_recovery.outbox
               (aggregate_type, aggregate_id, event_type, payload, created_at, processed_at, claimed_at, claimed_by)
             select 'order', 'past-' || i, 'OrderPlaced', '{}', h.at - interval '1 second', h.at, h.at - interval '100 milliseconds', 'bulk'
             from generate_series(1, $1) i
             cross join lateral (select now() - ($1 - i) * interval '50 milliseconds' as at) h",
            &[&processed],
        )
        .await?;
    client
        .execute(
            "insert into m10_recovery.outbox_errors (event_id, retry_count, succeeded, processor_id, error, created_at)
             select i, 1, false, 'bulk', 'broker unavailable', now() - ($1 - i) * interval '50 milliseconds'
             from generate_series(1, $1, 50) i",
            &[&processed],
        )
        .await?;
    client
        .execute(
            "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload, process_after, claimed_at, claimed_by)
             select 'order', 'now-' || i, 'OrderPlaced', '{}',
                    case when i % 3 = 1 then now() + i * interval '1 millisecond' end,
                    case when i % 3 = 2 then now() end,
                    case when i % 3 = 2 then 'bulk' end
             from generate_series(1, $1) i",
            &[&open],
        )
        .await?;
    Ok(())
}

/// Inserts `ended` entries, one every 50 ms until now, and `open` entries that are pending, processing and failed in
/// turn.
///
/// Every fiftieth ended entry is in the dead-letter queue.
///
/// # Errors
/// Any error of the database.
pub async fn metadata(client: &Client, ended: i32, open: i32) -> Result<(), Error> {
    client
        .batch_execute(
            "alter table symphony.metadata_outbox set (autovacuum_enabled = off);
             alter table symphony.metadata_outbox disable trigger metadata_begins_as_pending",
        )
        .await?;
    client
        .execute(
            "insert into symphony.metadata_outbox
               (id, entity_type, entity_id, metadata, max_retries, status, retry_count, last_error, processing_started_at, claimed_by, processed_at,
                created_at, updated_at)
             select (lpad(to_hex(floor(extract(epoch from h.at) * 1000)::bigint), 12, '0')
                     || '7' || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid,
                    'document', 'past-' || i, '{}', 20, case when i % 50 = 0 then 'DLQ' else 'PUBLISHED' end::symphony.metadata_status,
                    case when i % 50 = 0 then 20 else 0 end, case when i % 50 = 0 then 'NO_SUCH_KEY' end, h.at, 'bulk',
                    case when i % 50 <> 0 then h.at end, h.at - interval '1 second', h.at
             from generate_series(1, $1) i
             cross join lateral (select now() - ($1 - i) * interval '50 milliseconds' as at) h",
            &[&ended],
        )
        .await?;
    client
        .execute(
            "insert into symphony.metadata_outbox
               (id, entity_type, entity_id, metadata, max_retries, status, retry_count, last_error, next_retry_at, processing_started_at, claimed_by,
                claim_token, created_at, updated_at)
             select gen_random_uuid(), 'document', 'now-' || i, '{}', 20,
                    case i % 3 when 0 then 'PENDING' when 1 then 'PROCESSING' else 'FAILED' end::symphony.metadata_status,
                    i % 3, case when i % 3 = 2 then 'UNAVAILABLE' end, case when i % 3 = 2 then now() + i * interval '1 millisecond' end,
                    case when i % 3 = 1 then now() end, case when i % 3 = 1 then 'bulk' end,
                    case when i % 3 = 1 then gen_random_uuid() end, now() + i * interval '1 microsecond', now()
             from generate_series(1, $1) i",
            &[&open],
        )
        .await?;
    client
        .batch_execute("alter table symphony.metadata_outbox enable always trigger metadata_begins_as_pending")
        .await
}

-- Records that a partition of the ledger was archived, after its archive was read back.
--
-- The caller says what it has read back: the number of rows and their digest. The database computes both from the partition
-- and refuses if they differ. It also refuses a partition that is not past its retention, one with an older partition
-- before it that has rows, and one that list_archive_blockers names. An enqueue whose transaction is still open may have an
-- id of the range: so it first waits for open enqueues, at most p_wait_ms. Later ones have later ids.
-- Without this record a partition cannot be dropped. The record is in payment_ledger_archives and the operations log.
-- Locks: nothing but the record. Raises: P7003, P7005, 25000 outside READ COMMITTED, 55P03. For: symphony_control.
create or replace function symphony.record_ledger_archive(
  p_partition_name  text,
  p_archive_name    text,
  p_row_count       bigint,
  p_content_digest  bytea,
  p_manifest_digest bytea,
  p_location        text,
  p_actor           text,
  p_reason          text,
  p_wait_ms         int default 5000)
  returns uuid
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set jit = off
as $$
declare
  v_archive_id constant uuid := uuidv7();
  v_partition record;
  v_content   record;
  v_blockers  text;
  v_open      text[];
begin
  perform check_argument('p_archive_name', p_archive_name, 200);
  perform check_argument('p_location', p_location, 2000);
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  perform check_range('p_wait_ms', p_wait_ms, 0, 600000);
  perform check_isolation();
  select l.*
  into v_partition
  from list_partitions_to_archive() l
  where l.partition_name = p_partition_name;
  if not found then
    raise exception 'partition % is not past the retention of the ledger', coalesce(p_partition_name, 'null')
      using errcode = 'P7003',
            hint = 'symphony.list_partitions_to_archive() lists those that are; symphony.retention shows the retention.';
  elsif exists (select from list_partitions_to_archive() l where l.ends_at < v_partition.ends_at) then
    raise exception 'partition % has an older one before it', p_partition_name
      using errcode = 'P7003',
            hint = 'Archive the oldest partition first.';
  elsif exists (select from payment_ledger_archives r where r.partition_oid = format('symphony.%I', p_partition_name)::regclass) then
    raise exception 'partition % was archived already', p_partition_name
      using errcode = 'P7003',
            hint = 'symphony archive drops it.';
  end if;

  v_open := wait_for_writers(array['symphony.payment_outbox_pending'::regclass], p_wait_ms);
  if v_open <> '{}' then
    raise exception 'a payment of partition % may still be committed: % is still open', p_partition_name, array_to_string(v_open, ', ')
      using errcode = '55P03',
            hint = 'Wait until that transaction has ended, or end it. Then archive again.';
  end if;
  select string_agg(format('%s %s (%s)', b.outboxes, b.blocker, array_to_string(b.outbox_ids[1:3], ', ')), '; ')
  into v_blockers
  from list_archive_blockers(p_partition_name) b;
  if v_blockers is not null then
    raise exception 'partition % cannot be archived: %', p_partition_name, v_blockers
      using errcode = 'P7003',
            hint = 'Pending payments must end, and dead letters be redriven or resolved: symphony dlq list.';
  end if;

  v_content := ledger_partition_digest(p_partition_name);
  if (v_content.row_count, v_content.content_digest) is distinct from (p_row_count, p_content_digest) then
    raise exception 'the archive of partition % is not what the partition has: % rows were read back, and there are %',
      p_partition_name, p_row_count, v_content.row_count
      using errcode = 'P7003',
            hint = 'Remove that archive and export the partition again.';
  end if;
  insert into payment_ledger_archives
    (archive_id, archive_name, partition_name, partition_oid, from_id, to_id, row_count, content_digest, manifest_digest, location, actor, reason)
  values (
    v_archive_id, p_archive_name, p_partition_name, format('symphony.%I', p_partition_name)::regclass, v_partition.from_id, v_partition.to_id,
    p_row_count, p_content_digest, p_manifest_digest, p_location, p_actor, p_reason);
  insert into payment_outbox_operations (operation_id, operation, policy_after, actor, reason)
  values (uuidv7(), 'ARCHIVE_PARTITION',
          jsonb_build_object('archive_id', v_archive_id, 'archive_name', p_archive_name, 'partition', p_partition_name, 'rows', p_row_count,
                             'content_digest', encode(p_content_digest, 'hex'), 'location', p_location),
          p_actor, p_reason);
  return v_archive_id;
end
$$;

comment on function symphony.record_ledger_archive(text, text, bigint, bytea, bytea, text, text, text, int) is
  'Records that a partition of the ledger was archived; refuses unless the archive has exactly its rows.';

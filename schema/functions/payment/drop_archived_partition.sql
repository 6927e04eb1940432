-- Drops a table that was a partition of the ledger, after it was archived and detached.
--
-- It must have a record in payment_ledger_archives, made of this table. Its rows are counted and hashed again: what is dropped is
-- what the archive has. The drop is in the operations log.
-- Locks: the detached table, which no statement of the lanes uses. Raises: P7003, P7005, 55P03 after 5 s behind a lock.
-- For: symphony_control.
create or replace function symphony.drop_archived_partition(p_archive_id uuid, p_actor text, p_reason text)
  returns void
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set jit = off
as $$
declare
  v_archive payment_ledger_archives;
  v_content record;
begin
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  perform check_isolation();
  select r.* into v_archive from payment_ledger_archives r where r.archive_id = p_archive_id;
  if not found then
    raise exception 'there is no archive %', coalesce(p_archive_id::text, 'null')
      using errcode = 'P7005',
            hint = 'A partition is dropped only after its archive was recorded: run symphony archive.';
  elsif to_regclass(format('symphony.%I', v_archive.partition_name)) is distinct from v_archive.partition_oid::regclass then
    raise exception 'the table of archive % is gone', v_archive.archive_name
      using errcode = 'P7003',
            hint = 'It was dropped already, or restored from a dump: then archive the partition again.';
  elsif exists (select from pg_inherits h where h.inhrelid = v_archive.partition_oid) then
    raise exception '% is still a partition of the ledger', v_archive.partition_name
      using errcode = 'P7003',
            hint = 'Detach it first; symphony archive does.';
  end if;

  execute format('lock table symphony.%I in access exclusive mode', v_archive.partition_name);
  v_content := ledger_partition_digest(v_archive.partition_name);
  if (v_content.row_count, v_content.content_digest) is distinct from (v_archive.row_count, v_archive.content_digest::bytea) then
    raise exception '% has other rows than its archive: % instead of %', v_archive.partition_name, v_content.row_count, v_archive.row_count
      using errcode = 'P7003',
            hint = 'Its rows were changed after the archive. Keep the table, and find out who did it: symphony audit export.';
  end if;
  execute format('drop table symphony.%I', v_archive.partition_name);
  insert into payment_outbox_operations (operation_id, operation, policy_after, actor, reason)
  values (uuidv7(), 'DROP_PARTITION',
          jsonb_build_object('archive_id', p_archive_id, 'archive_name', v_archive.archive_name, 'partition', v_archive.partition_name,
                             'rows', v_archive.row_count, 'location', v_archive.location),
          p_actor, p_reason);
end
$$;

comment on function symphony.drop_archived_partition(uuid, text, text) is
  'Drops a detached partition of the ledger whose archive is recorded and has exactly its rows.';

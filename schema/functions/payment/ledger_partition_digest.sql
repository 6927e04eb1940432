-- Counts the rows of a partition of the ledger, attached or detached, and returns a digest of them in order.
--
-- A row is the line that an archive has of it: the row as JSON, times in UTC. The digest begins with 32 zero bytes; each line
-- makes it SHA-256 of the digest so far and the line. So a reader of the archive computes the same in one pass, in constant
-- memory. Rows are in the order of (outbox_id, attempt_no).
-- Locks: nothing. Raises: P7005 if there is no such table. For: record_ledger_archive, drop_archived_partition.
create or replace function symphony.ledger_partition_digest(p_partition_name text, out row_count bigint, out content_digest bytea)
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
  set timezone = 'UTC'
  set jit = off
  set enable_seqscan = off
as $$
declare
  v_line text;
begin
  if p_partition_name !~ '^payment_outbox_attempts_from_(start|[0-9]{8})$' or to_regclass(format('symphony.%I', p_partition_name)) is null then
    raise exception 'there is no partition %', coalesce(p_partition_name, 'null') using errcode = 'P7005';
  end if;
  row_count := 0;
  content_digest := decode(repeat('00', 32), 'hex');
  for v_line in
    execute format('select row_to_json(a)::text from symphony.%I a order by a.outbox_id, a.attempt_no', p_partition_name)
  loop
    row_count := row_count + 1;
    content_digest := sha256(content_digest || convert_to(v_line, 'UTF8'));
  end loop;
end
$$;

comment on function symphony.ledger_partition_digest(text) is
  'The number of rows of a partition of the ledger, and a digest of them as an archive has them.';

-- Lists the partitions of the ledger that are past their retention, the oldest first. By default there are none.
--
-- A partition is due when its end, and so the enqueue of its last outbox, is past the retention of payment_ledger. p_before
-- leaves out those that end after it. due_at is when it became due. The first partition, from the lowest id on, is left out while it is empty: it takes the
-- place of those that were archived. A partition whose DETACH was interrupted is listed too.
-- Locks: nothing. For: symphony_executor, symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.list_partitions_to_archive(p_before timestamptz default null)
  returns table (partition_name text, from_id uuid, to_id uuid, starts_at timestamptz, ends_at timestamptz, due_at timestamptz, is_detaching boolean)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set jit = off
  set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_cutoff constant timestamptz := retention_cutoff('payment_ledger');
begin
  if v_cutoff is null then
    return;
  end if;
  return query
    select p.partition_name, p.from_id, p.to_id, p.starts_at, p.ends_at,
           p.ends_at + (date_bin(interval '1 hour', now(), timestamptz '2001-01-01 00:00:00+00') - v_cutoff), p.is_detaching
    from payment_ledger_partitions() p
    where p.ends_at <= least(v_cutoff, p_before)
      and (p.from_id is not null or p.is_detaching or exists (
        select
        from payment_outbox_attempts a
        where a.outbox_id < p.to_id))
    order by p.ends_at;
end
$$;

comment on function symphony.list_partitions_to_archive(timestamptz) is
  'The partitions of the ledger that are past their retention, the oldest first.';

-- Lists what keeps a partition of the ledger from being archived: how many outboxes of each kind, and the first ten ids.
--
-- PENDING: rows of its range that have not ended, and so would write to it. UNKNOWN_OUTCOME and DEAD_LETTER: failures that
-- no operator has redriven or resolved; neither is possible after the archive. REDRIVE_PENDING: failures whose redrive has not
-- ended. A failure that was resolved as NOT_PAID does not block: an operator has decided. But HELD_STREAM does: it holds the later
-- payments of its participant until it is redriven or skipped.
-- Locks: nothing. Raises: P7005 if there is no such partition. For: symphony_operator, symphony_readonly,
-- symphony_auditor.
create or replace function symphony.list_archive_blockers(p_partition_name text)
  returns table (blocker text, outboxes bigint, outbox_ids uuid[])
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set jit = off
  set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_from uuid;
  v_to   uuid;
begin
  select coalesce(p.from_id, '00000000-0000-0000-0000-000000000000'), p.to_id
  into v_from, v_to
  from payment_ledger_partitions() p
  where p.partition_name = p_partition_name;
  if not found then
    raise exception 'the ledger has no partition %', coalesce(p_partition_name, 'null')
      using errcode = 'P7005',
            hint = 'List them with symphony.payment_ledger_partitions().';
  end if;
  return query
    with failures as materialized (
      select a.outbox_id, a.error_code, o.operation, a.idempotency_key, a.instruction_id
      from payment_outbox_attempts a
      left join payment_outbox_operations o on o.outbox_id = a.outbox_id and o.operation in ('REDRIVE', 'RESOLVE', 'CANCEL')
      where a.state = 'FAILED'
        and a.outbox_id >= v_from
        and (a.outbox_id < v_to or v_to is null)
    ),
    found as (
      select 'PENDING' as blocker, p.outbox_id
      from payment_outbox_pending p
      where p.outbox_id >= v_from
        and (p.outbox_id < v_to or v_to is null)
      union all
      select case when f.error_code in (select u.error_code from unknown_outcome_codes u) then 'UNKNOWN_OUTCOME' else 'DEAD_LETTER' end, f.outbox_id
      from failures f
      where f.operation is null
      union all
      select distinct 'HELD_STREAM', f.outbox_id
      from failures f
      join payment_stream_holds h on h.outbox_id = f.outbox_id
      where f.operation is not null
      union all
      select 'REDRIVE_PENDING', f.outbox_id
      from failures f
      where f.operation = 'REDRIVE'
        -- A redrive may have been redriven again: the registry has the newest.
        and (select true
             from payment_outbox_keys k
             join payment_outbox_pending p on p.outbox_id = k.outbox_id
             where k.idempotency_key = f.idempotency_key
               and k.instruction_id = f.instruction_id
             limit 1)
    )
    select w.blocker, count(*), (array_agg(w.outbox_id order by w.outbox_id))[1:10]
    from found w
    group by w.blocker
    order by w.blocker;
end
$$;

comment on function symphony.list_archive_blockers(text) is
  'What keeps a partition of the ledger from being archived: pending rows, and failures that still need an operator.';

-- Finds the archives that hold the ledger rows of an outbox, an instruction or an idempotency key.
--
-- p_id is any of the three. The key registry has the newest outbox of a key; the outboxes that it was redriven from follow. The
-- time in an outbox id says in which archive it is. is_registered is false for an outbox id that the registry does not have: the
-- archive has the rows of its time, and may or may not have this one. Outboxes that are pending or in the ledger are left out.
-- Locks: nothing. Raises: P7005. For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.find_archived_outboxes(p_id text)
  returns table (outbox_id uuid, instruction_id text, idempotency_key text, is_registered boolean, archive_name text, location text, archived_at timestamptz)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set jit = off
  set enable_seqscan = off
as $$
#variable_conflict use_column
begin
  perform check_argument('p_id', p_id, 200);
  return query
    with recursive named as (
      select k.outbox_id, k.instruction_id, k.idempotency_key, true as is_registered
      from (
        select k.* from payment_outbox_keys k where k.idempotency_key = p_id
        union
        select k.* from payment_outbox_keys k where k.instruction_id = p_id
      ) k
      union all
      select o.outbox_id, n.instruction_id, n.idempotency_key, true
      from named n
      join payment_outbox_operations o on o.new_outbox_id = n.outbox_id
    ),
    candidates as (
      select n.* from named n
      union all
      select i.outbox_id, null, null, false
      from (select case when p_id ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then p_id::uuid end as outbox_id) i
      where i.outbox_id is not null
        and not exists (select from named n where n.outbox_id = i.outbox_id)
    )
    select distinct on (c.outbox_id)
           c.outbox_id, c.instruction_id, c.idempotency_key, c.is_registered, r.archive_name, r.location, r.archived_at
    from candidates c
    join payment_ledger_archives r
      on (r.from_id is null or c.outbox_id >= r.from_id)
     and c.outbox_id < r.to_id
    where (select true from payment_outbox_pending p where p.outbox_id = c.outbox_id limit 1) is null
      and (select true from payment_outbox_attempts a where a.outbox_id = c.outbox_id limit 1) is null
    order by c.outbox_id, r.archived_at desc;
end
$$;

comment on function symphony.find_archived_outboxes(text) is
  'The archives that hold the ledger rows of an outbox, an instruction or an idempotency key.';

-- Lists terminal failures from the latest backwards, and whether each still waits for an operator.
--
-- It reads the index of failures only, at most p_max_rows entries; it does not read the ledger.
-- Locks: nothing. Raises: nothing. For: the searches of failures and of dead letters.
create or replace function symphony.recent_payment_failures(p_before uuid, p_max_rows int)
  returns table (place bigint, outbox_id uuid, rail_type text, error_code text, outcome_unknown boolean, unresolved boolean)
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_at timestamptz := 'infinity';
  v_id uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
begin
  if p_before is not null then
    select a.completed_at, a.outbox_id
    into v_at, v_id
    from payment_outbox_attempts a
    where a.outbox_id = p_before
      and a.state = 'FAILED';
  end if;

  return query
    select row_number() over (order by f.completed_at desc, f.outbox_id desc),
           f.outbox_id,
           f.rail_type,
           f.error_code,
           coalesce(f.error_code in (select u.error_code from unknown_outcome_codes u), false),
           -- A subquery by key: a hash join would read the whole operations log.
           (select true from payment_outbox_operations o where o.outbox_id = f.outbox_id limit 1) is null
    from (
      select a.completed_at, a.outbox_id, a.rail_type, a.error_code
      from payment_outbox_attempts a
      where a.state = 'FAILED'
        and (a.completed_at, a.outbox_id) < (v_at, v_id)
      order by a.completed_at desc, a.outbox_id desc
      limit p_max_rows
    ) f;
end
$$;

comment on function symphony.recent_payment_failures(uuid, int) is
  'The latest terminal failures before one of them, and which of them still wait for an operator.';

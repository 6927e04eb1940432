-- Walks the terminal failures from the latest backwards, and says of each whether it still waits for a person.
--
-- By the index of failures alone, and no further than asked: the ledger is not read.
-- Locks: nothing. Raises: nothing. For: searches of failures and of dead letters.
create or replace function symphony.walk_payment_failures(p_before uuid, p_most int)
  returns table (place bigint, outbox_id uuid, rail_type text, error_code text, outcome_unknown boolean, waits boolean)
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
    select row_number() over (order by w.completed_at desc, w.outbox_id desc),
           w.outbox_id,
           w.rail_type,
           w.error_code,
           coalesce(w.error_code in (select u.error_code from unknown_outcome_codes u), false),
           -- One by one, by key: a plan that hashes the log would read all of it.
           (select true from payment_outbox_operations o where o.outbox_id = w.outbox_id limit 1) is null
    from (
      select a.completed_at, a.outbox_id, a.rail_type, a.error_code
      from payment_outbox_attempts a
      where a.state = 'FAILED'
        and (a.completed_at, a.outbox_id) < (v_at, v_id)
      order by a.completed_at desc, a.outbox_id desc
      limit p_most
    ) w;
end
$$;

comment on function symphony.walk_payment_failures(uuid, int) is 'The latest terminal failures before one of them, and which of them still wait for a person.';

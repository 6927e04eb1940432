-- Whether the failure of an outbox has this code of its rail. The index of failures does not have it.
--
-- Locks: nothing. Raises: nothing. For: the searches of dead letters.
create or replace function symphony.failure_has_rail_code(p_outbox_id uuid, p_rail_code text)
  returns boolean
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
begin
  return coalesce((
    select a.rail_code = p_rail_code
    from payment_outbox_attempts a
    where a.outbox_id = p_outbox_id
      and a.state = 'FAILED'
    limit 1), false);
end
$$;

comment on function symphony.failure_has_rail_code(uuid, text) is 'Whether the failure of an outbox has this code of its rail.';

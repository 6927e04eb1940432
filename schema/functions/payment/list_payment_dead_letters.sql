-- Lists dead letters for the console and the CLI, the latest first, one page at a time.
--
-- A page reads at most five thousand failures; next_before says where the next page starts. A null argument does not
-- filter.
-- Locks: nothing. Raises: P7005. For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.list_payment_dead_letters(
  p_outcome_unknown boolean,
  p_rail_type       text,
  p_error_code      text,
  p_before          uuid,
  p_limit           int,
  p_rail_code       text default null,
  out dead_letters  jsonb,
  out examined      int,
  out next_before   uuid)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  c_max_failures  constant int := 5000;
  v_last  uuid;
  v_found uuid[];
begin
  perform check_range('p_limit', p_limit, 1, 200);

  with failures as materialized (
    select f.* from recent_payment_failures(p_before, c_max_failures) f
  ),
  matching as materialized (
    select f.outbox_id, f.place
    from failures f
    where f.unresolved
      and (p_outcome_unknown is null or f.outcome_unknown = p_outcome_unknown)
      and (p_rail_type is null or f.rail_type = p_rail_type)
      and (p_error_code is null or f.error_code = p_error_code)
      and (p_rail_code is null or failure_has_rail_code(f.outbox_id, p_rail_code))
    order by f.place
    limit p_limit + 1
  ),
  page as (
    select o.*, m.place
    from (select g.* from matching g order by g.place limit p_limit) m
    cross join lateral (select v.* from payment_outboxes v where v.outbox_id = m.outbox_id limit 1) o
  )
  select coalesce((select jsonb_agg(to_jsonb(g.*) - 'place' order by g.place) from page g), '[]'),
         (select count(*) from failures),
         (select f.outbox_id from failures f order by f.place desc limit 1),
         array(select m.outbox_id from matching m order by m.place)
  into dead_letters, examined, v_last, v_found;

  if cardinality(v_found) > p_limit then
    next_before := v_found[p_limit];
  elsif examined = c_max_failures then
    next_before := v_last;
  end if;
end
$$;

comment on function symphony.list_payment_dead_letters(boolean, text, text, uuid, int, text) is
  'A page of dead letters, the latest first, as rows of payment_outboxes; how many failures were read; and where the next page starts.';

-- Lists dead letters for a person, those of one kind, the latest first, a page at a time.
--
-- Looks at no more than five thousand failures a page and says by next_before where to go on. What is null is not asked.
-- Locks: nothing. Raises: P7005. For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.list_payment_dead_letters(
  p_outcome_unknown boolean,
  p_rail_type       text,
  p_error_code      text,
  p_before          uuid,
  p_limit           int,
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
  c_most  constant int := 5000;
  v_last  uuid;
  v_found uuid[];
begin
  perform check_range('p_limit', p_limit, 1, 200);

  with walked as materialized (
    select w.* from walk_payment_failures(p_before, c_most) w
  ),
  matching as materialized (
    select w.outbox_id, w.place
    from walked w
    where w.waits
      and (p_outcome_unknown is null or w.outcome_unknown = p_outcome_unknown)
      and (p_rail_type is null or w.rail_type = p_rail_type)
      and (p_error_code is null or w.error_code = p_error_code)
    order by w.place
    limit p_limit + 1
  ),
  page as (
    select o.*, m.place
    from (select g.* from matching g order by g.place limit p_limit) m
    cross join lateral (select v.* from payment_outboxes v where v.outbox_id = m.outbox_id limit 1) o
  )
  select coalesce((select jsonb_agg(to_jsonb(g.*) - 'place' order by g.place) from page g), '[]'),
         (select count(*) from walked),
         (select w.outbox_id from walked w order by w.place desc limit 1),
         array(select m.outbox_id from matching m order by m.place)
  into dead_letters, examined, v_last, v_found;

  if cardinality(v_found) > p_limit then
    next_before := v_found[p_limit];
  elsif examined = c_most then
    next_before := v_last;
  end if;
end
$$;

comment on function symphony.list_payment_dead_letters(boolean, text, text, uuid, int) is
  'A page of failures that wait for a person, the latest first, as rows of payment_outboxes; how many failures were looked at; and where to go on.';

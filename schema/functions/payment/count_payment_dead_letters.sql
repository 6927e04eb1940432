-- Counts the dead letters among the latest five thousand failures, by rail.
--
-- More are not counted, and more then says so: a count of everything is symphony.supervisor_outbox_status, at the price of
-- looking at every failure there ever was. What is null is not asked.
-- Locks: nothing. Raises: nothing. For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.count_payment_dead_letters(
  p_rail_type  text,
  p_error_code text,
  out known    bigint,
  out unknown  bigint,
  out more     boolean,
  out rails    jsonb)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set jit = off
as $$
declare
  c_most constant int := 5000;
begin
  with walked as materialized (
    select w.* from walk_payment_failures(null, c_most) w
  ),
  counted as (
    select w.rail_type,
           count(*) filter (where not w.outcome_unknown) as known,
           count(*) filter (where w.outcome_unknown) as unknown
    from walked w
    where w.waits
      and (p_rail_type is null or w.rail_type = p_rail_type)
      and (p_error_code is null or w.error_code = p_error_code)
    group by w.rail_type
  )
  select coalesce(sum(c.known), 0),
         coalesce(sum(c.unknown), 0),
         (select count(*) = c_most from walked),
         coalesce(jsonb_agg(to_jsonb(c.*) order by c.rail_type), '[]')
  into known, unknown, more, rails
  from counted c;
end
$$;

comment on function symphony.count_payment_dead_letters(text, text) is
  'How many of the latest failures wait for a person: known and unknown outcomes, over all rails and for each.';

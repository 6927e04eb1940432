-- Counts the dead letters among the latest five thousand failures, by rail.
--
-- The column more says that there are more failures. symphony.supervisor_outbox_status counts all of them, but reads
-- every failure of the ledger. A null argument does not filter.
-- Locks: nothing. Raises: nothing. For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.count_payment_dead_letters(
  p_rail_type  text,
  p_error_code text,
  p_rail_code  text default null,
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
  c_max_failures constant int := 5000;
begin
  with failures as materialized (
    select f.* from recent_payment_failures(null, c_max_failures) f
  ),
  counted as (
    select f.rail_type,
           count(*) filter (where not f.outcome_unknown) as known,
           count(*) filter (where f.outcome_unknown) as unknown
    from failures f
    where f.unresolved
      and (p_rail_type is null or f.rail_type = p_rail_type)
      and (p_error_code is null or f.error_code = p_error_code)
      and (p_rail_code is null or failure_has_rail_code(f.outbox_id, p_rail_code))
    group by f.rail_type
  )
  select coalesce(sum(c.known), 0),
         coalesce(sum(c.unknown), 0),
         (select count(*) = c_max_failures from failures),
         coalesce(jsonb_agg(to_jsonb(c.*) order by c.rail_type), '[]')
  into known, unknown, more, rails
  from counted c;
end
$$;

comment on function symphony.count_payment_dead_letters(text, text, text) is
  'How many of the latest failures wait for an operator: with known and unknown outcome, over all rails and for each.';

-- Returns whether the event lane is installed, so that a rail may publish its outcomes to it.
--
-- The lanes are installed one by one, and anybody who may create a schema could create one of that name. A function of
-- another owner is never called: it would run with the rights of symphony_control.
-- Locks: nothing. For: apply_rail_policy and publish_payment_outcomes.
create or replace function symphony.event_lane_is_installed()
  returns boolean
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return exists (
    select
    from pg_proc f
    where f.oid = to_regprocedure('m10_recovery.publish_outbox(text, text, text, jsonb)')
      and pg_get_userbyid(f.proowner) = 'symphony_control');
end
$$;

comment on function symphony.event_lane_is_installed() is 'Whether the event lane is installed, so that a rail may publish its outcomes to it.';

-- Pauses or resumes a rail, and logs the operation with actor and reason.
--
-- Locks: payment_rails in EXCLUSIVE mode, so that no row is claimed after a pause has returned.
-- Raises: P7005, P7006, 25000 outside READ COMMITTED, 55P03 while a worker leaves its transaction open.
-- For: pause_payment_rail and resume_payment_rail.
create or replace function symphony.pause_or_resume_rail(p_rail_type text, p_paused boolean, p_actor text, p_reason text)
  returns symphony.payment_rails
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_before payment_rails;
  v_after  payment_rails;
begin
  perform check_argument('p_rail_type', p_rail_type, 200);
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  perform check_isolation();
  perform lock_rail_policies();

  v_before := registered_rail(p_rail_type);
  update payment_rails r
  set paused = p_paused,
      updated_by = p_actor,
      updated_at = clock_timestamp()
  where r.rail_type = p_rail_type
  returning r.* into v_after;

  insert into payment_outbox_operations (operation_id, operation, rail_type, policy_before, policy_after, actor, reason)
  values (uuidv7(), case when p_paused then 'PAUSE_RAIL' else 'RESUME_RAIL' end, p_rail_type, to_jsonb(v_before), to_jsonb(v_after),
          p_actor, p_reason);

  if v_before.paused and not p_paused then
    -- Rows are due on the resumed rail, and no INSERT notifies of them.
    perform notify_idle_relayers('outbox_pending');
  end if;
  return v_after;
end
$$;

comment on function symphony.pause_or_resume_rail(text, boolean, text, text) is 'Pauses or resumes a rail.';

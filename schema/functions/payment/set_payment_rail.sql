-- Changes the policy of a registered rail.
--
-- The policy is a JSON object with the fields to set; the others stay as they are. Null clears max_in_flight,
-- max_per_second or key_memory_seconds. Registering is a separate function, register_payment_rail, so that a mistyped name is refused
-- here. Pausing is separate too: see pause_payment_rail and resume_payment_rail.
-- Locks: payment_rails in EXCLUSIVE mode: it waits for claims under way, and later claims wait for it.
-- Raises: P7005, P7006, 25000 outside READ COMMITTED, 55P03 while a worker leaves its transaction open.
-- For: symphony_operator.
create or replace function symphony.set_payment_rail(p_rail_type text, p_policy jsonb, p_actor text, p_reason text)
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
  perform check_rail_policy(p_policy);
  perform check_isolation();
  perform lock_rail_policies();
  v_before := registered_rail(p_rail_type);
  v_after := apply_rail_policy(v_before, p_policy, p_actor);

  insert into payment_outbox_operations (operation_id, operation, rail_type, policy_before, policy_after, actor, reason)
  values (uuidv7(), 'SET_RAIL', p_rail_type, to_jsonb(v_before), to_jsonb(v_after), p_actor, p_reason);
  return v_after;
end
$$;

comment on function symphony.set_payment_rail(text, jsonb, text, text) is 'Changes the policy of a registered rail.';

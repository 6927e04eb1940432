-- Registers a rail, so that payments can be enqueued to it.
--
-- The policy is a JSON object with the fields to set; the others take their defaults. A retired rail can be registered
-- again: it starts from the defaults, and its history stays in the ledger. A relayer serves a new rail only after its
-- settings have a route for it; until then relayers warn.
-- Locks: payment_rails in EXCLUSIVE mode: it waits for claims under way, and later claims wait for it.
-- Raises: P7003 for a registered rail, P7005, 25000 outside READ COMMITTED, 55P03 while a worker leaves its
-- transaction open.
-- For: symphony_operator.
create or replace function symphony.register_payment_rail(p_rail_type text, p_policy jsonb, p_actor text, p_reason text)
  returns symphony.payment_rails
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_before payment_rails;
  v_rail   payment_rails;
  v_after  payment_rails;
begin
  perform check_argument('p_rail_type', p_rail_type, 200);
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  perform check_rail_policy(p_policy);
  perform check_isolation();
  perform lock_rail_policies();

  select r.* into v_before from payment_rails r where r.rail_type = p_rail_type;
  if v_before.rail_type is null then
    insert into payment_rails as r (rail_type, updated_by, epoch, epoch_timeline)
    select p_rail_type, p_actor, e.counter, e.timeline
    from epoch e
    order by e.counter desc
    limit 1
    returning r.* into v_rail;
  elsif v_before.retired_at is null then
    raise exception 'rail % is registered already', p_rail_type
      using errcode = 'P7003',
            hint = 'Change its policy with symphony.set_payment_rail.';
  else
    v_rail := v_before;
    update payment_rails r
    set max_attempts = default,
        backoff_base_seconds = default,
        backoff_cap_seconds = default,
        ordered = default,
        max_in_flight = default,
        paused = default,
        on_unknown = default,
        key_memory_seconds = default,
        on_epoch_change = default,
        publish_outcomes = default,
        on_failure = default,
        max_per_second = default,
        confirm_every_seconds = default,
        retired_at = null
    where r.rail_type = p_rail_type;
  end if;
  v_after := apply_rail_policy(v_rail, p_policy, p_actor);

  insert into payment_outbox_operations (operation_id, operation, rail_type, policy_before, policy_after, actor, reason)
  values (uuidv7(), 'REGISTER_RAIL', p_rail_type, case when v_before.rail_type is not null then to_jsonb(v_before) end, to_jsonb(v_after),
          p_actor, p_reason);
  return v_after;
end
$$;

comment on function symphony.register_payment_rail(text, jsonb, text, text) is 'Registers a new rail, or a retired one again.';

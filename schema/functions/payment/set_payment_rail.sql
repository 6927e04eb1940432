-- Registers a rail or changes its policy.
--
-- The policy is a JSON object with the fields to set; what it leaves out stays as it is, or takes its
-- default on a new rail. Null clears a field that may be empty: max_in_flight, key_memory_seconds.
-- Whether the rail is paused is not part of it: see pause_payment_rail and resume_payment_rail.
-- Locks: the policy lock alone: waits for the claims under way, and they for it.
-- Raises: P7005, 25000 outside READ COMMITTED, 55P03 while a worker forgets to commit. For: symphony_operator.
create or replace function symphony.set_payment_rail(p_rail_type text, p_policy jsonb, p_actor text, p_reason text)
  returns symphony.payment_rails
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_known  constant text[] := array['max_attempts', 'backoff_base_seconds', 'backoff_cap_seconds', 'ordered', 'max_in_flight',
                                    'on_unknown', 'key_memory_seconds'];
  v_before payment_rails;
  v_after  payment_rails;
  v_field  text;
  v_value  jsonb;
begin
  perform check_argument('p_rail_type', p_rail_type, 200);
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  if p_policy is null or jsonb_typeof(p_policy) <> 'object' then
    raise exception 'p_policy must be a JSON object' using errcode = 'P7005';
  end if;
  for v_field, v_value in select e.key, e.value from jsonb_each(p_policy) e loop
    if v_field <> all (v_known) then
      raise exception 'p_policy has no field %', v_field
        using errcode = 'P7005',
              hint = format('The fields are %s.', array_to_string(v_known, ', '));
    elsif v_field = 'ordered' and jsonb_typeof(v_value) <> 'boolean'
       or v_field = 'on_unknown' and (v_value #>> '{}' in ('INQUIRE', 'RESEND', 'STOP')) is not true
       or v_field not in ('ordered', 'on_unknown')
          and not (jsonb_typeof(v_value) = 'number' and v_value #>> '{}' ~ '^[0-9]{1,9}$')
          and not (jsonb_typeof(v_value) = 'null' and v_field in ('max_in_flight', 'key_memory_seconds')) then
      raise exception 'p_policy: % cannot be %', v_field, left(v_value::text, 40)
        using errcode = 'P7005',
              hint = 'ordered is true or false; on_unknown is INQUIRE, RESEND or STOP; the others are whole numbers.';
    end if;
  end loop;

  perform check_isolation();
  perform take_rail_policy_lock();
  select r.* into v_before from payment_rails r where r.rail_type = p_rail_type;

  -- Starts from the rail as it is, or from the defaults of the table.
  if v_before.rail_type is null then
    insert into payment_rails (rail_type, updated_by) values (p_rail_type, p_actor);
  end if;
  begin
    update payment_rails r
    set max_attempts = coalesce((p_policy ->> 'max_attempts')::int, r.max_attempts),
        backoff_base_seconds = coalesce((p_policy ->> 'backoff_base_seconds')::int, r.backoff_base_seconds),
        backoff_cap_seconds = coalesce((p_policy ->> 'backoff_cap_seconds')::int, r.backoff_cap_seconds),
        ordered = coalesce((p_policy ->> 'ordered')::boolean, r.ordered),
        on_unknown = coalesce(p_policy ->> 'on_unknown', r.on_unknown),
        max_in_flight = case when p_policy ? 'max_in_flight' then (p_policy ->> 'max_in_flight')::int else r.max_in_flight end,
        key_memory_seconds = case when p_policy ? 'key_memory_seconds' then (p_policy ->> 'key_memory_seconds')::int else r.key_memory_seconds end,
        updated_by = p_actor,
        updated_at = clock_timestamp()
    where r.rail_type = p_rail_type
    returning r.* into v_after;
  exception when check_violation then
    -- The constraints are named after the field that they bound.
    get stacked diagnostics v_field = constraint_name;
    raise exception 'p_policy: % is out of range', (select k.field from unnest(v_known) as k (field) where v_field like '%' || k.field || '%')
      using errcode = 'P7005',
            hint = 'max_attempts is 1 to 20; backoff_base_seconds 1 to 86400; backoff_cap_seconds from the base to 2592000; '
                   'max_in_flight and key_memory_seconds at least 1, or null.';
  end;

  if v_before.max_in_flight is null and v_after.max_in_flight is not null then
    -- Leases that were granted without a cap take seats from now on.
    insert into payment_rail_seats (rail_type, lease_token, outbox_id)
    select p.rail_type, p.lease_token, p.outbox_id
    from payment_outbox_pending p
    where p.rail_type = p_rail_type
      and p.lease_token is not null
    on conflict do nothing;
  elsif v_after.max_in_flight is null then
    delete from payment_rail_seats s where s.rail_type = p_rail_type;
  end if;
  if v_before.ordered and not v_after.ordered then
    -- Nobody waits behind anybody any more.
    update payment_outbox_pending p
    set parked = false
    where p.rail_type = p_rail_type
      and p.parked;
  end if;
  if (v_before.ordered, coalesce(v_before.max_in_flight, 0)) is distinct from (v_after.ordered, coalesce(v_after.max_in_flight, 0)) then
    -- What may be claimed now need not have been a moment ago, and nobody inserts it.
    perform wake_sleepers('outbox_pending');
  end if;

  insert into payment_outbox_operations (operation_id, operation, rail_type, policy_before, policy_after, actor, reason)
  values (uuidv7(), 'SET_RAIL', p_rail_type, case when v_before.rail_type is not null then to_jsonb(v_before) end, to_jsonb(v_after),
          p_actor, p_reason);
  return v_after;
end
$$;

comment on function symphony.set_payment_rail(text, jsonb, text, text) is 'Registers a rail or changes its policy.';

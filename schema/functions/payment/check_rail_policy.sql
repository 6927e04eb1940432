-- Checks a rail policy: refuses what is no JSON object, unknown fields, and values of the wrong type or out of range.
--
-- payment_rails has the same bounds as constraints. This check runs first, so that an invalid policy is reported
-- before any problem of the rail. apply_rail_policy checks that the backoff cap is not below the base and that only an
-- ordered rail holds, because that depends on the rail.
-- Locks: nothing. Raises: P7005. For: register_payment_rail and set_payment_rail.
create or replace function symphony.check_rail_policy(p_policy jsonb)
  returns void
  language plpgsql
  immutable
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_known constant text[] := array['max_attempts', 'backoff_base_seconds', 'backoff_cap_seconds', 'ordered', 'max_in_flight',
                                   'on_unknown', 'key_memory_seconds', 'on_epoch_change',
                                   'publish_outcomes', 'on_failure', 'max_per_second', 'confirm_every_seconds'];
  v_field text;
  v_value jsonb;
begin
  if p_policy is null or jsonb_typeof(p_policy) <> 'object' then
    raise exception 'p_policy must be a JSON object' using errcode = 'P7005';
  end if;
  for v_field, v_value in select e.key, e.value from jsonb_each(p_policy) e loop
    if v_field <> all (v_known) then
      raise exception 'p_policy has no field %', v_field
        using errcode = 'P7005',
              hint = format('The fields are %s.', array_to_string(v_known, ', '));
    elsif v_field in ('ordered', 'publish_outcomes') and jsonb_typeof(v_value) <> 'boolean'
       or v_field = 'on_unknown' and (v_value #>> '{}' in ('INQUIRE', 'RESEND', 'STOP')) is not true
       or v_field = 'on_epoch_change' and (v_value #>> '{}' in ('INQUIRE', 'HOLD')) is not true
       or v_field = 'on_failure' and (v_value #>> '{}' in ('CONTINUE', 'HOLD')) is not true
       or v_field not in ('ordered', 'on_unknown', 'on_epoch_change', 'publish_outcomes', 'on_failure')
          and not (jsonb_typeof(v_value) = 'number' and v_value #>> '{}' ~ '^[0-9]{1,9}$')
          and not (jsonb_typeof(v_value) = 'null' and v_field in ('max_in_flight', 'key_memory_seconds', 'max_per_second')) then
      raise exception 'p_policy: % cannot be %', v_field, left(v_value::text, 40)
        using errcode = 'P7005',
              hint = 'ordered and publish_outcomes are true or false; on_unknown is INQUIRE, RESEND or STOP; on_epoch_change is INQUIRE or HOLD; on_failure is CONTINUE or HOLD; the others are whole numbers.';
    elsif jsonb_typeof(v_value) = 'number' then
      perform check_range('p_policy: ' || v_field, (v_value #>> '{}')::bigint, 1, case v_field
        when 'max_attempts' then 20
        when 'backoff_base_seconds' then 86400
        when 'backoff_cap_seconds' then 2592000
        when 'max_per_second' then 1000000
        when 'confirm_every_seconds' then 2592000
        else 999999999
      end);
    end if;
  end loop;
end
$$;

comment on function symphony.check_rail_policy(jsonb) is 'Raises P7005 for a rail policy with an unknown field, or a value of the wrong type or out of range.';

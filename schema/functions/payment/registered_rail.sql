-- Returns the rail of this name, and refuses a rail that is not registered.
--
-- A retired rail is not registered: its policy cannot change until it is registered again.
-- Locks: nothing. Raises: P7006.
-- For: set_payment_rail, pause_or_resume_rail, retire_payment_rail, recover_epoch, redrive_payment_outbox and enqueue_payment_outbox.
create or replace function symphony.registered_rail(p_rail_type text)
  returns symphony.payment_rails
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_rail payment_rails;
begin
  select r.* into v_rail from payment_rails r where r.rail_type = p_rail_type;
  if v_rail.rail_type is null then
    raise exception 'rail % is not registered', p_rail_type
      using errcode = 'P7006',
            hint = 'Check the spelling: symphony.payment_rail_policies lists the rails. Register a new one with symphony.register_payment_rail.';
  elsif v_rail.retired_at is not null then
    raise exception 'rail % is not registered: it was retired', p_rail_type
      using errcode = 'P7006',
            hint = 'Register it again with symphony.register_payment_rail if it is to be used.';
  end if;
  return v_rail;
end
$$;

comment on function symphony.registered_rail(text) is
  'The rail of this name; raises P7006 if it is not registered, or was retired.';

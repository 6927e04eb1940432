-- Pauses a rail: claims skip it. Dispatches that hold a lease continue.
--
-- Locks: payment_rails in EXCLUSIVE mode. Raises: P7005, P7006, 25000 outside READ COMMITTED, 55P03.
-- For: symphony_operator.
create or replace function symphony.pause_payment_rail(p_rail_type text, p_actor text, p_reason text)
  returns symphony.payment_rails
  language sql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
  select symphony.pause_or_resume_rail(p_rail_type, true, p_actor, p_reason)
$$;

comment on function symphony.pause_payment_rail(text, text, text) is
  'Pauses a rail: claims skip it. Dispatches that hold a lease continue.';

-- Stops handing out work of a rail. What is under a lease already goes on to its end.
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

comment on function symphony.pause_payment_rail(text, text, text) is 'Stops handing out work of a rail. What is under a lease already goes on to its end.';

-- Resumes a paused rail: claims take its rows again.
--
-- Locks: payment_rails in EXCLUSIVE mode. Raises: P7005, P7006, 25000 outside READ COMMITTED, 55P03.
-- For: symphony_operator.
create or replace function symphony.resume_payment_rail(p_rail_type text, p_actor text, p_reason text)
  returns symphony.payment_rails
  language sql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
  select symphony.pause_or_resume_rail(p_rail_type, false, p_actor, p_reason)
$$;

comment on function symphony.resume_payment_rail(text, text, text) is 'Resumes a paused rail: claims take its rows again.';

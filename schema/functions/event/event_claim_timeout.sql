-- Returns how long a claim on an event lasts: 5 minutes. Another processor may take over an older claim.
--
-- The contract of the event lane fixes it. This is the only place that says it.
-- Locks: nothing.
-- For: the claim functions and the views of the event lane; symphony_executor, symphony_operator, symphony_readonly
-- and symphony_auditor, because PostgreSQL calls a view's functions as the reader.
create or replace function symphony.event_claim_timeout()
  returns interval
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return interval '5 minutes';
end
$$;

comment on function symphony.event_claim_timeout() is 'How long a claim on an event lasts.';

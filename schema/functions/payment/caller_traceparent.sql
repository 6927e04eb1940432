-- Returns the W3C trace context that the producer's transaction has set, if it is well-formed.
--
-- A malformed header starts no trace and refuses no payment: W3C says to ignore it.
-- Locks: nothing. For: the enqueue functions.
create or replace function symphony.caller_traceparent()
  returns text
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_given constant text := nullif(current_setting('symphony.traceparent', true), '');
begin
  if v_given ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then
    return v_given;
  end if;
  return null;
end
$$;

comment on function symphony.caller_traceparent() is 'The trace context in the setting symphony.traceparent, or null.';

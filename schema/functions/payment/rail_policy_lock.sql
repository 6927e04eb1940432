-- The advisory lock between rail policy and the work done under it.
--
-- Claims, completions and repairs hold it shared, changes of policy alone. So a policy is
-- constant while a batch is decided, and once a pause has returned nothing more is handed out. All of
-- them are short; enqueues, which last as long as somebody's business transaction, do not take it.
-- Locks: nothing. For: the other functions.
create or replace function symphony.rail_policy_lock()
  returns bigint
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return hashtextextended('symphony.payment_rails', 7006);
end
$$;

comment on function symphony.rail_policy_lock() is 'Number of the advisory lock that keeps rail policy constant while a batch is decided.';

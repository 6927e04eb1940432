-- Returns the key of the wake-up lock: the advisory lock that says that a relayer is idle on a channel.
--
-- An idle relayer holds it exclusively; a producer tries to take it in shared mode. See notify_idle_relayers and
-- acquire_wakeup_lock.
-- Locks: nothing. For: symphony_executor, to unlock it, and the other functions.
create or replace function symphony.wakeup_lock_key(p_channel text)
  returns bigint
  language sql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
  select hashtextextended('symphony.' || p_channel, 7000);
$$;

comment on function symphony.wakeup_lock_key(text) is
  'The key of the advisory lock that a relayer holds while it is idle on a channel.';

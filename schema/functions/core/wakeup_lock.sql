-- The advisory lock that stands for "somebody sleeps on this channel".
--
-- A relayer that sleeps holds it exclusively; a writer tries it shared. See wake_sleepers and arm_wakeup.
-- Locks: nothing. For: symphony_executor, to let go of it, and the other functions.
create or replace function symphony.wakeup_lock(p_channel text)
  returns bigint
  language sql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
  select hashtextextended('symphony.' || p_channel, 7000);
$$;

comment on function symphony.wakeup_lock(text) is 'The advisory lock that a relayer holds while it sleeps on a channel.';

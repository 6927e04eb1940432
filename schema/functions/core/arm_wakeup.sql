-- Says that this session's relayer is about to sleep on a channel: from now on writers call it.
--
-- HELD: this session holds the wake-up lock. Every writer that did not notify has committed, so one more look finds
-- what it wrote; whoever comes later notifies. The lock stays with the session until it is unlocked or ends.
-- SHARED: another session holds it, which is as good: all listeners hear the same calls. Arm again now and then, as
-- that one may wake up or end.
-- NOT_YET: transactions that were open before are still open after p_patience_ms. Look again soon; whoever began after
-- the call did notify, for a lock that is waited for cannot be had shared either.
-- Locks: the wake-up lock, for the session. Raises: P7005. For: symphony_executor.
create or replace function symphony.arm_wakeup(p_channel text, p_patience_ms int)
  returns text
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_key constant bigint := wakeup_lock(p_channel);
begin
  perform check_range('p_patience_ms', p_patience_ms, 1, 60000);
  if pg_try_advisory_lock(v_key) then
    return 'HELD';
  elsif exists (
    select
    from pg_locks l
    where l.locktype = 'advisory'
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.classid = ((v_key >> 32) & 4294967295)::oid
      and l.objid = (v_key & 4294967295)::oid
      and l.objsubid = 1
      and l.mode = 'ExclusiveLock'
      and l.granted)
  then
    return 'SHARED';
  end if;

  perform set_config('lock_timeout', p_patience_ms::text, true);
  perform pg_advisory_lock(v_key);
  return 'HELD';
exception when lock_not_available then
  return 'NOT_YET';
end
$$;

comment on function symphony.arm_wakeup(text, int) is 'Takes the wake-up lock of a channel for a relayer that is about to sleep.';

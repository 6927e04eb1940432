-- Takes the wake-up lock of a channel for a relayer that is about to go idle, so that producers notify it from then
-- on.
--
-- Returns HELD if this session holds the lock now. Every producer that did not notify has committed, so one more claim
-- finds its rows; later producers notify. The session keeps the lock until it unlocks it or ends.
--
-- Returns SHARED if another session holds the lock. That is as good, because every listener receives the same
-- notifications. Call again from time to time: the other session may stop being idle, or end.
--
-- Returns NOT_YET if transactions that were open before the call are still open after p_timeout_ms. Claim again soon.
-- Producers that begin after the call notify, because they cannot take a lock in shared mode while this session waits
-- for it.
-- Locks: the wake-up lock, for the session. Raises: P7005. For: symphony_executor.
create or replace function symphony.acquire_wakeup_lock(p_channel text, p_timeout_ms int)
  returns text
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_key constant bigint := wakeup_lock_key(p_channel);
begin
  perform check_range('p_timeout_ms', p_timeout_ms, 1, 60000);
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

  perform set_config('lock_timeout', p_timeout_ms::text, true);
  perform pg_advisory_lock(v_key);
  return 'HELD';
exception when lock_not_available then
  return 'NOT_YET';
end
$$;

comment on function symphony.acquire_wakeup_lock(text, int) is
  'Takes the wake-up lock of a channel for a relayer that is about to go idle.';

-- Tells whoever sleeps on a channel that there is work, once this transaction commits.
--
-- A commit that notifies takes one lock for the whole server, so nobody is notified who does not sleep. A
-- relayer that sleeps holds the wake-up lock exclusively; a writer tries it shared. If that fails, somebody
-- sleeps, or is about to, and is told. If it succeeds, the writer keeps it until it commits, so that a relayer which
-- then falls asleep has to wait for the lock until the row is visible to its last look.
-- Locks: the wake-up lock, shared, only if it is free. For: the triggers and functions that make work claimable.
create or replace function symphony.wake_sleepers(p_channel text)
  returns void
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if not pg_try_advisory_xact_lock_shared(wakeup_lock(p_channel)) then
    perform pg_notify(p_channel, 'new_work');
  end if;
end
$$;

comment on function symphony.wake_sleepers(text) is 'NOTIFY on a channel, if a relayer sleeps there.';

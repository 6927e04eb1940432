-- Wakes a sleeping relayer when work is committed.
--
-- A commit that notifies takes one lock for the whole server, so nobody is notified who does not sleep.
-- A relayer that sleeps holds the advisory lock below exclusively; a writer tries it shared. If that
-- fails, somebody sleeps and is told. If it succeeds, the writer keeps it until it commits, so that a
-- relayer which then falls asleep has to wait for the lock until the row is visible to its last look.
-- Locks: the wake-up lock, shared, only if it is free. For: the trigger on payment_outbox_pending.
create or replace function symphony.notify_outbox_pending()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if not pg_try_advisory_xact_lock_shared(hashtextextended('symphony.outbox_pending', 7000)) then
    perform pg_notify('outbox_pending', 'new_work');
  end if;
  return null;
end
$$;

comment on function symphony.notify_outbox_pending() is 'Trigger: NOTIFY outbox_pending, if a relayer sleeps.';

-- Wakes a sleeping relayer when work is committed: wake_sleepers for one channel, without a second call at every enqueue.
--
-- Locks: the wake-up lock, shared, only if it is free. For: the trigger on payment_outbox_pending.
create or replace function symphony.notify_outbox_pending()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if not pg_try_advisory_xact_lock_shared(wakeup_lock('outbox_pending')) then
    perform pg_notify('outbox_pending', 'new_work');
  end if;
  return null;
end
$$;

comment on function symphony.notify_outbox_pending() is 'Trigger: NOTIFY outbox_pending, if a relayer sleeps.';

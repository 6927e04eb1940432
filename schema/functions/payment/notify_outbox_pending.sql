-- Notifies an idle relayer when enqueued payments are committed: notify_idle_relayers for one channel, without its
-- call per enqueue.
--
-- Locks: the wake-up lock in shared mode, if it is free. For: the trigger on payment_outbox_pending.
create or replace function symphony.notify_outbox_pending()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if not pg_try_advisory_xact_lock_shared(wakeup_lock_key('outbox_pending')) then
    perform pg_notify('outbox_pending', 'new_work');
  end if;
  return null;
end
$$;

comment on function symphony.notify_outbox_pending() is 'Trigger: NOTIFY outbox_pending, if a relayer is idle.';

-- Wakes a sleeping relayer when work is committed.
--
-- Locks: the wake-up lock, shared, only if it is free. For: the trigger on payment_outbox_pending.
create or replace function symphony.notify_outbox_pending()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  perform wake_sleepers('outbox_pending');
  return null;
end
$$;

comment on function symphony.notify_outbox_pending() is 'Trigger: NOTIFY outbox_pending, if a relayer sleeps.';

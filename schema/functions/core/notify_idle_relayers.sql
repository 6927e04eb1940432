-- Sends a NOTIFY on a channel when this transaction commits, if a relayer is idle there.
--
-- A commit that notifies takes one lock for the whole server, so a notification is sent only to an idle relayer. An
-- idle relayer holds the wake-up lock exclusively; a producer tries to take it in shared mode. If that fails, a
-- relayer is idle or about to be, and is notified. If it succeeds, the producer keeps the lock until it commits: a
-- relayer that goes idle meanwhile waits for the lock, and its last claim then sees the row.
-- Locks: the wake-up lock in shared mode, if it is free. For: the triggers and functions that make rows claimable.
create or replace function symphony.notify_idle_relayers(p_channel text)
  returns void
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if not pg_try_advisory_xact_lock_shared(wakeup_lock_key(p_channel)) then
    perform pg_notify(p_channel, 'new_work');
  end if;
end
$$;

comment on function symphony.notify_idle_relayers(text) is 'Sends a NOTIFY on a channel, if a relayer is idle there.';

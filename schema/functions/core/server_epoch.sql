-- Returns the epoch of this server for a worker that compares it with the newest one it has seen: that whose numbers are given
-- out now. Null on a standby, which refuses the worker's calls itself.
--
-- A promoted server shows the epoch that its first claim will open, so a worker that only completes there learns of it too.
-- A worker that has seen a higher one must not work on this server: it may be an old primary. Each claim returns the
-- epoch in which it was made, in the setting symphony.epoch: see ensure_epoch.
-- Locks: nothing. Raises: nothing. For: symphony_executor.
create or replace function symphony.server_epoch()
  returns bigint
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return case when not pg_is_in_recovery() then number_epoch() end;
end
$$;

comment on function symphony.server_epoch() is
  'The epoch of this server, for a worker that compares it with the newest one it has seen; null on a standby.';

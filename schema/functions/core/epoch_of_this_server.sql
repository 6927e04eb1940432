-- Returns the newest epoch if this server is the one of it; null if the server has changed and no claim has noticed it yet.
--
-- For operations that must not trust a row of an earlier epoch and must not open one: a producer's transaction would hold
-- the locks of advance_epoch.
-- Locks: nothing. For: cancel_payment_outbox and check_key_replacement.
create or replace function symphony.epoch_of_this_server()
  returns bigint
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return (
    select case when (e.timeline, e.system_identifier) = (server_timeline(), (select c.system_identifier from pg_control_system() c)) then e.counter end
    from epoch e
    order by e.counter desc
    limit 1);
end
$$;

comment on function symphony.epoch_of_this_server() is 'The newest epoch; null if it is not the one of this server.';

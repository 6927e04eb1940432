-- Opens a new epoch if this server is not the one of the newest epoch; otherwise does nothing, in 15 µs.
--
-- Every claim calls it first, so that no claim is granted under a wrong epoch. Until the transaction ends, the setting
-- symphony.epoch has the current epoch, and symphony.opened_epoch the one that the claim opened.
-- Locks: nothing while the server stays the same; else see advance_epoch. Raises: as advance_epoch.
-- For: the claims of all lanes and check_worker_history.
create or replace function symphony.ensure_epoch(p_worker_id text)
  returns void
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set enable_seqscan = off
as $$
declare
  v_counter    bigint;
  v_is_current boolean;
begin
  -- Clear the setting of an earlier call in this transaction.
  if current_setting('symphony.opened_epoch', true) <> '' then
    perform set_config('symphony.opened_epoch', '', true);
  end if;
  select e.counter,
         e.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int
         and e.system_identifier = (select s.system_identifier from pg_control_system() s)
  into v_counter, v_is_current
  from epoch e
  order by e.counter desc
  limit 1;
  if v_is_current is not true then
    perform advance_epoch(p_worker_id, null, null);
    v_counter := current_epoch();
  end if;
  perform set_config('symphony.epoch', v_counter::text, true);
end
$$;

comment on function symphony.ensure_epoch(text) is 'Opens a new epoch if this server is not the one of the newest epoch.';

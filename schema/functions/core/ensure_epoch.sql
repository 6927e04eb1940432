-- Opens a new epoch if this server is not the one of the newest epoch; otherwise does nothing.
--
-- Every claim calls it first, or does its first statement itself, so that no claim is granted under a wrong epoch. The
-- timeline and the system identifier are compared each time. The latter is in a file, which is read once after each
-- start of the server: epoch_server has what was read.
--
-- Until the transaction ends, the setting symphony.epoch has the current epoch, and symphony.opened_epoch the one that
-- the claim opened.
-- Locks: nothing while the server stays the same; the row of epoch_server after a start, unless another session has it;
-- with a new epoch as advance_epoch. Raises: as advance_epoch. For: the claims of all lanes and check_worker_history.
create or replace function symphony.ensure_epoch(p_worker_id text)
  returns void
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set enable_seqscan = off
as $$
declare
  v_is_current boolean;
begin
  -- Clear the setting of an earlier call in this transaction.
  if current_setting('symphony.opened_epoch', true) <> '' then
    perform set_config('symphony.opened_epoch', '', true);
  end if;
  select e.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int
         and e.system_identifier = (select s.system_identifier from epoch_server s where s.started_at = pg_postmaster_start_time())
         and set_config('symphony.epoch', e.counter::text, true) is not null
  into v_is_current
  from (select e.counter, e.timeline, e.system_identifier from epoch e order by e.counter desc limit 1) e;
  if v_is_current then
    return;
  end if;

  update epoch_server s
  set started_at = pg_postmaster_start_time(),
      system_identifier = c.system_identifier
  from pg_control_system() c
  where s.ctid = (
    select l.ctid
    from epoch_server l
    where l.started_at <> pg_postmaster_start_time()
    for update skip locked);
  select (e.timeline, e.system_identifier) = (server_timeline(), (select c.system_identifier from pg_control_system() c))
  into v_is_current
  from epoch e
  order by e.counter desc
  limit 1;
  if v_is_current is not true then
    perform advance_epoch(p_worker_id, null, null);
  end if;
  perform set_config('symphony.epoch', current_epoch()::text, true);
end
$$;

comment on function symphony.ensure_epoch(text) is 'Opens a new epoch if this server is not the one of the newest epoch.';

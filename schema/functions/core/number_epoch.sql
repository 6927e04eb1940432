-- Returns the epoch whose numbers are given out now: the newest, or after a promotion the one that the next claim opens.
--
-- Producers work before the first claim finds that the server has been promoted. They neither wait for an epoch nor
-- open one, but their numbers must not be those of rows that the failover may have lost. advance_epoch gives the new
-- epoch the same counter. Producers compare the timeline alone, which is cheap; only claims compare the system identifier.
-- Locks: nothing. Raises: 55000 on a standby. For: number_floor, create_metadata_entry and advance_epoch.
create or replace function symphony.number_epoch()
  returns bigint
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
  set enable_seqscan = off
as $$
declare
  v_counter  bigint;
  v_timeline int;
  v_server   constant int := ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int;
begin
  select e.counter, e.timeline into v_counter, v_timeline from epoch e order by e.counter desc limit 1;
  return case when v_timeline = v_server then v_counter else next_epoch(v_counter, v_server) end;
end
$$;

comment on function symphony.number_epoch() is 'The epoch whose numbers are given out now: the newest, or the one about to be opened.';

-- Returns the counter of the newest epoch.
--
-- Locks: nothing. For: defaults of columns.
create or replace function symphony.current_epoch()
  returns bigint
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
  set enable_seqscan = off
as $$
begin
  return (select e.counter from epoch e order by e.counter desc limit 1);
end
$$;

comment on function symphony.current_epoch() is 'The counter of the newest epoch.';

-- Waits until the transactions that have written to these tables so far have ended. Returns those that stayed open.
--
-- A transaction that has written to a table holds its lock until it ends. One may be prepared while the function waits;
-- it then holds its locks without a session, after a restart even under another id. So the function waits for all
-- prepared transactions that hold the lock. It waits at most p_wait_ms, and then names at most 20 transactions.
-- Locks: nothing. For: audit_export_end and record_ledger_archive.
create or replace function symphony.wait_for_writers(p_tables oid[], p_wait_ms int)
  returns text[]
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_began   constant timestamptz := clock_timestamp();
  v_writers text[];
  v_open    text[];
begin
  v_writers := array(
    select distinct l.virtualtransaction
    from pg_locks l
    where l.locktype = 'relation'
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.relation = any (p_tables)
      and l.mode = 'RowExclusiveLock'
      and l.granted
      and l.pid is distinct from pg_backend_pid());
  loop
    v_open := array(
      select distinct
             case
               when l.pid is not null then format('the transaction of session %s of %s', l.pid, coalesce((
                 select a.usename::text
                 from pg_stat_activity a
                 where a.pid = l.pid), 'an unknown login'))
               else coalesce((
                 select string_agg(format('prepared transaction %L of %s', x.gid, x.owner), ', ')
                 from pg_locks t
                 join pg_prepared_xacts x on x.transaction = t.transactionid
                 where t.locktype = 'transactionid'
                   and t.virtualtransaction = l.virtualtransaction
                   and t.pid is null), 'a prepared transaction')
             end
      from pg_locks l
      where l.locktype = 'relation'
        and l.database = (select d.oid from pg_database d where d.datname = current_database())
        and l.relation = any (p_tables)
        and l.mode = 'RowExclusiveLock'
        and l.granted
        and (l.virtualtransaction = any (v_writers) or l.pid is null)
      limit 20);
    exit when v_open = '{}' or clock_timestamp() >= v_began + make_interval(secs => p_wait_ms / 1000.0);
    perform pg_sleep(0.005);
  end loop;
  return v_open;
end
$$;

comment on function symphony.wait_for_writers(oid[], int) is
  'Waits until the transactions that have written to these tables have ended; returns those that stayed open.';

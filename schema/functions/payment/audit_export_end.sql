-- Returns the time up to which the operations log and the ledger are complete: the end of an audit export.
--
-- A row is dated while its INSERT runs, under a table lock that lasts until its transaction ends. So a row dated
-- before this call is either visible now, or its transaction still holds that lock. The function waits until those
-- transactions have ended. Every later row is dated after the call. It returns the time of the call, or p_until if
-- that is earlier. An export takes the rows dated before it, and the next export starts there: no row is in neither.
--
-- Call it in a statement of its own and read in the next one: a statement does not see what was committed after it
-- began. A transaction may be prepared while the function waits; it then holds its locks without a session, after a
-- restart even under another id. So the function waits for all prepared transactions that hold the lock. A standby
-- does not see the locks of the primary.
-- Locks: nothing.
-- Raises: P7005, 25000 outside READ COMMITTED, 55000 on a standby, 55P03 with the transaction that stays open for
-- longer than p_wait_ms.
-- For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.audit_export_end(p_until timestamptz, p_wait_ms int default 5000)
  returns timestamptz
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_tables  constant oid[] := array['symphony.payment_outbox_operations'::regclass, 'symphony.payment_outbox_attempts'::regclass];
  v_now     timestamptz;
  v_writers text[];
  v_open    text[];
begin
  if p_until is null then
    raise exception 'p_until must not be null' using errcode = 'P7005';
  end if;
  perform check_range('p_wait_ms', p_wait_ms, 0, 60000);
  if pg_is_in_recovery() then
    raise exception 'a standby cannot tell which transactions of the primary are still open'
      using errcode = '55000',
            hint = 'Export from the primary.';
  end if;
  perform check_isolation();

  -- The time first, then the locks: a transaction that takes its lock after this line dates its rows later.
  v_now := clock_timestamp();
  v_writers := array(
    select distinct l.virtualtransaction
    from pg_locks l
    where l.locktype = 'relation'
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.relation = any (v_tables)
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
        and l.relation = any (v_tables)
        and l.mode = 'RowExclusiveLock'
        and l.granted
        and (l.virtualtransaction = any (v_writers) or l.pid is null)
      limit 20);
    exit when v_open = '{}';
    if clock_timestamp() >= v_now + make_interval(secs => p_wait_ms / 1000.0) then
      raise exception 'records dated before this export may still be committed: % is still open', array_to_string(v_open, ', ')
        using errcode = '55P03',
              hint = 'Wait until that transaction has ended, or end it: pg_terminate_backend for a session, '
                     'commit or rollback prepared for a prepared transaction. Then export again.';
    end if;
    perform pg_sleep(0.005);
  end loop;
  return least(p_until, v_now);
end
$$;

comment on function symphony.audit_export_end(timestamptz, int) is
  'The time before which the operations log and the ledger are complete, at most p_until. Waits for open transactions that have written to them.';

-- Returns the time up to which the operations log and the ledger are complete: the end of an audit export.
--
-- A row is dated while its INSERT runs, under a table lock that lasts until its transaction ends. So a row dated
-- before this call is either visible now, or its transaction still holds that lock. The function waits until those
-- transactions have ended. Every later row is dated after the call. It returns the time of the call, or p_until if
-- that is earlier. An export takes the rows dated before it, and the next export starts there: no row is in neither.
--
-- Call it in a statement of its own and read in the next one: a statement does not see what was committed after it
-- began. A standby does not see the locks of the primary.
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
  v_open := wait_for_writers(v_tables, p_wait_ms);
  if v_open <> '{}' then
    raise exception 'records dated before this export may still be committed: % is still open', array_to_string(v_open, ', ')
      using errcode = '55P03',
            hint = 'Wait until that transaction has ended, or end it: pg_terminate_backend for a session, '
                   'commit or rollback prepared for a prepared transaction. Then export again.';
  end if;
  return least(p_until, v_now);
end
$$;

comment on function symphony.audit_export_end(timestamptz, int) is
  'The time before which the operations log and the ledger are complete, at most p_until. Waits for open transactions that have written to them.';

-- Returns the transactions that hold payment_rails against a change of a rail or a new epoch, at most 1,000.
--
-- Claims, completions and repairs hold it for milliseconds. A worker that leaves its transaction open holds it on: then a change
-- of a rail and a new epoch are refused after a few seconds, and so is every claim on a server that was promoted. No single wait
-- lasts long, so longest_lock_wait does not show it. A caller that finds a transaction_key again knows that its transaction is
-- still open; a login cannot see since when that of another is. pid is 0 for a prepared transaction.
-- Locks: nothing. Raises: nothing. For: symphony_executor, symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.rail_policy_lock_holders()
  returns table (
    pid             int,
    application     text,
    transaction_key text)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
#variable_conflict use_column
begin
  return query
    select distinct coalesce(l.pid, 0), coalesce(a.application_name, ''), l.virtualtransaction
    from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'relation'
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.relation = 'symphony.payment_rails'::regclass
      and l.mode <> 'AccessShareLock'
      and l.granted
      and l.pid is distinct from pg_backend_pid()
    limit 1000;
end
$$;

comment on function symphony.rail_policy_lock_holders() is
  'The transactions that hold payment_rails against a change of a rail or a new epoch.';

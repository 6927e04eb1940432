-- Waits until no claim, completion or repair is under way, and keeps them out until the policy has changed.
--
-- Claims, completions and repairs take the table of rails in ROW SHARE mode, changes of policy in EXCLUSIVE mode. So a policy is constant while a
-- batch is decided, and once a pause has returned nothing more is leased under the old one. Only the owner's functions can reach these locks: see
-- docs/decisions/0007-locks-outsiders-cannot-take.md. Enqueues, which last as long as a producer's transaction, only read the table and wait for neither.
-- Workers are short, so this is too, and so must be what follows: a transaction that then sits idle for five seconds is ended.
-- But while it waits, those that come later wait behind it. A worker that left its
-- transaction open must not stop the whole fleet for longer than a moment: after three seconds the
-- change is refused instead.
-- Locks: payment_rails in EXCLUSIVE mode. Raises: 55P03. For: the functions that change a rail.
create or replace function symphony.take_rail_policy_lock()
  returns void
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '3s'
as $$
begin
  lock table payment_rails in exclusive mode;
  -- The fleet waits until the operator commits: who forgets to is cut off.
  if (select s.setting::int = 0 or s.setting::int > 5000 from pg_settings s where s.name = 'idle_in_transaction_session_timeout') then
    perform set_config('idle_in_transaction_session_timeout', '5s', true);
  end if;
exception when lock_not_available then
  raise exception 'a worker''s transaction has been open for more than three seconds, and the policy cannot change under it'
    using errcode = '55P03',
          hint = 'Find it with: select a.pid, a.usename, a.state, a.xact_start from pg_locks l join pg_stat_activity a using (pid) '
                 'where l.relation = ''symphony.payment_rails''::regclass and a.datname = current_database() and l.mode <> ''AccessShareLock'' '
                 'and l.granted order by a.xact_start; '
                 'end it, and call again. Nothing was changed.';
end
$$;

comment on function symphony.take_rail_policy_lock() is 'Locks the table of rails against claims, completions and repairs, or raises 55P03 after three seconds.';

-- Locks all rail policies for a change: waits for claims, completions and repairs under way, and keeps new ones out
-- until it commits.
--
-- Claims, completions and repairs take payment_rails in ROW SHARE mode, policy changes in EXCLUSIVE mode. So a policy
-- is constant during a batch, and after a pause has returned no row is leased under the old policy. Only the owner's
-- functions can take these locks; see docs/decisions/0007-locks-outsiders-cannot-take.md. Enqueues last as long as a
-- producer's transaction; they only read the table and wait for neither.
--
-- While this waits, later claims and completions wait behind it. A worker that left its transaction open must not stop
-- the whole fleet, so the change is refused after three seconds. For the same reason the operator's transaction is
-- ended after it has been idle for five seconds.
-- Locks: payment_rails in EXCLUSIVE mode. Raises: 55P03. For: the functions that change a rail, and move_rails_to_epoch.
create or replace function symphony.lock_rail_policies()
  returns void
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '3s'
as $$
begin
  lock table payment_rails in exclusive mode;
  -- All workers wait until the operator commits: end an idle operator's session.
  if (select s.setting::int = 0 or s.setting::int > 5000 from pg_settings s where s.name = 'idle_in_transaction_session_timeout') then
    perform set_config('idle_in_transaction_session_timeout', '5s', true);
  end if;
exception when lock_not_available then
  raise exception 'a worker''s transaction has held payment_rails for more than three seconds, so no rail was changed'
    using errcode = '55P03',
          hint = 'Find it with: select a.pid, a.usename, a.state, a.xact_start from pg_locks l join pg_stat_activity a using (pid) '
                 'where l.relation = ''symphony.payment_rails''::regclass and a.datname = current_database() and l.mode <> ''AccessShareLock'' '
                 'and l.granted order by a.xact_start; '
                 'end that session, and call again.';
end
$$;

comment on function symphony.lock_rail_policies() is
  'Locks payment_rails against claims, completions and repairs, or raises 55P03 after three seconds.';

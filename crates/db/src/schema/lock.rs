//! The locks of an install and of a verification, each with a timeout and an error that names the holder.
//!
//! Any login can take an advisory lock, and any producer can leave a transaction open. Neither may block an install for
//! ever, and an install that waits for a table must not block every enqueue behind it.

use std::time::Duration;

/// The default timeout of an install or a verification for a lock.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The key of the advisory lock that serializes installs in a database.
const INSTALL_LOCK: i64 = 0x73_796d_7068_6f6e;

/// The timeout of one attempt to lock the tables. Producers queue behind it, so it is short. It is below
/// `deadlock_timeout`, so that the install gives way and never a producer.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(500);

/// Describes a session as far as the login may see it. `a` is its row of `pg_stat_activity`.
const SESSION: &str = "\
regexp_replace(
      format('session %s of login %s%s%s', a.pid, coalesce(a.usename::text, 'unknown'),
             ', application ' || nullif(a.application_name, ''),
             coalesce(', in a transaction since ' || date_trunc('second', a.xact_start)::text,
                      ', connected since ' || date_trunc('second', a.backend_start)::text, '')),
      '[^ -~]', '?', 'g')";

/// The hint of a lock timeout.
const LOCK_HINT: &str = "Let that session end its transaction or disconnect, then run this again. An administrator can end it \
                          with: select pg_terminate_backend(%s);";

/// The sessions that hold the install lock.
fn holders() -> String {
    let (high, low) = (INSTALL_LOCK >> 32, INSTALL_LOCK & 0xffff_ffff);
    format!(
        "from pg_locks l
    join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'advisory' and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.classid = '{high}'::oid and l.objid = '{low}'::oid and l.objsubid = 1 and l.granted and l.pid <> pg_backend_pid()"
    )
}

/// Takes the install lock until the transaction ends, and sets the same `lock_timeout` for later statements.
///
/// Needs `search_path = pg_catalog, pg_temp`. Raises 55P03 with the holder.
pub(super) fn take_exclusive(limit: Duration) -> String {
    take("pg_advisory_xact_lock", "", limit)
}

/// Waits for a running install. Ignores a holder whose login cannot install: the key of the lock is public, and any
/// login that takes it must not keep relayers from starting.
pub(super) fn take_shared(limit: Duration) -> String {
    let may_install = format!(
        "
  if pg_try_advisory_xact_lock_shared({INSTALL_LOCK}) then
    return;
  end if;
  if not exists (
    select {holders}
      and exists (select from pg_roles r
                  where r.oid = a.usesysid
                    and (r.rolsuper or r.rolcreaterole or pg_has_role(r.oid, to_regrole('symphony_control'), 'MEMBER')))
  ) then
    return;
  end if;",
        holders = holders(),
    );
    take("pg_advisory_xact_lock_shared", &may_install, limit)
}

fn take(function: &str, first: &str, limit: Duration) -> String {
    format!(
        "
do $lock$
declare
  v_holders text;
  v_pids text;
begin
  perform set_config('lock_timeout', '{limit}ms', true);{first}
  begin
    perform {function}({INSTALL_LOCK});
  exception when lock_not_available then
    select string_agg({SESSION}, '; ' order by a.pid), min(a.pid)::text into v_holders, v_pids
    {holders};
    raise exception 'the install lock of this database was not free within {limit} ms: %', coalesce(v_holders, 'its holder has just left')
      using errcode = '55P03', hint = format('{LOCK_HINT}', coalesce(v_pids, 'pid'));
  end;
end
$lock$;
",
        limit = milliseconds(limit),
        holders = holders(),
    )
}

/// Locks every table and view of the owner in Symphony's schemas, all or none, before the install checks or changes
/// them.
///
/// Later statements then wait for no lock, and no session can add a trigger between the check and the use. Each attempt
/// is short and releases all locks, so a long transaction delays producers by at most half a second at a time. Run it
/// as the owner.
pub(super) fn take_relations(limit: Duration) -> String {
    format!(
        "
do $locks$
declare
  v_until constant timestamptz := clock_timestamp() + interval '{limit} milliseconds';
  v_relation record;
  v_holders text;
  v_pids text;
begin
  perform set_config('lock_timeout', '{tries}ms', true);
  loop
    begin
      for v_relation in
        select c.oid, n.nspname, c.relname
        from pg_class c
        join pg_namespace n on n.oid = c.relnamespace
        where n.nspname in ('symphony', 'm10_recovery')
          and n.nspowner = to_regrole('symphony_control')
          and c.relowner = to_regrole('symphony_control')
          and c.relkind in ('r', 'p', 'v')
        -- Tables first: locking a view locks what it reads.
        order by c.relkind = 'v', n.nspname, c.relname
      loop
        execute format('lock table %I.%I in access exclusive mode', v_relation.nspname, v_relation.relname);
      end loop;
      exit;
    exception when lock_not_available or deadlock_detected then
      if clock_timestamp() >= v_until then
        select string_agg({SESSION}, '; ' order by a.xact_start nulls last, a.pid), (array_agg(a.pid order by a.xact_start nulls last, a.pid))[1]::text
        into v_holders, v_pids
        from pg_stat_activity a
        where a.pid in (select l.pid from pg_locks l
                        where l.locktype = 'relation' and l.relation = v_relation.oid and l.granted
                          and l.database = (select d.oid from pg_database d where d.datname = current_database())
                          and l.pid <> pg_backend_pid());
        raise exception '%.% was in use for {limit} ms: %', v_relation.nspname, v_relation.relname, coalesce(v_holders, 'by short transactions')
          using errcode = '55P03', hint = format('{LOCK_HINT}', coalesce(v_pids, 'pid'));
      end if;
      perform pg_sleep(0.05);
    end;
  end loop;
  perform set_config('lock_timeout', '{limit}ms', true);
end
$locks$;
",
        limit = milliseconds(limit),
        tries = milliseconds(ATTEMPT_TIMEOUT.min(limit)),
    )
}

/// At least 1, because 0 means no timeout.
fn milliseconds(limit: Duration) -> u128 {
    limit.as_millis().clamp(1, i32::MAX as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_without_end() {
        assert!(take_exclusive(Duration::ZERO).contains("'lock_timeout', '1ms'"));
        assert!(take_shared(Duration::MAX).contains("'lock_timeout', '2147483647ms'"));
    }
}

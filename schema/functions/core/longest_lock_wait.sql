-- Returns the session that has waited longest for a lock on a table of ours, and a session that it waits for; nothing if
-- none waits.
--
-- Producers of one participant wait for each other, for as long as a transaction stays open. A session that waits for a row
-- waits for its transaction, and holds the lock of the tuple. One that inserts a key of another transaction holds no such
-- lock: then the table is one of ours that it writes to. The applications are what the clients gave. blocking_pid is 0
-- for a prepared transaction. Waits for other tables are left out.
-- Locks: nothing. Raises: nothing. For: symphony_executor, symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.longest_lock_wait()
  returns table (
    waiting_seconds      double precision,
    waiting_pid          int,
    waiting_application  text,
    blocking_pid         int,
    blocking_application text,
    table_name           text)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return query
    with ours as materialized (
      select c.oid, c.relname, format('%I.%I', n.nspname, c.relname) as table_name
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
      where n.nspname in ('symphony', 'm10_recovery')
        and c.relkind in ('r', 'p')
    ),
    locks as materialized (
      select l.pid, l.locktype, l.relation, l.mode, l.granted, l.waitstart
      from pg_locks l
      where l.database is null
         or l.database = (select d.oid from pg_database d where d.datname = current_database())
    ),
    waits as (
      select w.pid, w.waitstart as since,
             coalesce(
               w.relation,
               (select t.relation from locks t where t.pid = w.pid and t.locktype = 'tuple' and t.granted limit 1),
               (select t.relation
                from locks t
                join ours o on o.oid = t.relation
                where t.pid = w.pid
                  and t.locktype = 'relation'
                  and t.mode = 'RowExclusiveLock'
                  and t.granted
                order by o.relname <> 'participant_outbox_sequences'
                limit 1)) as relation
      from locks w
      where not w.granted
        and w.waitstart is not null
        and w.locktype in ('relation', 'tuple', 'transactionid')
    )
    select greatest(extract(epoch from clock_timestamp() - w.since), 0)::double precision, w.pid, coalesce(a.application_name, ''),
           b.pid, coalesce(h.application_name, ''), w.table_name
    from (select w.pid, w.since, o.table_name from waits w join ours o on o.oid = w.relation order by w.since limit 1) w
    cross join lateral (select (pg_blocking_pids(w.pid))[1] as pid) b
    left join pg_stat_activity a on a.pid = w.pid
    left join pg_stat_activity h on h.pid = b.pid
    where b.pid is not null;
end
$$;

comment on function symphony.longest_lock_wait() is
  'The session that has waited longest for a lock on a table of ours, and a session that it waits for.';

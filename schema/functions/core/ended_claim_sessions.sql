-- Returns those of these names of claims whose claim session has ended: no process of theirs has the right to go on.
--
-- A name ends with the mark of open_claim_session, and a suffix of a claim or none. The session has ended if this server has
-- not been restarted since it gave the mark, and no session holds its lock. A name without a mark, or with one of another
-- server or an earlier start, is not returned: after a failover or a restart no session says anything about a relayer, so such
-- claims last as long as the contract says. Any login can take an advisory lock: that only delays this answer. A mark is never
-- given twice, so what has ended stays ended.
-- Locks: nothing. Raises: nothing. For: release_abandoned_events.
create or replace function symphony.ended_claim_sessions(p_names text[])
  returns text[]
  language plpgsql
  volatile
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return array(
    select distinct m.name
    from (
      select n.name, regexp_match(n.name, '#([0-9a-f]{1,16})\.([0-9a-f]{16})(#[0-9a-f]{32})?$') as mark
      from unnest(p_names) as n (name)
    ) m
    where m.mark[1] = to_hex((extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint)
      and m.mark[2] not in (
        select lpad(to_hex(l.classid::bigint << 32 | l.objid::bigint), 16, '0')
        from pg_locks l
        where l.locktype = 'advisory'
          and l.objsubid = 1
          and l.granted
          and l.database = (select d.oid from pg_database d where d.datname = current_database())));
end
$$;

comment on function symphony.ended_claim_sessions(text[]) is
  'Those of these names of claims whose claim session has ended on this server.';

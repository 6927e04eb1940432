-- Says which relayers have a session in this database now, whether they hold work or not.
--
-- A relayer names its sessions "symphony run" and then itself, as much of it as fits in 63 characters; so does whoever else says so. A relayer whose address
-- gives its sessions another name is not seen.
-- Locks: nothing. Raises: nothing. For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.connected_relayers()
  returns table (worker_id text, sessions bigint)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return query
    select substr(s.application_name, 14), count(*)
    from pg_stat_activity s
    where s.datname = current_database()
      and starts_with(s.application_name, 'symphony run ')
    group by s.application_name
    order by s.application_name
    limit 1000;
end
$$;

comment on function symphony.connected_relayers() is 'The relayers that have a session in this database, by the name of their sessions, and how many sessions each has.';

-- Lists the relayers that have a session in this database now, with or without claimed rows.
--
-- A relayer sets application_name to "symphony run" and its worker id, cut at 63 characters. Any other client that
-- sets such a name is listed too. A relayer whose connection URL sets another application_name is not listed.
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

comment on function symphony.connected_relayers() is
  'The relayers that have a session in this database, by application_name, and the number of sessions of each.';

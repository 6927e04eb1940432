-- Ends many claims in one statement, each by its own right: one's refusal never undoes another's outcome.
--
-- An outcome is PUBLISHED, or FAILED with an error; a failure that leaves no retries goes on to DLQ. Returns a row for each, in the order
-- given, with the status that the entry has now, and with the SQLSTATE and message of a refusal. The same entry twice: the first is recorded.
-- Locks: the rows, in the order of their ids. Raises: P7005 for arrays that do not fit together, and 55P03 behind a lock that is not
-- let go within 5 s. For: symphony_executor.
create or replace function symphony.complete_metadata_batch(
  p_ids      uuid[],
  p_tokens   uuid[],
  p_outcomes text[],
  p_errors   text[] default null)
  returns table (
    "position"      int,
    id              uuid,
    status          symphony.metadata_status,
    retry_count     int,
    next_retry_at   timestamptz,
    refusal         text,
    refusal_message text)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
as $$
declare
  v_count constant int := coalesce(cardinality(p_ids), 0);
begin
  perform check_range('the number of outcomes', v_count, 1, 1000);
  if cardinality(p_tokens) is distinct from v_count
     or cardinality(p_outcomes) is distinct from v_count
     or coalesce(cardinality(p_errors), v_count) <> v_count then
    raise exception 'the arrays must have the same number of elements' using errcode = 'P7005';
  end if;

  return query
    with settled as materialized (
      select g.place::int as place, g.id, s.status, s.retry_count, s.next_retry_at, s.refusal, s.refusal_message
      from (
        select *
        from unnest(p_ids, p_tokens, p_outcomes, p_errors) with ordinality as g (id, token, outcome, error, place)
        order by g.id, g.place
      ) g
      cross join lateral settle_metadata_claim(
        g.id, g.token,
        case when g.outcome in ('PUBLISHED', 'FAILED') then g.outcome::symphony.metadata_status end,
        g.error, true) s
    )
    select * from settled s order by s.place;
end
$$;

comment on function symphony.complete_metadata_batch(uuid[], uuid[], text[], text[]) is
  'Ends many claims as PUBLISHED or FAILED, with a result or a refusal for each; what has no retries left goes to DLQ.';

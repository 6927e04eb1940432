-- Completes many claims in one statement; the refusal of one never undoes the outcome of another.
--
-- An outcome is PUBLISHED, or FAILED with an error; a failure without retries left moves on to DLQ. Returns one row
-- per outcome, in the order given: the status that the entry has now, or the SQLSTATE and message of a refusal. If an
-- entry is given twice, the first outcome is recorded.
-- Locks: the rows under these tokens: first the published ones, then the failed ones, each in the order of their ids.
-- Raises: P7005 for arrays of different length, 55P03 after 5 s behind a lock. For: symphony_executor.
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
#variable_conflict use_column
declare
  v_count     constant int := coalesce(cardinality(p_ids), 0);
  -- The entries that were published together, and the retry_count of each.
  v_published uuid[];
  v_retries   int[];
begin
  perform check_range('the number of outcomes', v_count, 1, 1000);
  if cardinality(p_tokens) is distinct from v_count
     or cardinality(p_outcomes) is distinct from v_count
     or coalesce(cardinality(p_errors), v_count) <> v_count then
    raise exception 'the arrays must have the same number of elements' using errcode = 'P7005';
  end if;

  -- Most outcomes are PUBLISHED: record those in one statement.
  select array_agg(p.id), array_agg(p.retry_count)
  into v_published, v_retries
  from (
    select array_agg(g.id) as ids, array_agg(g.token) as tokens
    from (
      select distinct on (g.id) g.id, g.token, g.outcome
      from unnest(p_ids, p_tokens, p_outcomes) with ordinality as g (id, token, outcome, place)
      order by g.id, g.place
    ) g
    where g.outcome = 'PUBLISHED'
  ) g
  cross join lateral publish_metadata_claims(g.ids, g.tokens) p;

  return query
    with given as materialized (
      select g.place::int as place, g.id, g.token, g.outcome, g.error, p.id is not null as published, p.retry_count
      from (
        select g.*, row_number() over (partition by g.id order by g.place) as turn
        from unnest(p_ids, p_tokens, p_outcomes, p_errors) with ordinality as g (id, token, outcome, error, place)
      ) g
      left join unnest(v_published, v_retries) as p (id, retry_count) on p.id = g.id and g.turn = 1
    ),
    completed as materialized (
      select g.place, g.id, s.status, s.retry_count, s.next_retry_at, s.refusal, s.refusal_message
      from (select * from given g where not g.published order by g.id, g.place) g
      cross join lateral try_complete_metadata_claim(
        g.id, g.token,
        case when g.outcome in ('PUBLISHED', 'FAILED') then g.outcome::symphony.metadata_status end,
        g.error, true) s
    )
    select g.place, g.id, 'PUBLISHED'::symphony.metadata_status, g.retry_count, null::timestamptz, null::text, null::text
    from given g
    where g.published
    union all
    select * from completed
    order by 1;
end
$$;

comment on function symphony.complete_metadata_batch(uuid[], uuid[], text[], text[]) is
  'Completes many claims as PUBLISHED or FAILED, with a result or a refusal for each; without retries left a failure moves to DLQ.';

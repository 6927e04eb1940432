-- Records the results of many events in one call; the refusal of one never undoes the result of another.
--
-- The rules are those of complete_outbox_event. Returns one row per event, in the order given: the SQLSTATE and message
-- of a refusal, or nulls. If an event is given twice, the first result is recorded. With p_with_next each row also
-- says which event of its aggregate is the first that is unprocessed now, and whether a processor has claimed it, so
-- that a relayer that keeps order need not ask. It is no part of the contract of m10_recovery, so it is in schema
-- symphony.
-- Locks: the rows of these events: first the published ones, then the others, each in the order of their ids.
-- Raises: P7005 for arrays of different length, 55P03 after 5 s behind a lock. For: symphony_executor.
create or replace function symphony.complete_event_batch(
  p_event_ids     bigint[],
  p_processor_ids text[],
  p_successes     boolean[],
  p_errors        text[] default null,
  p_with_next     boolean default false)
  returns table (
    "position"      int,
    event_id        bigint,
    refusal         text,
    refusal_message text,
    next_event_id   bigint,
    next_is_claimed boolean)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_count     constant int := coalesce(cardinality(p_event_ids), 0);
  -- The events that were completed together, and the refusals of all others by position.
  v_published bigint[];
  v_positions int[] := '{}';
  v_refusals  text[] := '{}';
  v_messages  text[] := '{}';
begin
  perform check_range('the number of events', v_count, 1, 1000);
  if cardinality(p_processor_ids) is distinct from v_count
     or cardinality(p_successes) is distinct from v_count
     or coalesce(cardinality(p_errors), v_count) <> v_count then
    raise exception 'the arrays must have the same number of elements' using errcode = 'P7005';
  end if;

  -- Most events were published, without an error to keep: complete those in one statement.
  select array(select * from complete_published_events(g.ids, g.processor_ids))
  into v_published
  from (
    select array_agg(g.id order by g.id) as ids, array_agg(g.processor_id order by g.id) as processor_ids
    from (
      select distinct on (g.id) g.id, g.processor_id, g.success and g.error is null as is_plain_success
      from unnest(p_event_ids, p_processor_ids, p_successes, p_errors) with ordinality as g (id, processor_id, success, error, place)
      order by g.id, g.place
    ) g
    where g.is_plain_success
  ) g;

  if cardinality(v_published) = v_count and not p_with_next then
    return query
      select g.place::int, g.id, null::text, null::text, null::bigint, null::boolean
      from unnest(p_event_ids) with ordinality as g (id, place);
    return;
  end if;
  if cardinality(v_published) < v_count then
    select array_agg(e.place), array_agg(e.refusal), array_agg(e.refusal_message)
    into v_positions, v_refusals, v_messages
    from (
      select g.place, s.refusal, s.refusal_message
      from (
        select *
        from (
          select g.*, row_number() over (partition by g.id order by g.place) as turn
          from unnest(p_event_ids, p_processor_ids, p_successes, p_errors) with ordinality as g (id, processor_id, success, error, place)
        ) g
        left join unnest(v_published) as p (published_id) on p.published_id = g.id and g.turn = 1
        where p.published_id is null
        order by g.id, g.place
      ) g
      cross join lateral try_complete_event(g.id, g.processor_id, g.success, g.error) s
    ) e;
  end if;

  return query
    select g.place::int, g.id, r.refusal, r.refusal_message, n.id, n.is_claimed
    from unnest(p_event_ids) with ordinality as g (id, place)
    left join unnest(v_positions, v_refusals, v_messages) as r (place, refusal, refusal_message) on r.place = g.place
    left join lateral (
      select n.id, n.claimed_at is not null as is_claimed
      from (
        select o.aggregate_type, o.aggregate_id
        from m10_recovery.outbox o
        where o.id = g.id
        limit 1
      ) o
      cross join lateral (
        select e.aggregate_type, e.aggregate_id, e.id, e.claimed_at
        from m10_recovery.outbox_unprocessed e
        where (e.aggregate_type, e.aggregate_id) >= (o.aggregate_type, o.aggregate_id)
        order by e.aggregate_type, e.aggregate_id, e.id
        limit 1
      ) n
      where n.aggregate_type = o.aggregate_type
        and n.aggregate_id = o.aggregate_id
    ) n on p_with_next
    order by g.place;
end
$$;

comment on function symphony.complete_event_batch(bigint[], text[], boolean[], text[], boolean) is
  'Records the results of many events, with a refusal or none for each.';

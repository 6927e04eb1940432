-- Completes published events in one statement. try_complete_event does the same for one event, with its error.
--
-- Returns the events whose claims these processors hold. The others have not changed; try_complete_event explains why.
-- Each event must be given once. One statement for many events is faster, because PostgreSQL reads and compiles the
-- table's constraints and index predicates once per statement. The condition on processed_at is hidden from the
-- planner, which could otherwise read a partial index of all unprocessed events for each id.
-- Locks: the rows, in the order given, and those that unpark_next_events puts back.
-- For: complete_event_batch.
create or replace function symphony.complete_published_events(p_event_ids bigint[], p_processor_ids text[])
  returns setof bigint
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
as $$
begin
  return query
    update m10_recovery.outbox o
    set processed_at = now()
    from unnest(p_event_ids, p_processor_ids) as g (id, processor_id)
    where o.id = g.id
      and g.processor_id = case when o.processed_at is null then o.claimed_by end
    returning o.id;
  perform unpark_next_events(p_event_ids)
  where exists (select from m10_recovery.outbox_unprocessed p where p.is_parked order by p.aggregate_id, p.aggregate_type, p.id limit 1);
end
$$;

comment on function symphony.complete_published_events(bigint[], text[]) is
  'Completes published events, and returns those whose claims these processors held.';

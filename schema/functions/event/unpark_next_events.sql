-- Puts parked events back into the order of claims once they are first in their aggregates.
--
-- park_events_behind parks an event behind a head that waits for its retry. When an event is processed, the next of
-- its aggregate that no processor has claimed is put back if it is parked. It passes over claimed events, because two
-- of them may be completed at the same moment, each unseen by the other. See docs/decisions/0010-parked-events.md.
-- Locks: the rows that it puts back; it waits for none. Returns how many those were.
-- For: complete_published_events, try_complete_event and unpark_stranded_events.
create or replace function symphony.unpark_next_events(p_event_ids bigint[])
  returns int
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
declare
  v_next bigint[];
begin
  v_next := array(
    select l.id
    from (
      select distinct e.aggregate_type, e.aggregate_id
      from unnest(p_event_ids) as g (id)
      cross join lateral (
        select o.aggregate_type, o.aggregate_id
        from m10_recovery.outbox o
        where o.id = g.id
        limit 1
      ) e
    ) a
    -- Few aggregates have a parked event, and this index has only those.
    cross join lateral (
      select p.aggregate_type, p.aggregate_id, p.id, p.row_id
      from m10_recovery.outbox_unprocessed p
      where p.is_parked
        and (p.aggregate_id, p.aggregate_type) >= (a.aggregate_id, a.aggregate_type)
      order by p.aggregate_id, p.aggregate_type, p.id
      limit 1
    ) p
    cross join lateral (
      select o.id
      from m10_recovery.outbox_unprocessed o
      where o.row_id = p.row_id
        and o.is_parked
        and p.id = (
          select e.id
          from m10_recovery.outbox_unprocessed e
          where (e.aggregate_type, e.aggregate_id) >= (a.aggregate_type, a.aggregate_id)
            and (e.aggregate_type, e.aggregate_id) <= (a.aggregate_type, a.aggregate_id)
            and (e.claimed_at is null or e.id = p.id)
          order by e.aggregate_type, e.aggregate_id, e.id
          limit 1)
      limit 1
      for no key update skip locked
    ) l
    where p.aggregate_type = a.aggregate_type
      and p.aggregate_id = a.aggregate_id);
  update m10_recovery.outbox o
  set process_after = null
  where o.id = any (v_next);
  return cardinality(v_next);
end
$$;

comment on function symphony.unpark_next_events(bigint[]) is
  'Puts the next parked event of each of these events'' aggregates back into the order of claims.';

-- Parks events that wait behind a head whose retry is not due, so that claims in order stop reading them.
--
-- A parked event is unclaimed with process_after 1970: by the contract it is due, so other claims may take it, but
-- claims in order take it as a follower only, until unpark_next_events clears process_after. A failed event that is due
-- and waits behind another is parked the same way. See docs/decisions/0010-parked-events.md.
-- Locks: the parked rows, and their heads FOR SHARE, so that no head is claimed before this has committed; it waits
-- for none. Returns how many it parked, at most 1,000. For: claim_events_in_order.
create or replace function symphony.park_events_behind(p_candidates tid[], p_head_waits interval)
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
  v_parked bigint[];
begin
  v_parked := array(
    select l.id
    from (
      select e.row_id as head_row_id, array_agg(w.row_id) as row_ids
      from unnest(p_candidates) as w (row_id)
      cross join lateral (
        select o.aggregate_type, o.aggregate_id, o.id
        from m10_recovery.outbox_unprocessed o
        where o.row_id = w.row_id
          and o.claimed_at is null
          and o.is_parked is not true
        limit 1
      ) o
      cross join lateral (
        select e.aggregate_type, e.aggregate_id, e.id, e.row_id, e.claimed_at, e.process_after
        from m10_recovery.outbox_unprocessed e
        where (e.aggregate_type, e.aggregate_id) >= (o.aggregate_type, o.aggregate_id)
        order by e.aggregate_type, e.aggregate_id, e.id
        limit 1
      ) e
      where e.aggregate_type = o.aggregate_type
        and e.aggregate_id = o.aggregate_id
        and e.id < o.id
        and e.claimed_at is null
        and e.process_after > now() + p_head_waits
      group by e.row_id
    ) h
    cross join lateral (
      select o.id
      from m10_recovery.outbox o
      where o.ctid = h.head_row_id
        and o.processed_at is null
        and o.claimed_at is null
        and o.process_after > now()
      limit 1
      for share skip locked
    ) s
    cross join lateral unnest(h.row_ids) as f (row_id)
    cross join lateral (
      select o.id
      from m10_recovery.outbox o
      where o.ctid = f.row_id
        and o.processed_at is null
        and o.claimed_at is null
      limit 1
      for no key update skip locked
    ) l
    limit 1000);
  update m10_recovery.outbox o
  set process_after = to_timestamp(0)
  where o.id = any (v_parked);
  return cardinality(v_parked);
end
$$;

comment on function symphony.park_events_behind(tid[], interval) is
  'Takes events that wait behind a head whose retry is not due out of the order of claims.';

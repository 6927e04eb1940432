-- Claims a batch of events for one processor so that it can publish the events of each aggregate in order.
--
-- The claim returns heads and followers. A head is a claimable event without an earlier unprocessed event of its
-- aggregate. A follower comes directly behind an event that the same claim returns; there are at most p_max_followers
-- of them. So the claim returns no event that would have to wait for another processor's claim or for a retry delay. A
-- head that has failed before is claimed without followers: if it fails again, no other event goes back with it.
--
-- It looks for heads among the lowest ids first. If it finds too few there, because many events wait behind few heads,
-- it visits the first event of up to 5,000 aggregates; the next claim of the session continues behind them. If that is
-- not enough, it parks events whose head waits for a retry (see park_events_behind) and looks again, four times. Before
-- all that, it puts back parked events that no completion has put back (see unpark_stranded_events). See claim_outbox_events for
-- the processor id, the limit on bytes and the setting symphony.taken_over_claims. It is no part
-- of the contract of m10_recovery, so it is in schema symphony. The first claim on another server opens a new epoch; see
-- ensure_epoch.
-- Locks: when the server has changed, those of advance_epoch; the rows it returns or parks, and some that it does neither; it waits
-- for no row.
-- Raises: P7005; with a new epoch 25000 outside READ COMMITTED and 55P03.
-- For: symphony_executor.
create or replace function symphony.claim_events_in_order(
  p_processor_id  text,
  p_batch_size    integer,
  p_max_followers integer)
  returns table (
    id             bigint,
    aggregate_type text,
    aggregate_id   text,
    event_type     text,
    payload        jsonb,
    retry_count    int)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
as $$
#variable_conflict use_column
declare
  v_window        int;
  -- Whether there are more candidates than the window holds, and whether stale claims are among them.
  v_window_full   boolean;
  v_has_stale     boolean;
  v_candidates    tid[];
  v_firsts        tid[];
  v_heads         tid[] := '{}';
  -- How many events were parked because their head waits for a retry.
  v_parked        int := 0;
  -- How far the aggregates were visited, and whether from the first one on.
  v_last_type     text;
  v_last_id       text;
  v_from_start    boolean;
  -- The hundreds of aggregates that were visited.
  v_visited       int;
  v_max_followers int;
  -- The heads and followers that are locked, and the ids of those that the claim returns.
  v_locked        tid[];
  v_claimed       bigint[];
  v_sizes         int[];
  v_fitting       int;
begin
  perform check_argument('p_processor_id', p_processor_id, 200);
  perform check_range('p_batch_size', p_batch_size, 1, 1000);
  perform check_range('p_max_followers', p_max_followers, 0, 9999);
  perform ensure_epoch(p_processor_id);
  v_window := greatest(4 * p_batch_size, 200);
  perform unpark_stranded_events();

  -- Aggregates are looked up below as the rows that come next in their index, and compared afterwards. So no other index is of
  -- use, whatever the planner estimates, and no scan continues past the end of an aggregate. See docs/decisions/0003-pinned-plans.md.
  for v_round in 1 .. 4 loop
    select array_agg(w.row_id order by w.id),
           v_window in (count(*) filter (where w.kind = 'fresh'), count(*) filter (where w.kind = 'retry'), count(*) filter (where w.kind = 'stale')),
           count(*) filter (where w.kind = 'stale') > 0
    into v_candidates, v_window_full, v_has_stale
    from (
      (select 'fresh' as kind, o.id, o.row_id
       from m10_recovery.outbox_unprocessed o
       where o.claimed_at is null
         and o.process_after is null
       order by o.id
       limit v_window)
      union all
      (select 'retry', o.id, o.row_id
       from m10_recovery.outbox_unprocessed o
       where o.claimed_at is null
         and o.process_after <= now()
         and o.process_after > to_timestamp(0)
       order by o.process_after, o.id
       limit v_window)
      union all
      (select 'stale', o.id, o.row_id
       from m10_recovery.outbox_unprocessed o
       where o.claimed_at < now() - event_claim_timeout()
         and o.is_claimable
       order by o.claimed_at, o.id
       limit v_window)
    ) w;
    v_heads := v_heads || array(
      select l.row_id
      from unnest(v_candidates) as w (row_id)
      cross join lateral (
        select o.row_id
        from m10_recovery.outbox_unprocessed o
        where o.row_id = w.row_id
          and o.row_id <> all (v_heads)
          and o.is_claimable
          and o.id = (
            select e.id
            from m10_recovery.outbox_unprocessed e
            where (e.aggregate_type, e.aggregate_id) >= (o.aggregate_type, o.aggregate_id)
            order by e.aggregate_type, e.aggregate_id, e.id
            limit 1)
        limit 1
        for update skip locked
      ) l
      limit p_batch_size - cardinality(v_heads));
    v_parked := 0;
    exit when cardinality(v_heads) >= p_batch_size or v_candidates is null;

    -- All candidates of a full window may wait behind a few heads. Then visit the first event of each aggregate, a hundred at a
    -- time, from where this session's last visit ended.
    if v_window_full and v_round = 1 then
      v_last_type := split_part(current_setting('symphony.visited_aggregates', true), E'\x1f', 1);
      v_last_id := split_part(current_setting('symphony.visited_aggregates', true), E'\x1f', 2);
      v_last_type := coalesce(v_last_type, '');
      v_last_id := coalesce(v_last_id, '');
      v_from_start := v_last_type = '';
      for v_hundred in 1 .. 50 loop
        v_visited := v_hundred;
        with recursive firsts as (
          (select e.aggregate_type, e.aggregate_id, e.row_id, 1 as step
           from m10_recovery.outbox_unprocessed e
           where (e.aggregate_type, e.aggregate_id) > (v_last_type, v_last_id)
           order by e.aggregate_type, e.aggregate_id, e.id
           limit 1)
          union all
          select n.aggregate_type, n.aggregate_id, n.row_id, f.step + 1
          from firsts f
          cross join lateral (
            select e.aggregate_type, e.aggregate_id, e.row_id
            from m10_recovery.outbox_unprocessed e
            where (e.aggregate_type, e.aggregate_id) > (f.aggregate_type, f.aggregate_id)
            order by e.aggregate_type, e.aggregate_id, e.id
            limit 1
          ) n
          where f.step < 100
        )
        select array_agg(f.row_id),
               max(f.aggregate_type) filter (where f.step = 100),
               max(f.aggregate_id) filter (where f.step = 100)
        into v_firsts, v_last_type, v_last_id
        from firsts f;
        v_heads := v_heads || array(
          select l.row_id
          from unnest(v_firsts) as w (row_id)
          cross join lateral (
            select o.row_id
            from m10_recovery.outbox_unprocessed o
            where o.row_id = w.row_id
              and o.row_id <> all (v_heads)
              and o.is_claimable
            limit 1
            for update skip locked
          ) l
          limit p_batch_size - cardinality(v_heads));
        if v_last_type is null then
          v_last_type := '';
          v_last_id := '';
          exit when v_from_start;
          v_from_start := true;
        end if;
        exit when cardinality(v_heads) >= p_batch_size;
      end loop;
      perform set_config('symphony.visited_aggregates', v_last_type || E'\x1f' || v_last_id, false);
      -- All that can be found is found, and finding it again costs little.
      exit when cardinality(v_heads) >= p_batch_size or v_visited <= 2;
    end if;

    -- Park what waits for a retry of its head, and look at what is behind it. A wait of up to a second is worth the two
    -- updates only if it hides other events.
    v_parked := park_events_behind(v_candidates, case when v_window_full then interval '0' else interval '1 second' end);
    exit when v_parked = 0 or not v_window_full;
    v_window := greatest(v_window, 1000);
  end loop;

  -- The nearest followers of all heads first, so that every aggregate makes progress.
  v_max_followers := least(p_max_followers, p_batch_size - cardinality(v_heads));
  v_locked := v_heads || array(
    select l.row_id
    from (
      select f.row_id
      from unnest(v_heads) as w (row_id)
      cross join lateral (
        select h.aggregate_type, h.aggregate_id, h.id
        from m10_recovery.outbox_unprocessed h
        where h.row_id = w.row_id
          and h.retry_count = 0
        limit 1
      ) h
      cross join lateral (
        select f.row_id, row_number() over steps as step, bool_and(f.is_claimable) over steps as is_claimable
        from (
          select e.row_id,
                 e.aggregate_type,
                 e.aggregate_id,
                 e.id,
                 e.aggregate_type = h.aggregate_type and e.aggregate_id = h.aggregate_id and e.is_claimable as is_claimable
          from m10_recovery.outbox_unprocessed e
          where (e.aggregate_type, e.aggregate_id, e.id) > (h.aggregate_type, h.aggregate_id, h.id)
          order by e.aggregate_type, e.aggregate_id, e.id
          limit least(v_max_followers, 100)
        ) f
        window steps as (order by f.aggregate_type, f.aggregate_id, f.id)
      ) f
      where f.is_claimable
      order by f.step
      limit v_max_followers
    ) f
    cross join lateral (
      select o.row_id
      from m10_recovery.outbox_unprocessed o
      where o.row_id = f.row_id
        and o.is_claimable
      limit 1
      for update skip locked
    ) l);

  -- Another session may have claimed an event in between, or committed an earlier one since. Locked rows do not change any
  -- more: what is first in its aggregate now stays first.
  v_claimed := array(
    select f.id
    from unnest(v_heads) as w (row_id)
    cross join lateral (
      select h.aggregate_type, h.aggregate_id
      from m10_recovery.outbox_unprocessed h
      where h.row_id = w.row_id
      limit 1
    ) h
    cross join lateral (
      select f.id, bool_and(f.is_locked) over (order by f.aggregate_type, f.aggregate_id, f.id) as is_locked
      from (
        select e.aggregate_type,
               e.aggregate_id,
               e.id,
               e.aggregate_type = h.aggregate_type and e.aggregate_id = h.aggregate_id and e.row_id = any (v_locked) as is_locked
        from m10_recovery.outbox_unprocessed e
        where (e.aggregate_type, e.aggregate_id) >= (h.aggregate_type, h.aggregate_id)
        order by e.aggregate_type, e.aggregate_id, e.id
        limit least(v_max_followers, 100) + 1
      ) f
    ) f
    where f.is_locked
    order by f.id);

  v_sizes := array(
    select case when pg_column_compression(o.payload) is null then pg_column_size(o.payload) else uncompressed_size(o.payload) end
    from m10_recovery.outbox o
    where o.id = any (v_claimed)
    order by o.id);
  -- By id, so that an event is never left out while its follower is claimed.
  v_fitting := rows_within_byte_limit(v_sizes, claim_byte_limit());
  v_claimed := v_claimed[1 : v_fitting];
  -- More may be claimable: what did not fit, or what is hidden by events that the next claim parks.
  if v_fitting < cardinality(v_sizes) or (v_parked > 0 and v_window_full) then
    perform pg_notify('m10_outbox', 'new_work');
  end if;
  if v_has_stale or current_setting('symphony.taken_over_claims', true) <> '' then
    perform set_config('symphony.taken_over_claims', count(*)::text, true)
    from m10_recovery.outbox o
    where o.id = any (v_claimed)
      and o.claimed_at is not null;
  end if;

  update m10_recovery.outbox o
  set claimed_at = now(),
      claimed_by = p_processor_id
  where o.id = any (v_claimed);

  return query
    select o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload, o.retry_count
    from m10_recovery.outbox o
    where o.id = any (v_claimed)
    order by o.id;
end
$$;

comment on function symphony.claim_events_in_order(text, integer, integer) is
  'Claims a batch of events for one processor: the first unprocessed event of an aggregate, and events directly behind it.';

-- Claims a batch of events for one processor, of each sink at most as many as its limit.
--
-- A relayer with several sinks calls it while one of them is at its limit: a claim by number would return more events of that
-- sink, for which no slot is free. p_routes are the routes of the relayer, and the first that matches an event decides:
-- [{"aggregate_type": "order", "event_type": "*", "sink": "nats", "limit": 5}, …]. Of the events without a route it returns one:
-- its processor records that it has none.
--
-- With p_in_order it returns first events of aggregates only, without followers, and first puts back parked events: see
-- claim_events_in_order. Otherwise it keeps no order within an aggregate.
--
-- What waits for a sink at its limit may be a million events. So a claim reads at most four thousand of each kind: retries that
-- are due, stale claims, the newest events, and the others from where the session's last claim stopped. That position, and
-- whether the session has once read all, are in the setting symphony.swept_events. If there may be more to find, the claim
-- sends a notification, so that another one follows at once. See claim_outbox_events for the processor id, the limit on bytes and the setting
-- symphony.taken_over_claims. The first claim on another server opens a new epoch; see ensure_epoch.
-- Locks: when the server has changed, those of advance_epoch; the rows it returns, and some that it does not; it waits for no row.
-- Raises: P7005; with a new epoch 25000 outside READ COMMITTED and 55P03. For: symphony_executor.
create or replace function symphony.claim_events_by_sink(
  p_processor_id text,
  p_batch_size   integer,
  p_in_order     boolean,
  p_routes       jsonb)
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
  -- Up to where the events were read.
  v_swept   bigint := coalesce(nullif(split_part(current_setting('symphony.swept_events', true), ' ', 1), '')::bigint, 0);
  v_all     boolean := coalesce(nullif(split_part(current_setting('symphony.swept_events', true), ' ', 2), '')::boolean, false);
  v_window  int;
  v_more    boolean;
  v_found   tid[];
  v_claimed bigint[];
  v_sizes   int[];
  v_fitting int;
begin
  perform check_argument('p_processor_id', p_processor_id, 200);
  perform check_range('p_batch_size', p_batch_size, 1, 1000);
  perform check_claim_routes(p_routes);
  perform ensure_epoch(p_processor_id);
  if p_in_order then
    perform unpark_stranded_events();
  end if;

  foreach v_window in array array[greatest(4 * p_batch_size, 200), 4000] loop
    with routes as materialized (
      select r.place, r.route ->> 'aggregate_type' as aggregate_type, r.route ->> 'event_type' as event_type, r.route ->> 'sink' as sink,
             (r.route ->> 'limit')::int as most
      from jsonb_array_elements(p_routes) with ordinality as r (route, place)
    ),
    candidates as materialized (
      (select 'swept' as kind, o.id, o.ctid as row_id, o.aggregate_type, o.aggregate_id, o.event_type
       from m10_recovery.outbox o
       where o.processed_at is null
         and o.claimed_at is null
         and o.process_after is null
         and o.id > v_swept
       order by o.id
       limit v_window)
      union all
      (select 'newest', o.id, o.ctid, o.aggregate_type, o.aggregate_id, o.event_type
       from m10_recovery.outbox o
       where o.processed_at is null
         and o.claimed_at is null
         and o.process_after is null
       order by o.id desc
       limit v_window)
      union all
      (select 'retry', o.id, o.ctid, o.aggregate_type, o.aggregate_id, o.event_type
       from m10_recovery.outbox o
       where o.processed_at is null
         and o.claimed_at is null
         and o.process_after <= now()
         and (o.process_after > to_timestamp(0) or not p_in_order)
       order by o.process_after, o.id
       limit v_window)
      union all
      (select 'stale', o.id, o.ctid, o.aggregate_type, o.aggregate_id, o.event_type
       from m10_recovery.outbox o
       where o.processed_at is null
         and o.claimed_at < now() - event_claim_timeout()
         and (o.process_after is null or o.process_after <= now())
       order by o.claimed_at, o.id
       limit v_window)
    ),
    types as materialized (
      select t.aggregate_type, t.event_type, r.sink, coalesce(r.most, 1) as most
      from (select distinct c.aggregate_type, c.event_type from candidates c) t
      left join lateral (
        select r.sink, r.most
        from routes r
        where r.aggregate_type in ('*', t.aggregate_type)
          and r.event_type in ('*', t.event_type)
        order by r.place
        limit 1
      ) r on true
      where coalesce(r.most, 1) > 0
    ),
    firsts as (
      -- An event may be among the swept and the newest ones.
      select distinct on (c.id) c.id, c.row_id, t.sink, t.most
      from candidates c
      join types t on (t.aggregate_type, t.event_type) = (c.aggregate_type, c.event_type)
      where (not p_in_order or c.id = (
          select e.id
          from m10_recovery.outbox_unprocessed e
          where (e.aggregate_type, e.aggregate_id) >= (c.aggregate_type, c.aggregate_id)
          order by e.aggregate_type, e.aggregate_id, e.id
          limit 1))
      order by c.id
    ),
    within_limits as (
      select f.id, f.row_id
      from (select f.*, row_number() over (partition by f.sink order by f.id) as place from firsts f) f
      where f.place <= f.most
      order by f.id
      limit p_batch_size
    )
    select array(select w.row_id from within_limits w order by w.id),
           -- What is left out beyond a limit is read again.
           (select case
                     when l.id is not null then greatest(v_swept, l.id - 1)
                     when count(*) = v_window then max(c.id)
                     else 0
                   end
            from candidates c
            cross join (select min(f.id) as id from firsts f where f.id > v_swept and f.id not in (select w.id from within_limits w)) l
            where c.kind = 'swept'
            group by l.id),
           exists (select from candidates c group by c.kind having count(*) = v_window)
    into v_found, v_swept, v_more;
    v_swept := coalesce(v_swept, 0);
    exit when cardinality(v_found) > 0 or not v_more;
  end loop;
  v_all := v_all or v_swept = 0;
  perform set_config('symphony.swept_events', v_swept || ' ' || v_all, false);

  v_claimed := array(
    select l.id
    from unnest(v_found) as w (row_id)
    cross join lateral (
      select o.id
      from m10_recovery.outbox_unprocessed o
      where o.row_id = w.row_id
        and o.is_claimable
      limit 1
      for update skip locked
    ) l
    order by l.id);
  -- An earlier event may have been committed since. Locked rows do not change any more: what is first now stays first.
  if p_in_order then
    v_claimed := array(
      select c.id
      from unnest(v_claimed) as c (id)
      cross join lateral (
        select o.aggregate_type, o.aggregate_id from m10_recovery.outbox o where o.id = c.id limit 1
      ) o
      where c.id = (
        select e.id
        from m10_recovery.outbox_unprocessed e
        where (e.aggregate_type, e.aggregate_id) >= (o.aggregate_type, o.aggregate_id)
        order by e.aggregate_type, e.aggregate_id, e.id
        limit 1)
      order by c.id);
  end if;
  v_sizes := array(
    select case when pg_column_compression(o.payload) is null then pg_column_size(o.payload) else uncompressed_size(o.payload) end
    from m10_recovery.outbox o
    where o.id = any (v_claimed)
    order by o.id);
  v_fitting := rows_within_byte_limit(v_sizes, claim_byte_limit());
  v_claimed := v_claimed[1 : v_fitting];
  if v_fitting < cardinality(v_sizes) or (v_more and v_fitting > 0) or not v_all then
    perform pg_notify('m10_outbox', 'new_work');
  end if;
  perform set_config('symphony.taken_over_claims', count(*)::text, true)
  from m10_recovery.outbox o
  where o.id = any (v_claimed)
    and o.claimed_at is not null;

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

comment on function symphony.claim_events_by_sink(text, integer, boolean, jsonb) is
  'Claims a batch of events for one processor, of each sink at most as many as its limit.';

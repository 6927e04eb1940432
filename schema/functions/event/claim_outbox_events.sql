-- Hands a batch of events to one processor, the lowest numbers first.
--
-- Claimable is what is not processed, whose process_after is null or past, and whose claim is absent or older than
-- 5 minutes: a dead processor's events come back by themselves. Each such row is in one of three places: fresh, due
-- again, or under a claim that is too old. The first is walked by number; of the others the first thousand are put in the order of
-- their numbers, so that a million that are due at once cost no more. How many of each are wanted follows from the
-- numbers of all three; then those are locked, past what others hold.
--
-- With the setting symphony.claim_followers a claim keeps the order of each aggregate, and is still made of claimable events only. It hands out
-- heads, those that no unprocessed event of their aggregate comes before, and as many followers as the setting says in all: events that come directly behind
-- what the same claim hands out. So nothing is claimed that would only have to wait for another processor or for another's delay. A head that has
-- failed goes alone: should it fail again, nobody goes back with it. Heads are sought by number, and where too few are found, because
-- many events wait behind few, aggregate by aggregate. Unset or empty, the order is none of its business.
--
-- How many claims of others were taken over is in the setting symphony.ended_claims until the transaction ends: the result has no place for it.
-- The payloads of one claim add up to at most claim_byte_limit(), decompressed; a larger one is handed out alone. What does not fit waits for the next claim,
-- which a notification asks for at once.
--
-- A claim has no token: give a processor id that was never used before, for it is all that tells a claim from an
-- earlier one. See docs/decisions/0005-event-claims-without-tokens.md.
-- Locks: the rows it returns, and with the setting some that it lets go again. Waits for nobody. Raises: P7005. For: symphony_executor.
create or replace function m10_recovery.claim_outbox_events(
  p_processor_id text,
  p_batch_size   integer default 10)
  returns table (
    id             bigint,
    aggregate_type text,
    aggregate_id   text,
    event_type     text,
    payload        jsonb,
    retry_count    int)
  language plpgsql
  security definer
  set search_path = pg_catalog, m10_recovery, symphony, pg_temp
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
  v_window    int := 1000;
  v_wanted    int;
  -- How many of the lowest numbers are of each kind.
  v_fresh     int;
  v_retries   int;
  v_stale     int;
  v_found     bigint[];
  v_taken     bigint[] := '{}';
  -- How many of those were under a claim that is too old.
  v_takeovers bigint := 0;
  -- For a claim in order: how many followers it may bring, whether there is more than it looked at, what it saw, the heads that are
  -- locked, and how far aggregates were walked.
  v_setting   constant text := nullif(current_setting('symphony.claim_followers', true), '');
  v_room      int;
  v_crowded   boolean;
  v_seen      tid[];
  v_heads     tid[];
  v_type      text := '';
  v_aggregate text := '';
  -- The bytes of the payloads that were found, of each of them, and how many more may come; negative once something did not fit.
  v_bytes     bigint;
  v_sizes     int[];
  v_budget    bigint := claim_byte_limit();
begin
  perform check_argument('p_processor_id', p_processor_id, 200);
  perform check_range('p_batch_size', p_batch_size, 1, 1000);
  if v_setting !~ '^[0-9]{1,4}$' then
    raise exception 'symphony.claim_followers must be a number from 0 to 9999' using errcode = 'P7005';
  end if;

  -- Aggregates are looked up below as the rows that come next in their index, and compared afterwards: so no other index is of use whatever the
  -- planner thinks of the table, and no scan goes on behind the last of an aggregate. See docs/decisions/0003-pinned-plans.md.
  if v_setting is not null then
    v_window := greatest(4 * p_batch_size, 200);
    select array_agg(w.place order by w.id),
           v_window in (count(*) filter (where w.kind = 'fresh'), count(*) filter (where w.kind = 'retry'), count(*) filter (where w.kind = 'stale')),
           count(*) filter (where w.kind = 'stale')
    into v_seen, v_crowded, v_stale
    from (
      (select 'fresh' as kind, o.id, o.ctid as place
       from outbox o
       where o.processed_at is null
         and o.claimed_at is null
         and o.process_after is null
       order by o.id
       limit v_window)
      union all
      (select 'retry', o.id, o.ctid
       from outbox o
       where o.processed_at is null
         and o.claimed_at is null
         and o.process_after is not null
         and o.process_after <= now()
       order by o.process_after, o.id
       limit v_window)
      union all
      (select 'stale', o.id, o.ctid
       from outbox o
       where o.processed_at is null
         and o.claimed_at is not null
         and o.claimed_at < now() - interval '5 minutes'
         and (o.process_after is null or o.process_after <= now())
       order by o.claimed_at, o.id
       limit v_window)
    ) w;
    v_heads := array(
      select l.place
      from unnest(v_seen) as w (place)
      cross join lateral (
        select o.ctid as place
        from outbox o
        where o.ctid = w.place
          and o.processed_at is null
          and (o.claimed_at is null or o.claimed_at < now() - interval '5 minutes')
          and (o.process_after is null or o.process_after <= now())
          and o.id = (
            select e.id
            from outbox e
            where e.processed_at is null
              and (e.aggregate_type, e.aggregate_id) >= (o.aggregate_type, o.aggregate_id)
            order by e.aggregate_type, e.aggregate_id, e.id
            limit 1)
        limit 1
        for update skip locked
      ) l
      limit p_batch_size);

    -- Where there are more than were seen, those may all wait behind a few: then the first of each aggregate, a hundred at a time.
    for v_round in 1 .. 50 loop
      exit when not v_crowded or v_type is null or cardinality(v_heads) >= p_batch_size;
      with recursive walk as (
        (select e.aggregate_type, e.aggregate_id, e.ctid as place, 1 as step
         from outbox e
         where e.processed_at is null
           and (e.aggregate_type, e.aggregate_id) > (v_type, v_aggregate)
         order by e.aggregate_type, e.aggregate_id, e.id
         limit 1)
        union all
        select n.aggregate_type, n.aggregate_id, n.place, w.step + 1
        from walk w
        cross join lateral (
          select e.aggregate_type, e.aggregate_id, e.ctid as place
          from outbox e
          where e.processed_at is null
            and (e.aggregate_type, e.aggregate_id) > (w.aggregate_type, w.aggregate_id)
          order by e.aggregate_type, e.aggregate_id, e.id
          limit 1
        ) n
        where w.step < 100
      )
      select array_agg(w.place),
             max(w.aggregate_type) filter (where w.step = 100),
             max(w.aggregate_id) filter (where w.step = 100)
      into v_seen, v_type, v_aggregate
      from walk w;
      v_heads := v_heads || array(
        select l.place
        from unnest(v_seen) as w (place)
        cross join lateral (
          select o.ctid as place
          from outbox o
          where o.ctid = w.place
            and o.ctid <> all (v_heads)
            and o.processed_at is null
            and (o.claimed_at is null or o.claimed_at < now() - interval '5 minutes')
            and (o.process_after is null or o.process_after <= now())
          limit 1
          for update skip locked
        ) l
        limit p_batch_size - cardinality(v_heads));
    end loop;

    -- The nearest followers of all heads first, so that every aggregate gets on.
    v_room := least(v_setting::int, p_batch_size - cardinality(v_heads));
    v_seen := v_heads || array(
      select l.place
      from (
        select f.place
        from unnest(v_heads) as w (place)
        cross join lateral (
          select h.aggregate_type, h.aggregate_id, h.id
          from outbox h
          where h.ctid = w.place
            and h.retry_count = 0
          limit 1
        ) h
        cross join lateral (
          select f.place, row_number() over steps as step, bool_and(f.claimable) over steps as claimable
          from (
            select e.ctid as place,
                   e.aggregate_type,
                   e.aggregate_id,
                   e.id,
                   e.aggregate_type = h.aggregate_type
                   and e.aggregate_id = h.aggregate_id
                   and (e.claimed_at is null or e.claimed_at < now() - interval '5 minutes')
                   and (e.process_after is null or e.process_after <= now()) as claimable
            from outbox e
            where e.processed_at is null
              and (e.aggregate_type, e.aggregate_id, e.id) > (h.aggregate_type, h.aggregate_id, h.id)
            order by e.aggregate_type, e.aggregate_id, e.id
            limit least(v_room, 100)
          ) f
          window steps as (order by f.aggregate_type, f.aggregate_id, f.id)
        ) f
        where f.claimable
        order by f.step
        limit v_room
      ) f
      cross join lateral (
        select o.ctid as place
        from outbox o
        where o.ctid = f.place
          and o.processed_at is null
          and (o.claimed_at is null or o.claimed_at < now() - interval '5 minutes')
          and (o.process_after is null or o.process_after <= now())
        limit 1
        for update skip locked
      ) l);

    -- Somebody may have been faster with one in between, and an earlier event may have been committed only now. What
    -- is locked does not change any more, so what is first now stays first.
    v_taken := array(
      select f.id
      from unnest(v_heads) as w (place)
      cross join lateral (
        select h.aggregate_type, h.aggregate_id
        from outbox h
        where h.ctid = w.place
        limit 1
      ) h
      cross join lateral (
        select f.id, bool_and(f.ours) over (order by f.aggregate_type, f.aggregate_id, f.id) as ours
        from (
          select e.aggregate_type,
                 e.aggregate_id,
                 e.id,
                 e.aggregate_type = h.aggregate_type and e.aggregate_id = h.aggregate_id and e.ctid = any (v_seen) as ours
          from outbox e
          where e.processed_at is null
            and (e.aggregate_type, e.aggregate_id) >= (h.aggregate_type, h.aggregate_id)
          order by e.aggregate_type, e.aggregate_id, e.id
          limit least(v_room, 100) + 1
        ) f
      ) f
      where f.ours
      order by f.id);
    v_sizes := array(
      select case when pg_column_compression(o.payload) is null then pg_column_size(o.payload) else raw_size(o.payload) end
      from outbox o
      where o.id = any (v_taken)
      order by o.id);
    -- By number, so that no event is left out whose follower is not.
    v_room := rows_within(v_sizes, v_budget);
    if v_room < cardinality(v_taken) then
      v_taken := v_taken[1 : v_room];
      v_budget := -1;
    end if;
    if v_stale > 0 then
      v_takeovers := (select count(*) from outbox o where o.id = any (v_taken) and o.claimed_at is not null);
    end if;
    update outbox o
    set claimed_at = now(),
        claimed_by = p_processor_id
    where o.id = any (v_taken);
  else
    -- One round is enough unless others take what we counted on.
    for v_round in 1 .. 20 loop
      v_wanted := p_batch_size - cardinality(v_taken);
      exit when v_wanted = 0;

      select count(*) filter (where c.kind = 'fresh'), count(*) filter (where c.kind = 'retry'), count(*) filter (where c.kind = 'stale')
      into v_fresh, v_retries, v_stale
      from (
        select c.kind
        from (
          (select 'fresh' as kind, o.id
           from outbox o
           where o.processed_at is null
             and o.claimed_at is null
             and o.process_after is null
           order by o.id
           limit v_wanted)
          union all
          (select 'retry', o.id
           from outbox o
           where o.processed_at is null
             and o.claimed_at is null
             and o.process_after is not null
             and o.process_after <= now()
           order by o.process_after, o.id
           limit v_window)
          union all
          (select 'stale', o.id
           from outbox o
           where o.processed_at is null
             and o.claimed_at is not null
             and o.claimed_at < now() - interval '5 minutes'
             and (o.process_after is null or o.process_after <= now())
           order by o.claimed_at, o.id
           limit v_window)
        ) c
        order by c.id
        limit v_wanted
      ) c;
      exit when v_fresh + v_retries + v_stale = 0;

      select coalesce(array_agg(l.id), '{}'), coalesce(sum(l.bytes), 0)
      into v_found, v_bytes
      from (
        select o.id, case when pg_column_compression(o.payload) is null then pg_column_size(o.payload) else raw_size(o.payload) end as bytes
        from outbox o
        where o.processed_at is null
          and o.claimed_at is null
          and o.process_after is null
        order by o.id
        limit v_fresh
        for update skip locked
      ) l;
      if v_retries > 0 then
        v_found := v_found || array(
          select l.id
          from (
            select o.id
            from (
              select w.id
              from outbox w
              where w.processed_at is null
                and w.claimed_at is null
                and w.process_after is not null
                and w.process_after <= now()
              order by w.process_after, w.id
              limit v_window
            ) w
            join outbox o on o.id = w.id
            where o.processed_at is null
              and o.claimed_at is null
              and o.process_after <= now()
            order by w.id
            limit v_retries
            for update of o skip locked
          ) l);
      end if;
      if v_stale > 0 then
        v_found := v_found || array(
          select l.id
          from (
            select o.id
            from (
              select w.id
              from outbox w
              where w.processed_at is null
                and w.claimed_at is not null
                and w.claimed_at < now() - interval '5 minutes'
                and (w.process_after is null or w.process_after <= now())
              order by w.claimed_at, w.id
              limit v_window
            ) w
            join outbox o on o.id = w.id
            where o.processed_at is null
              and o.claimed_at < now() - interval '5 minutes'
              and (o.process_after is null or o.process_after <= now())
            order by w.id
            limit v_stale
            for update of o skip locked
          ) l);
      end if;
      if v_retries > 0 or v_stale > 0 then
        v_bytes := (select coalesce(sum(case when pg_column_compression(o.payload) is null then pg_column_size(o.payload) else raw_size(o.payload) end), 0) from outbox o where o.id = any (v_found));
      end if;
      if v_bytes > v_budget then
        v_found := array(select f.id from unnest(v_found) as f (id) order by f.id);
        v_sizes := array(
          select case when pg_column_compression(o.payload) is null then pg_column_size(o.payload) else raw_size(o.payload) end
          from outbox o
          where o.id = any (v_found)
          order by o.id);
        v_found := v_found[1 : case when v_sizes[1] > v_budget and cardinality(v_taken) > 0 then 0 else rows_within(v_sizes, v_budget) end];
        v_budget := 0;
      end if;
      v_budget := v_budget - v_bytes;
      if v_stale > 0 then
        v_takeovers := v_takeovers + (select count(*) from outbox o where o.id = any (v_found) and o.claimed_at is not null);
      end if;

      update outbox o
      set claimed_at = now(),
          claimed_by = p_processor_id
      where o.id = any (v_found);
      v_taken := v_taken || v_found;
      exit when v_budget < 0;
      -- What we counted may be held by others, all of it: then there may be more behind it.
      exit when cardinality(v_found) = 0 and v_window = 100000;
      v_window := least(v_window * 10, 100000);
    end loop;
  end if;

  if v_takeovers > 0 then
    perform set_config('symphony.ended_claims', v_takeovers::text, true);
  end if;
  if v_budget < 0 then
    -- There are events that did not fit: ask for another claim at once.
    perform pg_notify('m10_outbox', 'new_work');
  end if;

  return query
    select o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload, o.retry_count
    from outbox o
    where o.id = any (v_taken)
    order by o.id;
end
$$;

comment on function m10_recovery.claim_outbox_events(text, integer) is
  'Claims a batch of events for one processor, the lowest numbers first.';

-- Claims a batch of events for one processor, the lowest ids first.
--
-- An event is claimable while it is unprocessed, its process_after is null or past, and its claim is absent or older
-- than event_claim_timeout(): see outbox_unprocessed. The events of a dead processor become claimable by themselves.
-- This claim keeps no order within an aggregate; symphony.claim_events_in_order does.
--
-- Each claimable event is in one of three indexes: never claimed, due for a retry, or under a stale claim. The first
-- is read by id. Of each of the others the first thousand are sorted by id, so a million retries due at once cost no
-- more. The claim counts how many of the lowest ids are of each kind, then locks that many and skips rows that another
-- session has locked.
--
-- The setting symphony.taken_over_claims holds the number of stale claims taken over, until the transaction ends: the
-- contract's result has no column for it. The payloads of one claim add up to at most claim_byte_limit(),
-- uncompressed; a larger event is returned alone. If an event did not fit, the claim sends a notification, so that
-- another claim follows at once.
--
-- The first claim on another server opens a new epoch; see symphony.ensure_epoch.
--
-- A claim has no token: the processor id proves it. Use a fresh processor id for every claim. See
-- docs/decisions/0005-event-claims-without-tokens.md.
-- Locks: when the server has changed, those of advance_epoch; the rows it returns; it waits for no row. Raises: P7005; with a new epoch 25000
-- outside READ COMMITTED and 55P03. For: symphony_executor.
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
  v_window     int := 1000;
  v_wanted     int;
  -- How many of the lowest ids are of each kind.
  v_fresh      int;
  v_retries    int;
  v_stale      int;
  v_found      bigint[];
  v_claimed    bigint[] := '{}';
  v_taken_over bigint := 0;
  -- The payload bytes of the events found, together and each, and how many more may follow; negative once an event did not fit.
  v_bytes      bigint;
  v_sizes      int[];
  v_budget     bigint := claim_byte_limit();
begin
  perform check_argument('p_processor_id', p_processor_id, 200);
  perform check_range('p_batch_size', p_batch_size, 1, 1000);
  perform ensure_epoch(p_processor_id);

  -- One round is enough unless other sessions lock rows that were counted.
  for v_round in 1 .. 20 loop
    v_wanted := p_batch_size - cardinality(v_claimed);
    exit when v_wanted = 0;

    select count(*) filter (where c.kind = 'fresh'), count(*) filter (where c.kind = 'retry'), count(*) filter (where c.kind = 'stale')
    into v_fresh, v_retries, v_stale
    from (
      select c.kind
      from (
        (select 'fresh' as kind, o.id
         from outbox_unprocessed o
         where o.claimed_at is null
           and o.process_after is null
         order by o.id
         limit v_wanted)
        union all
        (select 'retry', o.id
         from outbox_unprocessed o
         where o.claimed_at is null
           and o.process_after <= now()
         order by o.process_after, o.id
         limit v_window)
        union all
        (select 'stale', o.id
         from outbox_unprocessed o
         where o.claimed_at < now() - event_claim_timeout()
           and o.is_claimable
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
      select o.id,
             case when pg_column_compression(o.payload) is null then pg_column_size(o.payload) else uncompressed_size(o.payload) end as bytes
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
            from outbox_unprocessed w
            where w.claimed_at is null
              and w.process_after <= now()
            order by w.process_after, w.id
            limit v_window
          ) w
          join outbox_unprocessed o on o.id = w.id
          where o.claimed_at is null
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
            from outbox_unprocessed w
            where w.claimed_at < now() - event_claim_timeout()
              and w.is_claimable
            order by w.claimed_at, w.id
            limit v_window
          ) w
          join outbox_unprocessed o on o.id = w.id
          where o.claimed_at is not null
            and o.is_claimable
          order by w.id
          limit v_stale
          for update of o skip locked
        ) l);
    end if;
    if v_retries > 0 or v_stale > 0 then
      v_bytes := (
        select coalesce(sum(
                 case when pg_column_compression(o.payload) is null then pg_column_size(o.payload) else uncompressed_size(o.payload) end), 0)
        from outbox o
        where o.id = any (v_found));
    end if;
    if v_bytes > v_budget then
      v_found := array(select f.id from unnest(v_found) as f (id) order by f.id);
      v_sizes := array(
        select case when pg_column_compression(o.payload) is null then pg_column_size(o.payload) else uncompressed_size(o.payload) end
        from outbox o
        where o.id = any (v_found)
        order by o.id);
      v_found := v_found[1 : case
        when v_sizes[1] > v_budget and cardinality(v_claimed) > 0 then 0
        else rows_within_byte_limit(v_sizes, v_budget)
      end];
      v_budget := 0;
    end if;
    v_budget := v_budget - v_bytes;
    if v_stale > 0 then
      v_taken_over := v_taken_over + (select count(*) from outbox o where o.id = any (v_found) and o.claimed_at is not null);
    end if;

    update outbox o
    set claimed_at = now(),
        claimed_by = p_processor_id
    where o.id = any (v_found);
    v_claimed := v_claimed || v_found;
    exit when v_budget < 0;
    -- Other sessions may hold everything that was counted: then there may be more behind it.
    exit when cardinality(v_found) = 0 and v_window = 100000;
    v_window := least(v_window * 10, 100000);
  end loop;

  if v_taken_over > 0 or current_setting('symphony.taken_over_claims', true) <> '' then
    perform set_config('symphony.taken_over_claims', v_taken_over::text, true);
  end if;
  if v_budget < 0 then
    perform pg_notify('m10_outbox', 'new_work');
  end if;

  return query
    select o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload, o.retry_count
    from outbox o
    where o.id = any (v_claimed)
    order by o.id;
end
$$;

comment on function m10_recovery.claim_outbox_events(text, integer) is
  'Claims a batch of events for one processor, the lowest ids first, in no order within an aggregate.';

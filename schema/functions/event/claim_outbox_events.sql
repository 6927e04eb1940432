-- Hands a batch of events to one processor, the lowest numbers first.
--
-- Claimable is what is not processed, whose process_after is null or past, and whose claim is absent or older than
-- 5 minutes: a dead processor's events come back by themselves. Each such row is in one of three places: fresh, due
-- again, or under a claim that is too old. The first is walked by number; of the others the first thousand are put in the order of
-- their numbers, so that a million that are due at once cost no more. How many of each are wanted follows from the
-- numbers of all three; then those are locked, past what others hold.
-- A claim has no token: give a processor id that was never used before, for it is all that tells a claim from an
-- earlier one. See docs/decisions/0005-event-claims-without-tokens.md.
-- Locks: the rows it returns. Waits for nobody. Raises: P7005. For: symphony_executor.
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
  v_window  int := 1000;
  v_wanted  int;
  -- How many of the lowest numbers are of each kind.
  v_fresh   int;
  v_retries int;
  v_stale   int;
  v_found   bigint[];
  v_taken   bigint[] := '{}';
begin
  perform check_argument('p_processor_id', p_processor_id, 200);
  perform check_range('p_batch_size', p_batch_size, 1, 1000);

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

    v_found := array(
      select l.id
      from (
        select o.id
        from outbox o
        where o.processed_at is null
          and o.claimed_at is null
          and o.process_after is null
        order by o.id
        limit v_fresh
        for update skip locked
      ) l);
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

    update outbox o
    set claimed_at = now(),
        claimed_by = p_processor_id
    where o.id = any (v_found);
    v_taken := v_taken || v_found;
    -- What we counted may be held by others, all of it: then there may be more behind it.
    exit when cardinality(v_found) = 0 and v_window = 100000;
    v_window := least(v_window * 10, 100000);
  end loop;

  return query
    select o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload, o.retry_count
    from outbox o
    where o.id = any (v_taken)
    order by o.id;
end
$$;

comment on function m10_recovery.claim_outbox_events(text, integer) is
  'Claims a batch of events for one processor, the lowest numbers first.';

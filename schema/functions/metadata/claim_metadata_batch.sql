-- Claims a batch of metadata entries for one worker, those that have been due longest first.
--
-- Claimable are PENDING entries, and FAILED entries that have retries left and whose next_retry_at is past. A size of
-- 0 or less means 100, a size over 1000 means 1000. Each entry gets a fresh token, which completes the claim.
-- repair_metadata_entries requeues the entries of a dead worker.
--
-- The claim first counts how many entries of each kind have been due longest, so it locks no more than it claims. It
-- skips rows that another session has locked, and looks a second time for free rows behind them. The metadata of one
-- claim adds up to at most claim_byte_limit(), uncompressed; a larger entry is returned alone. If an entry did not
-- fit, the claim sends a notification, so that another claim follows at once.
-- The first claim on another server opens a new epoch; see ensure_epoch.
-- Locks: when the server has changed, those of advance_epoch; the rows it returns; it waits for no row. Raises: P7005; with a new epoch 25000
-- outside READ COMMITTED and 55P03. For: symphony_executor.
create or replace function symphony.claim_metadata_batch(
  p_worker text,
  p_size   int default 100)
  returns table (
    id          uuid,
    entity_type text,
    entity_id   text,
    metadata    jsonb,
    version     bigint,
    retry_count int,
    max_retries int,
    claim_token uuid,
    created_at  timestamptz)
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
  v_size    constant int := case when p_size <= 0 then 100 else least(p_size, 1000) end;
  v_wanted  int := v_size;
  v_fresh   int;
  v_retries int;
  v_found   uuid[];
  v_taken   uuid[] := '{}';
  -- The bytes of the entries found, and how many more may follow; negative once an entry did not fit.
  v_bytes   bigint;
  v_budget  bigint := claim_byte_limit();
  v_sizes   int[];
begin
  perform check_argument('p_worker', p_worker, 200);
  if p_size is null then
    raise exception 'p_size must not be null' using errcode = 'P7005';
  end if;
  perform ensure_epoch(p_worker);

  for v_look in 1 .. 2 loop
    if v_look = 1 then
      select count(*) filter (where c.fresh), count(*) filter (where not c.fresh)
      into v_fresh, v_retries
      from (
        select c.fresh
        from (
          (select true as fresh, o.created_at as due_at, o.id
           from metadata_outbox o
           where o.status = 'PENDING'
           order by o.created_at, o.id
           limit v_wanted)
          union all
          (select false, o.next_retry_at, o.id
           from metadata_outbox o
           where o.status = 'FAILED'
             and o.retry_count < o.max_retries
             and o.next_retry_at <= now()
           order by o.next_retry_at, o.id
           limit v_wanted)
        ) c
        order by c.due_at, c.id
        limit v_wanted
      ) c;
    end if;

    select coalesce(array_agg(l.id), '{}'), coalesce(sum(l.bytes), 0)
    into v_found, v_bytes
    from (
      select o.id, case when pg_column_compression(o.metadata) is null then pg_column_size(o.metadata) else uncompressed_size(o.metadata) end as bytes
      from metadata_outbox o
      where o.status = 'PENDING'
      order by o.created_at, o.id
      limit v_fresh
      for no key update skip locked
    ) l;
    if v_look = 2 then
      v_retries := v_wanted - cardinality(v_found);
    end if;
    select v_found || coalesce(array_agg(l.id), '{}'), v_bytes + coalesce(sum(l.bytes), 0)
    into v_found, v_bytes
    from (
      select o.id, case when pg_column_compression(o.metadata) is null then pg_column_size(o.metadata) else uncompressed_size(o.metadata) end as bytes
      from metadata_outbox o
      where o.status = 'FAILED'
        and o.retry_count < o.max_retries
        and o.next_retry_at <= now()
      order by o.next_retry_at, o.id
      limit v_retries
      for no key update skip locked
    ) l;
    if v_bytes > v_budget then
      v_sizes := array(
        select case when pg_column_compression(o.metadata) is null then pg_column_size(o.metadata) else uncompressed_size(o.metadata) end
        from unnest(v_found) with ordinality as f (id, place)
        join metadata_outbox o on o.id = f.id
        order by f.place);
      v_found := v_found[1 : case when v_sizes[1] > v_budget and cardinality(v_taken) > 0 then 0 else rows_within_byte_limit(v_sizes, v_budget) end];
      v_budget := 0;
    end if;
    v_budget := v_budget - v_bytes;

    update metadata_outbox o
    set status = 'PROCESSING',
        processing_started_at = now(),
        claim_token = gen_random_uuid(),
        claimed_by = p_worker,
        next_retry_at = null,
        updated_at = now()
    where o.id = any (v_found)
      and o.status in ('PENDING', 'FAILED');
    v_taken := v_taken || v_found;
    exit when v_budget < 0;

    -- Other sessions hold the entries that were counted but not found: take any free ones instead.
    v_wanted := v_size - cardinality(v_taken);
    exit when v_wanted = 0 or v_fresh + v_retries = cardinality(v_found);
    v_fresh := v_wanted;
  end loop;

  if v_budget < 0 then
    -- Some entries did not fit: notify, so that another claim follows at once.
    perform pg_notify('metadata_outbox', 'new_work');
  end if;

  return query
    select o.id, o.entity_type, o.entity_id, o.metadata, metadata_version(o.created_at, o.epoch), o.retry_count, o.max_retries, o.claim_token,
           o.created_at
    from metadata_outbox o
    where o.id = any (v_taken)
    order by o.created_at, o.id;
end
$$;

comment on function symphony.claim_metadata_batch(text, int) is
  'Claims a batch of entries for one worker, each under a fresh token.';

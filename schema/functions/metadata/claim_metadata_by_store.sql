-- Claims a batch of metadata entries for one worker, of each store at most as many as its limit.
--
-- A relayer with several stores calls it while one of them is at its limit: a claim by age would return more entries of that
-- store, for which no slot is free. p_routes are the routes of the relayer, and the first that matches an entity decides:
-- [{"entity_type": "document", "store": "search", "limit": 5}, …]. Of the entries without a route it returns one: its worker
-- records that it has none.
--
-- What waits for a store at its limit may be a million entries. So a claim reads at most four thousand of each kind: retries that
-- are due, the newest entries, and the others from where the session's last claim stopped. That position, and whether the
-- session has once read all, are in the setting symphony.swept_metadata. If there may be more to find, the claim sends a
-- notification, so that another one follows at once. See claim_metadata_batch for tokens and the limit on bytes.
-- The first claim on another server opens a new epoch; see ensure_epoch.
-- Locks: when the server has changed, those of advance_epoch; the rows it returns, and some that it does not; it waits for no row.
-- Raises: P7005; with a new epoch 25000 outside READ COMMITTED and 55P03. For: symphony_executor.
create or replace function symphony.claim_metadata_by_store(
  p_worker text,
  p_size   int,
  p_routes jsonb)
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
  -- Up to where the entries were read.
  v_swept    timestamptz := coalesce(nullif(split_part(current_setting('symphony.swept_metadata', true), '|', 1), '')::timestamptz, '-infinity');
  v_swept_id uuid := coalesce(nullif(split_part(current_setting('symphony.swept_metadata', true), '|', 2), '')::uuid, '00000000-0000-0000-0000-000000000000');
  v_all      boolean := coalesce(nullif(split_part(current_setting('symphony.swept_metadata', true), '|', 3), '')::boolean, false);
  v_window   int;
  v_more     boolean;
  v_found    uuid[];
  v_sizes    int[];
  v_fitting  int;
begin
  perform check_argument('p_worker', p_worker, 200);
  perform check_range('p_size', p_size, 1, 1000);
  perform check_claim_routes(p_routes);
  perform ensure_epoch(p_worker);

  foreach v_window in array array[greatest(4 * p_size, 200), 4000] loop
    with routes as materialized (
      select r.place, r.route ->> 'entity_type' as entity_type, r.route ->> 'store' as store, (r.route ->> 'limit')::int as most
      from jsonb_array_elements(p_routes) with ordinality as r (route, place)
    ),
    candidates as materialized (
      (select 'swept' as kind, o.created_at as due_at, o.id, o.entity_type
       from metadata_outbox o
       where o.status = 'PENDING'
         and (o.created_at, o.id) > (v_swept, v_swept_id)
       order by o.created_at, o.id
       limit v_window)
      union all
      (select 'newest', o.created_at, o.id, o.entity_type
       from metadata_outbox o
       where o.status = 'PENDING'
       order by o.created_at desc, o.id desc
       limit v_window)
      union all
      (select 'retry', o.next_retry_at, o.id, o.entity_type
       from metadata_outbox o
       where o.status = 'FAILED'
         and o.retry_count < o.max_retries
         and o.next_retry_at <= now()
       order by o.next_retry_at, o.id
       limit v_window)
    ),
    types as materialized (
      select t.entity_type, r.store, coalesce(r.most, 1) as most
      from (select distinct c.entity_type from candidates c) t
      left join lateral (
        select r.store, r.most
        from routes r
        where r.entity_type in ('*', t.entity_type)
        order by r.place
        limit 1
      ) r on true
      where coalesce(r.most, 1) > 0
    ),
    routed as (
      -- An entry may be among the swept and the newest ones.
      select distinct on (c.id) c.id, c.due_at, c.kind, t.store, t.most
      from candidates c
      join types t on t.entity_type = c.entity_type
      order by c.id, c.kind = 'swept' desc
    ),
    within_limits as (
      select f.id, f.due_at
      from (select f.*, row_number() over (partition by f.store order by f.due_at, f.id) as place from routed f) f
      where f.place <= f.most
      order by f.due_at, f.id
      limit p_size
    )
    select array(select w.id from within_limits w order by w.due_at, w.id),
           case when l.id is not null then l.due_at when o.id is not null then v_swept else '-infinity' end,
           case when l.id is not null then l.id when o.id is not null then v_swept_id else '00000000-0000-0000-0000-000000000000' end,
           exists (select from candidates c group by c.kind having count(*) = v_window)
    into v_found, v_swept, v_swept_id, v_more
    from (values (1)) one
    -- What is left out beyond a limit is read again.
    left join lateral (
      select r.due_at, r.id
      from routed r
      where r.kind = 'swept'
        and r.id not in (select w.id from within_limits w)
      order by r.due_at, r.id
      limit 1
    ) o on true
    left join lateral (
      select c.due_at, c.id
      from candidates c
      where c.kind = 'swept'
        and (o.id is null or (c.due_at, c.id) < (o.due_at, o.id))
      order by c.due_at desc, c.id desc
      limit 1
    ) l on o.id is not null or (select count(*) from candidates c where c.kind = 'swept') = v_window;
    exit when cardinality(v_found) > 0 or not v_more;
  end loop;
  v_all := v_all or v_swept = '-infinity';
  perform set_config('symphony.swept_metadata', concat_ws('|', v_swept, v_swept_id, v_all), false);

  v_found := array(
    select l.id
    from unnest(v_found) with ordinality as w (id, place)
    cross join lateral (
      select o.id
      from metadata_outbox o
      where o.id = w.id
        and (o.status = 'PENDING' or (o.status = 'FAILED' and o.retry_count < o.max_retries and o.next_retry_at <= now()))
      limit 1
      for no key update skip locked
    ) l
    order by w.place);
  v_sizes := array(
    select case when pg_column_compression(o.metadata) is null then pg_column_size(o.metadata) else uncompressed_size(o.metadata) end
    from unnest(v_found) with ordinality as f (id, place)
    cross join lateral (select m.metadata from metadata_outbox m where m.id = f.id limit 1) o
    order by f.place);
  v_fitting := rows_within_byte_limit(v_sizes, claim_byte_limit());
  v_found := v_found[1 : v_fitting];
  if v_fitting < cardinality(v_sizes) or (v_more and v_fitting > 0) or not v_all then
    perform pg_notify('metadata_outbox', 'new_work');
  end if;

  update metadata_outbox o
  set status = 'PROCESSING',
      processing_started_at = now(),
      claim_token = gen_random_uuid(),
      claimed_by = p_worker,
      next_retry_at = null,
      updated_at = now()
  where o.id = any (v_found);

  return query
    select o.id, o.entity_type, o.entity_id, o.metadata, metadata_version(o.created_at, o.epoch), o.retry_count, o.max_retries, o.claim_token,
           o.created_at
    from metadata_outbox o
    where o.id = any (v_found)
    order by o.created_at, o.id;
end
$$;

comment on function symphony.claim_metadata_by_store(text, int, jsonb) is
  'Claims a batch of entries for one worker, of each store at most as many as its limit.';

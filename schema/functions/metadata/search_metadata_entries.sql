-- Searches metadata entries for the console and the CLI, one page at a time.
--
-- A null argument does not filter. Each search has an index order: the entries of an entity by version, the latest
-- first; DLQ and PUBLISHED from the latest backwards; PENDING from the newest backwards; PROCESSING from the oldest
-- claim on; FAILED by next_retry_at, the soonest first. Every other search reads from the newest backwards. Where a
-- filter remains, a page reads at most a thousand entries; next_at and next_id say where the next page starts. An
-- empty page with a next_id means that none of those thousand matched. p_error is a prefix of the stored error; p_from
-- and p_to bound created_at.
-- Locks: nothing. Raises: P7005. For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.search_metadata_entries(
  p_entity_type text,
  p_entity_id   text,
  p_status      text,
  p_error       text,
  p_from        timestamptz,
  p_to          timestamptz,
  p_at          timestamptz,
  p_id          uuid,
  p_limit       int,
  out entries   jsonb,
  out examined  int,
  out next_at   timestamptz,
  out next_id   uuid)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_of_entity constant boolean := p_entity_type is not null and p_entity_id is not null;
  -- Without a remaining filter every row that is read is shown; one more tells whether there is a next page.
  v_max_rows      constant int := case
    when num_nonnulls(p_error, p_from, p_to) = 0
      and num_nonnulls(p_entity_type, p_entity_id) in (0, 2)
      and not (v_of_entity and p_status is not null) then p_limit + 1
    else 1000
  end;
  v_last      constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
  v_first     constant uuid := '00000000-0000-0000-0000-000000000000';
  v_ids       uuid[];
  v_found     uuid[];
  v_place     uuid;
begin
  perform check_range('p_limit', p_limit, 1, 200);
  if p_status <> all (enum_range(null::metadata_status)::text[]) then
    raise exception 'p_status must be one of %, not %', array_to_string(enum_range(null::metadata_status), ', '), left(p_status, 40)
      using errcode = 'P7005';
  end if;

  if v_of_entity then
    v_ids := array(
      select o.id
      from metadata_outbox o
      where o.entity_type = p_entity_type
        and o.entity_id = p_entity_id
        and o.created_at < coalesce(p_at, 'infinity')
      order by o.created_at desc
      limit v_max_rows);
  elsif p_status = 'PENDING' then
    v_ids := array(
      select o.id
      from metadata_outbox o
      where o.status = 'PENDING'
        and (o.created_at, o.id) < (coalesce(p_at, 'infinity'), coalesce(p_id, v_last))
      order by o.created_at desc, o.id desc
      limit v_max_rows);
  elsif p_status = 'PROCESSING' then
    v_ids := array(
      select o.id
      from metadata_outbox o
      where o.status = 'PROCESSING'
        and (o.processing_started_at, o.id) > (coalesce(p_at, '-infinity'), coalesce(p_id, v_first))
      order by o.processing_started_at, o.id
      limit v_max_rows);
  elsif p_status = 'PUBLISHED' then
    v_ids := array(
      select o.id
      from metadata_outbox o
      where o.status = 'PUBLISHED'
        and (o.processed_at, o.id) < (coalesce(p_at, 'infinity'), coalesce(p_id, v_last))
      order by o.processed_at desc, o.id desc
      limit v_max_rows);
  elsif p_status = 'DLQ' then
    v_ids := array(
      select o.id
      from metadata_outbox o
      where o.status = 'DLQ'
        and (o.updated_at, o.id) < (coalesce(p_at, 'infinity'), coalesce(p_id, v_last))
      order by o.updated_at desc, o.id desc
      limit v_max_rows);
  elsif p_status = 'FAILED' then
    -- Entries without retries left come first, by the time of their failure.
    v_ids := array(
      select f.id
      from (
        (select o.updated_at as at, o.id
         from metadata_outbox o
         where o.status = 'FAILED'
           and o.retry_count >= o.max_retries
           and (o.updated_at, o.id) > (coalesce(p_at, '-infinity'), coalesce(p_id, v_first))
         order by o.updated_at, o.id
         limit v_max_rows)
        union all
        (select o.next_retry_at, o.id
         from metadata_outbox o
         where o.status = 'FAILED'
           and o.retry_count < o.max_retries
           and (o.next_retry_at, o.id) > (coalesce(p_at, '-infinity'), coalesce(p_id, v_first))
         order by o.next_retry_at, o.id
         limit v_max_rows)
      ) f
      order by f.at, f.id
      limit v_max_rows);
  else
    v_ids := array(
      select o.id
      from metadata_outbox o
      where o.id < least(coalesce(p_id, v_last), coalesce(uuidv7_lower_bound(p_to + interval '1 second'), v_last))
        and o.id >= coalesce(uuidv7_lower_bound(p_from - interval '1 second'), v_first)
      order by o.id desc
      limit v_max_rows);
  end if;
  examined := cardinality(v_ids);

  with matching as (
    select o.*, i.place
    from unnest(v_ids) with ordinality as i (id, place)
    cross join lateral (select v.* from metadata_outbox_entries v where v.id = i.id limit 1) o
    where (p_entity_type is null or o.entity_type = p_entity_type)
      and (p_entity_id is null or o.entity_id = p_entity_id)
      and (p_status is null or o.status = p_status::metadata_status)
      and (p_error is null or starts_with(o.last_error, p_error))
      and (p_from is null or o.created_at >= p_from)
      and (p_to is null or o.created_at < p_to)
    order by i.place
    limit p_limit + 1
  ),
  page as (
    select m.* from matching m order by m.place limit p_limit
  )
  select coalesce((select jsonb_agg(to_jsonb(g.*) - 'place' order by g.place) from page g), '[]'),
         array(select m.id from matching m order by m.place)
  into entries, v_found;

  v_place := case
    when cardinality(v_found) > p_limit then v_found[p_limit]
    when examined = v_max_rows then v_ids[v_max_rows]
  end;
  if v_place is not null then
    select o.id,
           case
             when v_of_entity or p_status is null or p_status = 'PENDING' then o.created_at
             when p_status = 'PROCESSING' then o.processing_started_at
             when p_status = 'PUBLISHED' then o.processed_at
             when p_status = 'FAILED' and o.retry_count < o.max_retries then o.next_retry_at
             else o.updated_at
           end
    into next_id, next_at
    from metadata_outbox o
    where o.id = v_place;
  end if;
end
$$;

comment on function symphony.search_metadata_entries(text, text, text, text, timestamptz, timestamptz, timestamptz, uuid, int) is
  'A page of matching entries as rows of metadata_outbox_entries, how many were read, and where the next page starts.';

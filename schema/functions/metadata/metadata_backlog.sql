-- Counts the entries that are not published without reading all of them: in total, and by entity type.
--
-- Such an entry is new, due for a retry, scheduled, without retries left, processing, stuck or in the DLQ, and each of
-- these is a range of an index. Counting stops at p_max_rows in each range, from its front, and at p_max_dlq in the DLQ;
-- more_due, more_processing, more_stuck, more_scheduled and more_dlq say which counts are lower bounds. The ages are those
-- of the counted entries, which include the ones that have been due longest. by_entity_type has the hundred types with
-- the most counted entries. Where a count of pending entries stopped, estimate is PostgreSQL's estimate of them;
-- otherwise it is their number. Null is no bound, and takes time in proportion to the rows. Published entries are never
-- read.
-- Locks: nothing. Raises: P7005.
-- For: metadata_outbox_status, whose readers need EXECUTE because PostgreSQL calls a view's functions as the reader.
create or replace function symphony.metadata_backlog(
  p_max_rows                     int default 10000,
  p_max_dlq                      int default 10000,
  out due                        bigint,
  out processing                 bigint,
  out stuck                      bigint,
  out scheduled                  bigint,
  out dlq                        bigint,
  out oldest_pending_age_seconds numeric,
  out oldest_due_age_seconds     numeric,
  out entity_types               bigint,
  out by_entity_type             jsonb,
  out more_due                   boolean,
  out more_processing            boolean,
  out more_stuck                 boolean,
  out more_scheduled             boolean,
  out more_dlq                   boolean,
  out estimate                   bigint)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
  if p_max_rows is not null then
    perform check_range('p_max_rows', p_max_rows, 1, 1000000);
  end if;
  if p_max_dlq is not null then
    perform check_range('p_max_dlq', p_max_dlq, 1, 1000000);
  end if;

  with unpublished as materialized (
    (select 'new' as kind, 'due' as state, o.entity_type, o.created_at as due_at, o.created_at
     from metadata_outbox o
     where o.status = 'PENDING'
     order by o.created_at, o.id
     limit p_max_rows)
    union all
    (select 'retry', 'due', o.entity_type, o.next_retry_at, o.created_at
     from metadata_outbox o
     where o.status = 'FAILED'
       and o.retry_count < o.max_retries
       and o.next_retry_at <= now()
     order by o.next_retry_at, o.id
     limit p_max_rows)
    union all
    (select 'scheduled', 'scheduled', o.entity_type, null, o.created_at
     from metadata_outbox o
     where o.status = 'FAILED'
       and o.retry_count < o.max_retries
       and o.next_retry_at > now()
     order by o.next_retry_at, o.id
     limit p_max_rows)
    union all
    (select 'exhausted', 'stuck', o.entity_type, o.updated_at, o.created_at
     from metadata_outbox o
     where o.status = 'FAILED'
       and o.retry_count >= o.max_retries
     order by o.updated_at, o.id
     limit p_max_rows)
    union all
    (select 'stuck', 'stuck', o.entity_type, o.processing_started_at + interval '5 minutes', o.created_at
     from metadata_outbox o
     where o.status = 'PROCESSING'
       and o.processing_started_at < now() - interval '5 minutes'
     order by o.processing_started_at, o.id
     limit p_max_rows)
    union all
    (select 'processing', 'processing', o.entity_type, null, o.created_at
     from metadata_outbox o
     where o.status = 'PROCESSING'
       and o.processing_started_at >= now() - interval '5 minutes'
     order by o.processing_started_at, o.id
     limit p_max_rows)
    union all
    (select 'dlq', 'dlq', o.entity_type, null, null
     from metadata_outbox o
     where o.status = 'DLQ'
     order by o.updated_at, o.id
     limit p_max_dlq)
  ),
  types as materialized (
    select u.entity_type,
           count(*) filter (where u.state = 'due') as due,
           count(*) filter (where u.state = 'processing') as processing,
           count(*) filter (where u.state = 'stuck') as stuck,
           count(*) filter (where u.state = 'scheduled') as scheduled,
           count(*) filter (where u.state = 'dlq') as dlq,
           greatest(coalesce(extract(epoch from now() - min(u.created_at)), 0), 0)::numeric(20, 3) as oldest_pending_age_seconds,
           greatest(coalesce(extract(epoch from now() - min(u.due_at)), 0), 0)::numeric(20, 3) as oldest_due_age_seconds
    from unpublished u
    group by u.entity_type
  ),
  largest as (
    select k.*
    from types k
    order by k.due + k.processing + k.stuck + k.scheduled + k.dlq desc, k.entity_type
    limit 100
  ),
  limits as (
    select coalesce(bool_or(k.seen = p_max_rows) filter (where k.kind in ('new', 'retry')), false) as more_due,
           coalesce(bool_or(k.seen = p_max_rows) filter (where k.kind = 'processing'), false) as more_processing,
           coalesce(bool_or(k.seen = p_max_rows) filter (where k.kind in ('stuck', 'exhausted')), false) as more_stuck,
           coalesce(bool_or(k.seen = p_max_rows) filter (where k.kind = 'scheduled'), false) as more_scheduled,
           coalesce(bool_or(k.seen = p_max_dlq) filter (where k.kind = 'dlq'), false) as more_dlq
    from (
      select u.kind, count(*) as seen
      from unpublished u
      group by u.kind
    ) k
  )
  select coalesce(sum(k.due), 0),
         coalesce(sum(k.processing), 0),
         coalesce(sum(k.stuck), 0),
         coalesce(sum(k.scheduled), 0),
         coalesce(sum(k.dlq), 0),
         coalesce(max(k.oldest_pending_age_seconds), 0),
         coalesce(max(k.oldest_due_age_seconds), 0),
         count(*),
         (select coalesce(jsonb_agg(to_jsonb(l.*) order by l.entity_type), '[]') from largest l),
         (select l.more_due from limits l),
         (select l.more_processing from limits l),
         (select l.more_stuck from limits l),
         (select l.more_scheduled from limits l),
         (select l.more_dlq from limits l)
  into due, processing, stuck, scheduled, dlq, oldest_pending_age_seconds, oldest_due_age_seconds, entity_types, by_entity_type,
       more_due, more_processing, more_stuck, more_scheduled, more_dlq
  from types k;

  estimate := due + processing + stuck + scheduled;
  if more_due or more_processing or more_stuck or more_scheduled then
    estimate := greatest(estimate, (
      select sum(c.reltuples)::bigint
      from pg_class c
      where c.oid = any (array[
        'symphony.metadata_outbox_fresh', 'symphony.metadata_outbox_retries', 'symphony.metadata_outbox_exhausted',
        'symphony.metadata_outbox_claims']::regclass[])));
  end if;
end
$$;

comment on function symphony.metadata_backlog(int, int) is
  'How many entries are due, processing, stuck, scheduled and in the DLQ, in total and by entity type. Counting stops at p_max_rows of a kind and at p_max_dlq; null counts all.';

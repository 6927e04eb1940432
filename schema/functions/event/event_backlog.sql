-- Counts unprocessed events without reading all of them: in total, and by aggregate type.
--
-- An unprocessed event is new, due for a retry, scheduled, claimed or stuck, and each of these is a range of an index.
-- Counting stops at p_max_rows in each range, from its front; more_due, more_claimed, more_stuck and more_scheduled say
-- which counts are lower bounds. The ages are those of the counted events, which include the ones that have been due
-- longest. by_aggregate_type has the hundred types with the most counted events. Where a count stopped, estimate is
-- PostgreSQL's estimate of all unprocessed events; otherwise it is their number. A null p_max_rows counts all of them,
-- which takes time in proportion to the backlog. It is no part of the contract of m10_recovery, so it is in schema
-- symphony.
-- Locks: nothing. Raises: P7005.
-- For: m10_recovery.outbox_status, whose readers need EXECUTE because PostgreSQL calls a view's functions as the reader.
create or replace function symphony.event_backlog(
  p_max_rows                     int default 10000,
  out due                        bigint,
  out claimed                    bigint,
  out stuck                      bigint,
  out scheduled                  bigint,
  out oldest_pending_age_seconds numeric,
  out oldest_due_age_seconds     numeric,
  out aggregate_types            bigint,
  out by_aggregate_type          jsonb,
  out more_due                   boolean,
  out more_claimed               boolean,
  out more_stuck                 boolean,
  out more_scheduled             boolean,
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

  with unprocessed as materialized (
    (select 'new' as kind, 'due' as state, o.aggregate_type, o.created_at as due_at, o.created_at
     from m10_recovery.outbox o
     where o.processed_at is null
       and o.claimed_at is null
       and o.process_after is null
     order by o.id
     limit p_max_rows)
    union all
    (select 'retry', 'due', o.aggregate_type, case when o.process_after > to_timestamp(0) then o.process_after else o.created_at end, o.created_at
     from m10_recovery.outbox o
     where o.processed_at is null
       and o.claimed_at is null
       and o.process_after <= now()
     order by o.process_after, o.id
     limit p_max_rows)
    union all
    (select 'scheduled', 'scheduled', o.aggregate_type, null, o.created_at
     from m10_recovery.outbox o
     where o.processed_at is null
       and o.claimed_at is null
       and o.process_after > now()
     order by o.process_after, o.id
     limit p_max_rows)
    union all
    (select 'stuck', 'stuck', o.aggregate_type, o.claimed_at + event_claim_timeout(), o.created_at
     from m10_recovery.outbox o
     where o.processed_at is null
       and o.claimed_at < now() - event_claim_timeout()
     order by o.claimed_at, o.id
     limit p_max_rows)
    union all
    (select 'claimed', 'claimed', o.aggregate_type, null, o.created_at
     from m10_recovery.outbox o
     where o.processed_at is null
       and o.claimed_at >= now() - event_claim_timeout()
     order by o.claimed_at, o.id
     limit p_max_rows)
  ),
  types as materialized (
    select u.aggregate_type,
           count(*) filter (where u.state = 'due') as due,
           count(*) filter (where u.state = 'claimed') as claimed,
           count(*) filter (where u.state = 'stuck') as stuck,
           count(*) filter (where u.state = 'scheduled') as scheduled,
           greatest(coalesce(extract(epoch from now() - min(u.created_at)), 0), 0)::numeric(20, 3) as oldest_pending_age_seconds,
           greatest(coalesce(extract(epoch from now() - min(u.due_at)), 0), 0)::numeric(20, 3) as oldest_due_age_seconds
    from unprocessed u
    group by u.aggregate_type
  ),
  largest as (
    select k.*
    from types k
    order by k.due + k.claimed + k.stuck + k.scheduled desc, k.aggregate_type
    limit 100
  ),
  limits as (
    select coalesce(bool_or(k.seen = p_max_rows) filter (where k.kind in ('new', 'retry')), false) as more_due,
           coalesce(bool_or(k.seen = p_max_rows) filter (where k.kind = 'claimed'), false) as more_claimed,
           coalesce(bool_or(k.seen = p_max_rows) filter (where k.kind = 'stuck'), false) as more_stuck,
           coalesce(bool_or(k.seen = p_max_rows) filter (where k.kind = 'scheduled'), false) as more_scheduled
    from (
      select u.kind, count(*) as seen
      from unprocessed u
      group by u.kind
    ) k
  )
  select coalesce(sum(k.due), 0),
         coalesce(sum(k.claimed), 0),
         coalesce(sum(k.stuck), 0),
         coalesce(sum(k.scheduled), 0),
         coalesce(max(k.oldest_pending_age_seconds), 0),
         coalesce(max(k.oldest_due_age_seconds), 0),
         count(*),
         (select coalesce(jsonb_agg(to_jsonb(l.*) order by l.aggregate_type), '[]') from largest l),
         (select l.more_due from limits l),
         (select l.more_claimed from limits l),
         (select l.more_stuck from limits l),
         (select l.more_scheduled from limits l)
  into due, claimed, stuck, scheduled, oldest_pending_age_seconds, oldest_due_age_seconds, aggregate_types, by_aggregate_type,
       more_due, more_claimed, more_stuck, more_scheduled
  from types k;

  estimate := due + claimed + stuck + scheduled;
  if more_due or more_claimed or more_stuck or more_scheduled then
    estimate := greatest(estimate, (
      select sum(c.reltuples)::bigint
      from pg_class c
      where c.oid = any (array['m10_recovery.outbox_fresh', 'm10_recovery.outbox_retries', 'm10_recovery.outbox_claims']::regclass[])));
  end if;
end
$$;

comment on function symphony.event_backlog(int) is
  'How many events are due, claimed, stuck and scheduled, in total and by aggregate type. Counting stops at p_max_rows of a kind; null counts all.';

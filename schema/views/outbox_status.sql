-- One row of totals over what is not processed, and the same for the hundred aggregate types with most of it.
--
-- Every unprocessed event is in one of three indexes, which are read one by one: processed events are never looked at, however many.
create or replace view m10_recovery.outbox_status as
with unprocessed as (
  select o.aggregate_type, 'due' as doing, o.created_at as due_at, o.created_at
  from m10_recovery.outbox o
  where o.processed_at is null and o.claimed_at is null and o.process_after is null
  union all
  select o.aggregate_type, case when o.process_after <= now() then 'due' else 'scheduled' end, o.process_after, o.created_at
  from m10_recovery.outbox o
  where o.processed_at is null and o.claimed_at is null and o.process_after is not null
  union all
  select o.aggregate_type, case when o.claimed_at < now() - interval '5 minutes' then 'stuck' else 'claimed' end,
         o.claimed_at + interval '5 minutes', o.created_at
  from m10_recovery.outbox o
  where o.processed_at is null and o.claimed_at is not null
),
kinds as (
  select u.aggregate_type,
         count(*) filter (where u.doing = 'due') as due,
         count(*) filter (where u.doing = 'claimed') as claimed,
         count(*) filter (where u.doing = 'stuck') as stuck,
         count(*) filter (where u.doing = 'scheduled') as scheduled,
         greatest(coalesce(extract(epoch from now() - min(u.created_at)), 0), 0)::numeric(20, 3) as oldest_pending_age_seconds,
         coalesce(extract(epoch from now() - min(u.due_at) filter (where u.doing in ('due', 'stuck'))), 0)::numeric(20, 3) as oldest_due_age_seconds
  from unprocessed u
  group by u.aggregate_type
),
most as (
  select k.*
  from kinds k
  order by k.due + k.claimed + k.stuck + k.scheduled desc, k.aggregate_type
  limit 100
)
select coalesce(sum(k.due), 0)::bigint as due,
       coalesce(sum(k.claimed), 0)::bigint as claimed,
       coalesce(sum(k.stuck), 0)::bigint as stuck,
       coalesce(sum(k.scheduled), 0)::bigint as scheduled,
       coalesce(max(k.oldest_pending_age_seconds), 0) as oldest_pending_age_seconds,
       coalesce(max(k.oldest_due_age_seconds), 0) as oldest_due_age_seconds,
       count(*) as aggregate_types,
       (select coalesce(jsonb_agg(to_jsonb(m.*) order by m.aggregate_type), '[]') from most m) as by_aggregate_type
from kinds k;

comment on view m10_recovery.outbox_status is
  'Totals over unprocessed events (due, claimed, stuck, scheduled, the age of the oldest and of the oldest due), and in by_aggregate_type the same for the hundred types with most.';

-- One row of totals over unprocessed events, and the same for the hundred aggregate types with the most of them.
--
-- Every unprocessed event is in one of three indexes, which are read one by one: processed events are never read.
create or replace view m10_recovery.outbox_status as
with unprocessed as (
  select o.aggregate_type, 'due' as state, o.created_at as due_at, o.created_at
  from m10_recovery.outbox o
  where o.processed_at is null and o.claimed_at is null and o.process_after is null
  union all
  select o.aggregate_type, case when o.process_after <= now() then 'due' else 'scheduled' end, o.process_after, o.created_at
  from m10_recovery.outbox o
  where o.processed_at is null and o.claimed_at is null and o.process_after is not null
  union all
  select o.aggregate_type, case when o.claimed_at < now() - symphony.event_claim_timeout() then 'stuck' else 'claimed' end,
         o.claimed_at + symphony.event_claim_timeout(), o.created_at
  from m10_recovery.outbox o
  where o.processed_at is null and o.claimed_at is not null
),
types as (
  select u.aggregate_type,
         count(*) filter (where u.state = 'due') as due,
         count(*) filter (where u.state = 'claimed') as claimed,
         count(*) filter (where u.state = 'stuck') as stuck,
         count(*) filter (where u.state = 'scheduled') as scheduled,
         greatest(coalesce(extract(epoch from now() - min(u.created_at)), 0), 0)::numeric(20, 3) as oldest_pending_age_seconds,
         coalesce(extract(epoch from now() - min(u.due_at) filter (where u.state in ('due', 'stuck'))), 0)::numeric(20, 3) as oldest_due_age_seconds
  from unprocessed u
  group by u.aggregate_type
),
largest as (
  select k.*
  from types k
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
       (select coalesce(jsonb_agg(to_jsonb(l.*) order by l.aggregate_type), '[]') from largest l) as by_aggregate_type
from types k;

comment on view m10_recovery.outbox_status is
  'Totals over unprocessed events (due, claimed, stuck, scheduled, the age of the oldest and of the oldest due), and in by_aggregate_type the same for the hundred types with most.';

-- One row of totals over unpublished entries, and the same for the hundred entity types with the most of them.
--
-- Every unpublished entry is in one of five indexes, which are read one by one: published entries are never read.
create or replace view symphony.metadata_outbox_status as
with unpublished as (
  select o.entity_type, 'due' as state, o.created_at as due_at, o.created_at
  from symphony.metadata_outbox o
  where o.status = 'PENDING'
  union all
  select o.entity_type, case when o.next_retry_at <= now() then 'due' else 'scheduled' end, o.next_retry_at, o.created_at
  from symphony.metadata_outbox o
  where o.status = 'FAILED' and o.retry_count < o.max_retries
  union all
  select o.entity_type, 'stuck', o.updated_at, o.created_at
  from symphony.metadata_outbox o
  where o.status = 'FAILED' and o.retry_count >= o.max_retries
  union all
  select o.entity_type, case when o.processing_started_at < now() - interval '5 minutes' then 'stuck' else 'processing' end,
         o.processing_started_at + interval '5 minutes', o.created_at
  from symphony.metadata_outbox o
  where o.status = 'PROCESSING'
  union all
  select o.entity_type, 'dlq', null, null
  from symphony.metadata_outbox o
  where o.status = 'DLQ'
),
types as (
  select u.entity_type,
         count(*) filter (where u.state = 'due') as due,
         count(*) filter (where u.state = 'processing') as processing,
         count(*) filter (where u.state = 'stuck') as stuck,
         count(*) filter (where u.state = 'scheduled') as scheduled,
         count(*) filter (where u.state = 'dlq') as dlq,
         greatest(coalesce(extract(epoch from now() - min(u.created_at)), 0), 0)::numeric(20, 3) as oldest_pending_age_seconds,
         greatest(coalesce(extract(epoch from now() - min(u.due_at) filter (where u.state in ('due', 'stuck'))), 0), 0)::numeric(20, 3)
           as oldest_due_age_seconds
  from unpublished u
  group by u.entity_type
),
largest as (
  select k.*
  from types k
  order by k.due + k.processing + k.stuck + k.scheduled + k.dlq desc, k.entity_type
  limit 100
)
select coalesce(sum(k.due), 0)::bigint as due,
       coalesce(sum(k.processing), 0)::bigint as processing,
       coalesce(sum(k.stuck), 0)::bigint as stuck,
       coalesce(sum(k.scheduled), 0)::bigint as scheduled,
       coalesce(sum(k.dlq), 0)::bigint as dlq,
       coalesce(max(k.oldest_pending_age_seconds), 0) as oldest_pending_age_seconds,
       coalesce(max(k.oldest_due_age_seconds), 0) as oldest_due_age_seconds,
       count(*) as entity_types,
       (select coalesce(jsonb_agg(to_jsonb(l.*) order by l.entity_type), '[]') from largest l) as by_entity_type
from types k;

comment on view symphony.metadata_outbox_status is
  'Totals over entries that are not published (due, processing, stuck, scheduled, dlq, the age of the oldest and of the oldest due), and in by_entity_type the same for the hundred types with most.';

-- One row of totals over what is not published, and the same for the hundred entity types with most of it.
--
-- Every entry that is not published is in one of five indexes, which are read one by one: published entries are never looked at, however many.
create or replace view symphony.metadata_outbox_status as
with unpublished as (
  select o.entity_type, 'due' as doing, o.created_at as due_at, o.created_at
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
kinds as (
  select u.entity_type,
         count(*) filter (where u.doing = 'due') as due,
         count(*) filter (where u.doing = 'processing') as processing,
         count(*) filter (where u.doing = 'stuck') as stuck,
         count(*) filter (where u.doing = 'scheduled') as scheduled,
         count(*) filter (where u.doing = 'dlq') as dlq,
         greatest(coalesce(extract(epoch from now() - min(u.created_at)), 0), 0)::numeric(20, 3) as oldest_pending_age_seconds,
         greatest(coalesce(extract(epoch from now() - min(u.due_at) filter (where u.doing in ('due', 'stuck'))), 0), 0)::numeric(20, 3)
           as oldest_due_age_seconds
  from unpublished u
  group by u.entity_type
),
most as (
  select k.*
  from kinds k
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
       (select coalesce(jsonb_agg(to_jsonb(m.*) order by m.entity_type), '[]') from most m) as by_entity_type
from kinds k;

comment on view symphony.metadata_outbox_status is
  'Totals over entries that are not published (due, processing, stuck, scheduled, dlq, the age of the oldest and of the oldest due), and in by_entity_type the same for the hundred types with most.';

-- One row of totals, and the same per rail. Reads pending and the index of failures, not the rest of the ledger.
create or replace view symphony.supervisor_outbox_status as
with pending as (
  select p.rail_type,
         count(*) filter (where p.lease_token is null and p.next_attempt_at <= now()) as due_unleased_count,
         count(*) filter (where p.lease_expires_at > now()) as leased_count,
         count(*) filter (where p.lease_expires_at <= now()) as expired_lease_count,
         count(*) filter (where p.lease_token is null and p.next_attempt_at > now()) as scheduled_count,
         min(p.created_at) as oldest_created_at,
         min(p.next_attempt_at) filter (where p.lease_token is null and p.next_attempt_at <= now()) as oldest_due_at
  from symphony.payment_outbox_pending p
  group by p.rail_type
),
dead_letters as (
  select a.rail_type,
         count(*) as dlq,
         count(*) filter (where coalesce(a.error_code in (select u.error_code from symphony.unknown_outcome_codes u), false)) as dlq_unknown
  from symphony.payment_outbox_attempts a
  left join symphony.payment_outbox_operations o on o.outbox_id = a.outbox_id
  where a.state = 'FAILED'
    and o.operation_id is null
  group by a.rail_type
),
rails as (
  select r.rail_type,
         r.paused,
         coalesce(p.due_unleased_count, 0) as due_unleased_count,
         coalesce(p.leased_count, 0) as leased_count,
         coalesce(p.expired_lease_count, 0) as expired_lease_count,
         coalesce(p.scheduled_count, 0) as scheduled_count,
         greatest(coalesce(extract(epoch from now() - p.oldest_created_at), 0), 0)::numeric(20, 3) as oldest_pending_age_seconds,
         coalesce(extract(epoch from now() - p.oldest_due_at), 0)::numeric(20, 3) as oldest_due_age_seconds,
         coalesce(d.dlq, 0) as dlq,
         coalesce(d.dlq_unknown, 0) as dlq_unknown
  from symphony.payment_rails r
  left join pending p on p.rail_type = r.rail_type
  left join dead_letters d on d.rail_type = r.rail_type
  where r.retired_at is null
     or p.rail_type is not null
     or d.rail_type is not null
)
select coalesce(sum(r.due_unleased_count), 0)::bigint as due_unleased_count,
       coalesce(sum(r.leased_count), 0)::bigint as leased_count,
       coalesce(sum(r.expired_lease_count), 0)::bigint as expired_lease_count,
       coalesce(sum(r.scheduled_count), 0)::bigint as scheduled_count,
       coalesce(max(r.oldest_pending_age_seconds), 0) as oldest_pending_age_seconds,
       coalesce(max(r.oldest_due_age_seconds), 0) as oldest_due_age_seconds,
       coalesce(sum(r.dlq), 0)::bigint as dlq,
       coalesce(sum(r.dlq_unknown), 0)::bigint as dlq_unknown,
       coalesce(jsonb_agg(to_jsonb(r.*) order by r.rail_type), '[]') as rails
from rails r;

comment on view symphony.supervisor_outbox_status is
  'Totals over all rails, and in the column rails the same for each: due and unleased, leased, lease expired, scheduled, the age of the oldest pending row and of the oldest due row, dead letters.';

-- The history of each outbox, derived from the ledger and the pending rows. Order it by event_no.
--
-- A released lease leaves no attempt and no event. A cancellation is one event, without a lease and an attempt.
create or replace view symphony.payment_outbox_events with (security_barrier) as
-- Enqueued: known from the pending row, or from the first ledger row of what has ended.
select p.outbox_id,
       p.instruction_id,
       p.participant_id,
       p.sequence_id,
       p.rail_type,
       0 as event_no,
       'ENQUEUED' as event,
       p.created_at as occurred_at,
       null::int as attempt_no,
       null::symphony.outbox_attempt_state as state,
       null::text as worker_id,
       null::text as rail_reference,
       null::text as rail_code,
       null::text as error_code,
       null::text as error_message,
       null::int as latency_ms,
       p.redrive_of as related_outbox_id,
       null::text as database_user,
       null::text as endpoint,
       null::text as confirmation_id
from symphony.payment_outbox_pending p
union all
select a.outbox_id, a.instruction_id, a.participant_id, a.sequence_id, a.rail_type,
       0, 'ENQUEUED', a.created_at, null, null, null, null, null, null, null, null,
       o.outbox_id, null, null, null
from symphony.payment_outbox_attempts a
left join symphony.payment_outbox_operations o on o.new_outbox_id = a.outbox_id
where a.state in ('DISPATCHED', 'FAILED')
union all
-- Claimed, once for each lease that has ended. A confirmation of the rail may have ended none.
select a.outbox_id, a.instruction_id, a.participant_id, a.sequence_id, a.rail_type,
       a.attempt_no * 2 - 1, 'LEASE_CLAIMED', a.claimed_at, a.attempt_no, null, a.worker_id, null, null, null, null, null, null, null, a.endpoint, null
from symphony.payment_outbox_attempts a
where a.claimed_at is not null
union all
-- How it ended.
select a.outbox_id, a.instruction_id, a.participant_id, a.sequence_id, a.rail_type,
       a.attempt_no * 2 - (a.error_code is not distinct from 'CANCELLED')::int,
       case
         when a.confirmation_id is not null then 'CONFIRMED'
         when a.error_code = 'LEASE_EXPIRED' then 'LEASE_EXPIRED_REPAIRED'
         when a.error_code = 'CANCELLED' then 'CANCELLED'
         else 'ATTEMPT_COMPLETED'
       end,
       a.completed_at, case when a.error_code is distinct from 'CANCELLED' then a.attempt_no end, a.state,
       case when a.error_code is distinct from 'CANCELLED' then a.worker_id end, a.rail_reference, a.rail_code, a.error_code, a.error_message, a.latency_ms, null, a.database_user, a.endpoint,
       a.confirmation_id
from symphony.payment_outbox_attempts a
union all
-- Claimed, by the lease that is live now. Its number is the next one of the ledger.
select p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.rail_type,
       n.attempt_no * 2 - 1, 'LEASE_CLAIMED', p.claimed_at, n.attempt_no, null, p.claimed_by, null, null, null, null, null, null, null, p.claimed_endpoint,
       null
from symphony.payment_outbox_pending p
cross join lateral (
  select coalesce(max(a.attempt_no), 0) + 1 as attempt_no
  from symphony.payment_outbox_attempts a
  where a.outbox_id = p.outbox_id
) n
where p.lease_token is not null
union all
-- Redriven as another outbox.
select a.outbox_id, a.instruction_id, a.participant_id, a.sequence_id, a.rail_type,
       a.attempt_no * 2 + 1, 'REDRIVEN', o.created_at, null, null, o.actor, null, null, null, null, null, o.new_outbox_id, o.database_user, null,
       null
from symphony.payment_outbox_operations o
join symphony.payment_outbox_attempts a
  on a.outbox_id = o.outbox_id
 and a.state = 'FAILED'
where o.operation = 'REDRIVE';

comment on view symphony.payment_outbox_events is
  'What happened to each outbox, in the order of event_no: ENQUEUED, LEASE_CLAIMED, ATTEMPT_COMPLETED, LEASE_EXPIRED_REPAIRED, CONFIRMED by the rail, CANCELLED, REDRIVEN.';

-- One row per outbox, pending or ended, with its outcome and what operators did about it. Without payloads.
--
-- Query it for a few outbox ids: a count of all rows reads the whole ledger.
create or replace view symphony.payment_outboxes with (security_barrier) as
select s.outbox_id,
       s.instruction_id,
       s.participant_id,
       s.sequence_id,
       s.idempotency_key,
       s.rail_type,
       s.status as state,
       s.attempt_count as attempts,
       s.created_at,
       null::timestamptz as ended_at,
       s.next_attempt_at,
       s.claimed_by as worker_id,
       s.lease_expires_at,
       null::text as rail_reference,
       s.last_rail_code as rail_code,
       s.last_error_code as error_code,
       s.last_error_message as error_message,
       s.outcome_unknown,
       s.redrive_of,
       null::uuid as redriven_as,
       null::text as resolution,
       null::timestamptz as payload_erased_at
from symphony.outbox_operational_status s
union all
select a.outbox_id,
       a.instruction_id,
       a.participant_id,
       a.sequence_id,
       a.idempotency_key,
       a.rail_type,
       a.state::text,
       a.attempt_no - (a.error_code is not distinct from 'CANCELLED')::int,
       a.created_at,
       a.completed_at,
       null,
       case when a.error_code is distinct from 'CANCELLED' then a.worker_id end,
       null,
       a.rail_reference,
       a.rail_code,
       a.error_code,
       a.error_message,
       coalesce(a.error_code in (select u.error_code from symphony.unknown_outcome_codes u), false),
       (select o.outbox_id
        from symphony.payment_outbox_operations o
        where o.new_outbox_id = a.outbox_id),
       (select o.new_outbox_id
        from symphony.payment_outbox_operations o
        where o.outbox_id = a.outbox_id
          and o.operation = 'REDRIVE'),
       (select o.resolution
        from symphony.payment_outbox_operations o
        where o.outbox_id = a.outbox_id
          and o.operation = 'RESOLVE'
        -- As in outbox_resolution: NOT_PAID is replaced by any other.
        order by o.resolution = 'NOT_PAID'
        limit 1),
       (select e.erased_at
        from symphony.payment_payload_erasures e
        where e.outbox_id = a.outbox_id)
from symphony.payment_outbox_attempts a
where a.state in ('DISPATCHED', 'FAILED');

comment on view symphony.payment_outboxes is
  'One row per outbox: its status while it is pending, then DISPATCHED or FAILED, with its latest error, redrives, resolution and erasure.';

-- The dead-letter queue: terminal failures that wait for an operator, unknown outcomes first, without payloads.
--
-- A cancelled payment is none of them: its CANCEL is in the operations log.
--
-- A security barrier, as every view that filters: a reader's condition runs only on the rows that the view shows.
create or replace view symphony.payment_outbox_dlq with (security_barrier) as
select a.outbox_id,
       a.instruction_id,
       a.participant_id,
       a.sequence_id,
       a.idempotency_key,
       a.rail_type,
       a.attempt_no,
       a.error_code,
       a.error_message,
       a.rail_reference,
       a.rail_code,
       a.worker_id,
       a.created_at,
       a.completed_at as failed_at,
       coalesce(a.error_code in (select u.error_code from symphony.unknown_outcome_codes u), false) as outcome_unknown
from symphony.payment_outbox_attempts a
left join symphony.payment_outbox_operations o on o.outbox_id = a.outbox_id
where a.state = 'FAILED'
  and o.operation_id is null
order by coalesce(a.error_code in (select u.error_code from symphony.unknown_outcome_codes u), false) desc, a.completed_at, a.outbox_id;

comment on view symphony.payment_outbox_dlq is
  'Terminal failures that are neither redriven nor resolved; those with unknown outcome come first.';

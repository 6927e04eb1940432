-- Pending rows whose outbox had ended in the ledger already, newest first. Without payloads, for operators.
create or replace view symphony.quarantined_outboxes as
select q.quarantined_at, q.outbox_id, q.instruction_id, q.participant_id, q.sequence_id, q.idempotency_key, q.rail_type, q.attempt_count, q.created_at,
       q.redrive_of, q.claimed_by, q.claimed_at, q.ledger_attempt_no, q.ledger_state, q.ledger_completed_at, q.database_user
from symphony.payment_outbox_quarantine q
order by q.quarantine_id desc;

comment on view symphony.quarantined_outboxes is
  'Pending rows that were taken out of the queue because the ledger had ended their outbox already: must be empty; each is an alarm.';

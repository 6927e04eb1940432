-- Quarantined rows, the newest first, without payloads, for operators.
create or replace view symphony.quarantined_outboxes as
select q.quarantined_at, q.outbox_id, q.instruction_id, q.participant_id, q.sequence_id, q.idempotency_key, q.rail_type, q.attempt_count, q.created_at,
       q.redrive_of, q.claimed_by, q.claimed_at, q.epoch, q.claimed_epoch, q.claimed_endpoint, q.ledger_attempt_no, q.ledger_state,
       q.ledger_completed_at, q.database_user
from symphony.payment_outbox_quarantine q
order by q.quarantine_id desc;

comment on view symphony.quarantined_outboxes is
  'Quarantined pending rows, whose outbox already had a terminal ledger row: must be empty, page on any.';

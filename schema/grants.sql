-- Who may do what. Applied last, from nothing, so that the file is the whole truth.
--
-- Runtime roles hold EXECUTE on functions and SELECT on views, and no right to change a table. What is
-- not granted here is refused, PUBLIC included.
revoke all on schema symphony from public, symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor, symphony_auth;
revoke all on all tables in schema symphony from public, symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor, symphony_auth;
revoke all on all sequences in schema symphony from public, symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor, symphony_auth;
revoke all on all functions in schema symphony from public, symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor, symphony_auth;
revoke all on type symphony.outbox_attempt_state, symphony.payload_object from public;

grant usage on schema symphony to symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor;

grant execute on function
  symphony.enqueue_payment_outbox,
  symphony.enqueue_payment_outbox_batch
to symphony_ingest;

grant execute on function
  symphony.advise_on_unknown_outcome,
  symphony.arm_wakeup,
  symphony.claim_outbox_batch,
  symphony.complete_outbox_attempt,
  symphony.complete_outbox_batch,
  symphony.next_outbox_due,
  symphony.renew_outbox_leases,
  symphony.release_outbox_leases,
  symphony.repair_expired_leases,
  symphony.wakeup_lock
to symphony_executor;

grant execute on function
  symphony.redrive_payment_outbox,
  symphony.resolve_payment_outbox,
  symphony.set_payment_rail,
  symphony.pause_payment_rail,
  symphony.resume_payment_rail
to symphony_operator;

grant select on
  symphony.supervisor_outbox_status,
  symphony.outbox_operational_status,
  symphony.payment_outbox_dlq,
  symphony.payment_outbox_events,
  symphony.payment_rail_policies,
  symphony.payment_outbox_operations_log,
  symphony.schema_status,
  symphony.unknown_outcome_codes
to symphony_operator, symphony_readonly, symphony_auditor;

grant select on
  symphony.payment_outbox_pending,
  symphony.payment_outbox_attempts
to symphony_readonly, symphony_auditor;

-- Grants of the payment lane. Follows core.sql, which revokes all earlier grants.
revoke all on type
  symphony.outbox_attempt_state, symphony.payload_object, symphony.short_text, symphony.sequence_number, symphony.attempt_count,
  symphony.w3c_traceparent, symphony.sha256_digest
from public;

grant execute on function
  symphony.cancel_payment_outbox,
  symphony.enqueue_payment_outbox,
  symphony.enqueue_payment_outbox_batch,
  symphony.payment_outcome
to symphony_ingest;

grant execute on function
  symphony.advise_on_unknown_outcome,
  symphony.check_worker_history,
  symphony.claim_outbox_batch,
  symphony.complete_outbox_attempt,
  symphony.complete_outbox_batch,
  symphony.confirm_payment_outbox,
  symphony.count_open_orphans,
  symphony.count_refused_confirmations,
  symphony.extend_payment_ledger,
  symphony.list_partitions_to_archive,
  symphony.next_outbox_due,
  symphony.outbox_trace_contexts,
  symphony.payment_ledger_partitions,
  symphony.quarantined_outboxes_total,
  symphony.rail_policy_lock_holders,
  symphony.record_payment_orphan,
  symphony.remove_expired_keys,
  symphony.renew_outbox_leases,
  symphony.release_outbox_leases,
  symphony.repair_expired_leases
to symphony_executor;

grant execute on function
  symphony.cancel_payment_outbox,
  symphony.declare_same_endpoint,
  symphony.revoke_same_endpoint,
  symphony.erase_payment_payload,
  symphony.extend_payment_ledger,
  symphony.make_payments_due,
  symphony.reconcile_bank_export,
  symphony.recover_epoch,
  symphony.redrive_payment_outbox,
  symphony.remove_expired_keys,
  symphony.repair_payment_rail,
  symphony.resolve_payment_outbox,
  symphony.register_payment_rail,
  symphony.set_payment_rail,
  symphony.retire_payment_rail,
  symphony.pause_payment_rail,
  symphony.resume_payment_rail
to symphony_operator;

grant execute on function
  symphony.audit_export_end,
  symphony.count_open_orphans,
  symphony.count_payment_dead_letters,
  symphony.count_refused_confirmations,
  symphony.find_archived_outboxes,
  symphony.list_archive_blockers,
  symphony.list_partitions_to_archive,
  symphony.list_payment_dead_letters,
  symphony.payment_backlog,
  symphony.payment_leases,
  symphony.payment_ledger_partitions,
  symphony.payment_outcome,
  symphony.payment_recent_stats,
  symphony.payment_status,
  symphony.quarantined_outboxes_total,
  symphony.rail_policy_lock_holders,
  symphony.search_payment_outboxes
to symphony_operator, symphony_readonly, symphony_auditor;

grant select on
  symphony.archived_ledger_partitions,
  symphony.held_payment_streams,
  symphony.orphaned_outcomes,
  symphony.supervisor_outbox_status,
  symphony.outbox_operational_status,
  symphony.payment_outbox_dlq,
  symphony.payment_outbox_events,
  symphony.payment_rail_policies,
  symphony.payment_outbox_operations_log,
  symphony.payment_outboxes,
  symphony.payment_participants,
  symphony.payment_same_endpoints,
  symphony.quarantined_outboxes,
  symphony.refused_confirmations,
  symphony.unknown_outcome_codes
to symphony_operator, symphony_readonly, symphony_auditor;

-- PostgreSQL calls the functions of a view as the role that reads it.
grant execute on function
  symphony.is_open_orphan
to symphony_operator, symphony_readonly, symphony_auditor;

-- All that a relayer reads: the policies of its rails, and totals for its gauges. PostgreSQL calls the functions of a view as the role that reads it.
grant execute on function
  symphony.payment_status
to symphony_executor;

grant select on
  symphony.payment_rail_policies,
  symphony.supervisor_outbox_status
to symphony_executor;

-- By column. Only the worker may know its lease token, because it completes the payment. Only auditors may read payloads; a worker gets those of the rows it claims.
grant select
  (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_count, next_attempt_at, created_at,
   claimed_by, claimed_at, lease_expires_at, redrive_of, traceparent, parked, epoch, claimed_epoch, claimed_endpoint, not_before)
on symphony.payment_outbox_pending
to symphony_readonly, symphony_auditor;

grant select (payload)
on symphony.payment_outbox_pending
to symphony_auditor;

grant select
  (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_no, state, claimed_at,
   completed_at, rail_reference, rail_code, error_code, error_message, latency_ms, worker_id, created_at, database_user, epoch, endpoint,
   confirmation_id)
on symphony.payment_outbox_attempts
to symphony_readonly;

-- With payloads, and with the question whether an erased payload was a given one.
grant execute on function
  symphony.erased_payload_matches
to symphony_auditor;

grant select on
  symphony.payment_outbox_attempts
to symphony_auditor;

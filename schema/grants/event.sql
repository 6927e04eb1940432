-- Grants of the event lane, after a REVOKE of everything. No role may change a table; PUBLIC has no right.
revoke all on schema m10_recovery from public, symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor, symphony_auth;
revoke all on all tables in schema m10_recovery from public, symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor, symphony_auth;
revoke all on all sequences in schema m10_recovery from public, symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor, symphony_auth;
revoke all on all functions in schema m10_recovery from public, symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor, symphony_auth;

grant usage on schema m10_recovery to symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor;

grant execute on function
  m10_recovery.publish_outbox
to symphony_ingest;

grant execute on function
  symphony.claim_events_by_sink,
  symphony.claim_events_in_order,
  symphony.claim_newest_event,
  symphony.complete_event_batch,
  symphony.release_abandoned_events,
  m10_recovery.claim_outbox_events,
  m10_recovery.complete_outbox_event
to symphony_executor;

grant execute on function
  symphony.remove_processed_events
to symphony_executor, symphony_operator;

-- PostgreSQL calls the functions of a view as the role that reads it.
grant execute on function
  symphony.event_backlog,
  symphony.event_claim_timeout
to symphony_executor, symphony_operator, symphony_readonly, symphony_auditor;

-- Everything that a relayer reads: payloads only of events that it claims, and no processor id of another claim.
grant select on
  m10_recovery.outbox_schedule,
  m10_recovery.outbox_status
to symphony_executor;

-- Without payloads: for operators as well.
grant select on
  m10_recovery.outbox_status,
  m10_recovery.outbox_errors
to symphony_operator, symphony_readonly, symphony_auditor;

grant select (id, aggregate_type, aggregate_id, event_type, created_at, processed_at, retry_count, process_after, claimed_at, claimed_by)
  on m10_recovery.outbox
to symphony_readonly;

-- Payloads are for auditors alone.
grant select on
  m10_recovery.outbox
to symphony_auditor;

-- Grants in schema symphony. Applied last, after a REVOKE of everything: the files of this folder are all grants.
--
-- Runtime roles hold EXECUTE on functions and SELECT on views, and no right to change a table. What is
-- not granted here or in the file of a lane is refused, PUBLIC included. This file takes away what the lanes that live in
-- this schema had, so their files must follow it.
revoke all on schema symphony from public, symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor, symphony_auth;
revoke all on all tables in schema symphony from public, symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor, symphony_auth;
revoke all on all sequences in schema symphony from public, symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor, symphony_auth;
revoke all on all functions in schema symphony from public, symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor, symphony_auth;

grant usage on schema symphony to symphony_ingest, symphony_executor, symphony_operator, symphony_readonly, symphony_auditor;

grant execute on function
  symphony.acquire_wakeup_lock,
  symphony.open_claim_session,
  symphony.server_epoch,
  symphony.wakeup_lock_key
to symphony_executor;

grant execute on function
  symphony.longest_lock_wait
to symphony_executor, symphony_operator, symphony_readonly, symphony_auditor;

grant execute on function
  symphony.connected_relayers
to symphony_operator, symphony_readonly, symphony_auditor;

grant execute on function
  symphony.open_epoch,
  symphony.set_retention
to symphony_operator;

-- PostgreSQL calls the functions of a view as the role that reads it.
grant execute on function
  symphony.retention_cutoff
to symphony_operator, symphony_readonly, symphony_auditor;

grant select on
  symphony.retention,
  symphony.retention_removals_log
to symphony_operator, symphony_readonly, symphony_auditor;

grant select on
  symphony.applied_migrations,
  symphony.epochs,
  symphony.schema_status
to symphony_executor, symphony_operator, symphony_readonly, symphony_auditor;
